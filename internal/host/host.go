// Package host finds out what a Linux host is and can do: its kernel and CPUs, the capabilities of the caller, its
// cgroups and namespaces, and which processes a target consists of. It only reads.
//
// It reads all files below Host.Proc and Host.Sys, so a saved tree of another kernel can stand in for the live one.
package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Errors a caller can distinguish with errors.Is. All of them mean that the target as named cannot be used.
var (
	// ErrNoSuchProcess says that no live process matches the selector, or that the target has ended.
	ErrNoSuchProcess = errors.New("no such process")
	// ErrNoSuchCgroup says that the control group does not exist on this host.
	ErrNoSuchCgroup = errors.New("no such cgroup")
	// ErrNoSuchContainer says that no visible process belongs to the container.
	ErrNoSuchContainer = errors.New("no such container")
	// ErrPermission says that the target exists but its data may not be read by this user.
	ErrPermission = errors.New("permission denied")
	// ErrAmbiguous says that the selector names several targets.
	ErrAmbiguous = errors.New("ambiguous target")
	// ErrSelector says that the selector itself is malformed.
	ErrSelector = errors.New("invalid target")
)

// A kindError has its own complete message and one of the sentinels above as its kind, so that a message need not
// begin or end with the words of the sentinel.
type kindError struct {
	kind error
	msg  string
}

func (e *kindError) Error() string { return e.msg }
func (e *kindError) Unwrap() error { return e.kind }

func kindErrorf(kind error, format string, args ...any) error {
	return &kindError{kind, fmt.Sprintf(format, args...)}
}

// Host is a place to read from. It has no state and is safe for concurrent use.
type Host struct {
	Proc string // a procfs, "/proc"
	Sys  string // a sysfs with the cgroup file systems below fs/cgroup, "/sys"
	Etc  string // passwd is read here to name users, "/etc"

	last *listing // the listing that [Host.LateMembers] shares; nil for none
}

// Local is the host perfdoctor runs on.
func Local() *Host { return &Host{Proc: "/proc", Sys: "/sys", Etc: "/etc", last: &listing{}} }

func (h *Host) pidPath(pid int, name string) string {
	return h.Proc + "/" + strconv.Itoa(pid) + "/" + name
}

func (h *Host) readProc(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(h.Proc, name))
}

// readSys reads a file below Sys that holds one line.
func (h *Host) readSys(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(h.Sys, name))
	return strings.TrimSpace(string(b)), err
}

// ReadFile reads the whole file into buf, which grows when it must, and returns the bytes read; the result shares
// memory with buf. It serves files that are read for every thread each second. os.ReadFile allocates the buffer and
// an os.File with its finaliser each time and asks the poller; ReadFile allocates only the C string of the path.
func ReadFile(path string, buf []byte) ([]byte, error) { return readFile(path, buf, false) }

// ReadRecord is [ReadFile] of a file that is one record, such as the one-line files in /proc/PID/task/TID. It saves a
// call of read(2).
func ReadRecord(path string, buf []byte) ([]byte, error) { return readFile(path, buf, true) }

// readFile is ReadFile; record says that the file is one record, as stat is. seq_file returns a record as a whole, so
// a read that does not fill the buffer was the last one (fs/seq_file.c), and readFile saves the call that would
// return 0.
func readFile(path string, buf []byte, record bool) ([]byte, error) {
	fd, err := openRetry(path)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	buf = buf[:cap(buf)]
	if len(buf) == 0 {
		// A stat line has at most 52 numbers and is about 200 to 350 bytes.
		buf = make([]byte, 1024)
	}
	n := 0
	for {
		m, err := unix.Read(fd, buf[n:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		n += m
		if m == 0 || (record && n < len(buf)) {
			return buf[:n], nil
		}
		if n == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
	}
}

func openRetry(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// ReadStat reads /proc/PID/stat, or /proc/PID/task/TID/stat when tid is not 0. buf is scratch space; the returned
// slice is the same space for the next call, perhaps grown.
func (h *Host) ReadStat(pid, tid int, buf []byte) (Stat, []byte, error) {
	path := h.statPath(pid, tid)
	b, err := readFile(path, buf, true)
	if err != nil {
		return Stat{}, buf, h.processError(pid, err)
	}
	st, err := ParseStat(b)
	if err != nil {
		return Stat{}, b, fmt.Errorf("%s: %w", path, err)
	}
	return st, b, nil
}

// statPath builds the path in one allocation, as it is built for every thread each second.
func (h *Host) statPath(pid, tid int) string {
	var space [96]byte
	b := append(space[:0], h.Proc...)
	b = strconv.AppendInt(append(b, '/'), int64(pid), 10)
	if tid != 0 {
		b = strconv.AppendInt(append(b, "/task/"...), int64(tid), 10)
	}
	return string(append(b, "/stat"...))
}

// processError turns an error of reading a file of a process into what the user should know.
func (h *Host) processError(pid int, err error) error {
	switch {
	case err == nil:
		return nil
	// ESRCH comes from reading a file that was opened before the process ended.
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		if hide := h.hidepid(); hide != "" && h.checkCap(capSysPtrace) != nil {
			return kindErrorf(ErrPermission,
				"no process with pid %d is visible: %s is mounted with hidepid=%s; run as root or with CAP_SYS_PTRACE",
				pid, h.Proc, hide)
		}
		return kindErrorf(ErrNoSuchProcess, "no process with pid %d (it may have ended)", pid)
	case errors.Is(err, fs.ErrPermission):
		return kindErrorf(ErrPermission, "process %d may not be read: %v; run as root, as its user, or with "+
			"CAP_SYS_PTRACE",
			pid, err)
	}
	return err
}

// selfPID returns perfdoctor's own pid as this procfs counts, which differs from getpid when the procfs belongs to
// another pid namespace.
func (h *Host) selfPID() int {
	link, err := os.Readlink(h.Proc + "/self")
	if err == nil {
		if pid, err := strconv.Atoi(link); err == nil {
			return pid
		}
	}
	return os.Getpid()
}

// allPIDs lists the processes that this procfs shows, ascending as the kernel lists them.
func (h *Host) allPIDs() ([]int, error) {
	d, err := os.Open(h.Proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer d.Close()
	pids := make([]int, 0, 256)
	for {
		names, err := d.Readdirnames(512)
		for _, name := range names {
			if name[0] < '1' || name[0] > '9' {
				continue
			}
			if pid, err := strconv.Atoi(name); err == nil {
				pids = append(pids, pid)
			}
		}
		if errors.Is(err, io.EOF) {
			return pids, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list processes: %w", err)
		}
	}
}
