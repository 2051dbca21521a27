package experiment

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host"
)

// A knob is what an experiment turns: a control file of a group, or whether a process is stopped.
type knob struct {
	name           string // the file's path, or "process 42 (java)"
	pid            int    // of a process, else 0
	before, during string // as the kernel shows them
	// file is the control file, or the process's directory in /proc. It refers to this group or process only, even
	// after another gets its name or number, and signals go to it (pidfd_send_signal(2), Linux 5.1).
	file *os.File
}

// The states of a process, as values of a knob.
const (
	running = "running"
	stopped = "stopped"
)

// errGone says that the group was removed, or that the process has ended.
var errGone = errors.New("it is gone")

// openControl opens a control file of a group for writing. The directory has to be in a cgroup file system, and links
// are not followed.
func openControl(dir, name string) (*os.File, error) {
	path := dir + "/" + name
	if strings.ContainsFunc(path, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return nil, refusedf("%q: the group's name has characters that cannot be printed, so how to undo the change "+
			"by hand could not be said", path)
	}
	d, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(d) }() // nothing was written to it
	var fs unix.Statfs_t
	if err := unix.Fstatfs(d, &fs); err != nil {
		return nil, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if fs.Type != unix.CGROUP_SUPER_MAGIC && fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return nil, refusedf("%s is no directory of a cgroup file system", dir)
	}
	fd, err := unix.Openat(d, name, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// value reads the control file. A v1 freezer that is still freezing counts as frozen.
func (k *knob) value() (string, error) {
	buf := make([]byte, 128) // two numbers of 20 digits, or a word
	n, err := k.file.ReadAt(buf, 0)
	switch {
	case errors.Is(err, unix.ENODEV):
		return "", fmt.Errorf("%s: %w", k.name, errGone)
	case err != nil && !errors.Is(err, io.EOF):
		return "", err
	}
	v := strings.TrimSpace(string(buf[:n]))
	if v == "FREEZING" { // kernel/cgroup/legacy_freezer.c
		v = "FROZEN"
	}
	return v, nil
}

// processState reads whether the process is stopped, and whether it is traced. A hostile process can make it wait, so
// undo does not call it.
func (k *knob) processState() (host.Stat, error) {
	fd, err := unix.Openat(int(k.file.Fd()), "stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return host.Stat{}, k.ended(err)
	}
	f := os.NewFile(uintptr(fd), k.name)
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4096)) // some 350 bytes
	if err != nil {
		return host.Stat{}, k.ended(err)
	}
	return host.ParseStat(text)
}

func (k *knob) ended(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
		err = errGone
	}
	return fmt.Errorf("%s: %w", k.name, err)
}

// set turns the knob to before or to during.
func (k *knob) set(value string) error {
	if k.pid != 0 {
		sig := unix.SIGSTOP
		if value == running {
			sig = unix.SIGCONT
		}
		if err := unix.PidfdSendSignal(int(k.file.Fd()), sig, nil, 0); err != nil {
			return k.ended(err)
		}
		return nil
	}
	_, err := k.file.Write([]byte(value))
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%s: %w", k.name, errGone)
	}
	return err
}

// turn makes the change, if all is as it was when the change was announced.
func (k *knob) turn() error {
	if k.pid == 0 {
		now, err := k.value()
		if err != nil {
			return err
		}
		if now != k.before {
			return refusedf("%s was changed from %s to %s meanwhile: nothing was changed", k.name, k.before, now)
		}
	}
	return k.set(k.during)
}

// undo restores the earlier value if the experiment's own value is still there. It returns what is there now; lasted
// reports whether the experiment's value was still there. SIGCONT does no harm to a process that runs, and cancels a
// SIGSTOP that is still pending.
func (k *knob) undo() (now string, lasted bool, err error) {
	if k.pid == 0 {
		is, err := k.value()
		switch {
		case errors.Is(err, errGone):
			return gone(err), false, nil
		case err != nil:
			return "", false, k.failed(err)
		case is == k.before:
			return k.name + " is " + k.before, false, nil
		case is != k.during:
			return fmt.Sprintf("%s was set to %s by another meanwhile, and is left so (it was %s before)", k.name, is,
				k.before), false, nil
		}
	}
	err = k.set(k.before)
	if err == nil && k.pid != 0 && exited(k.pid) { // a signal to a zombie is no error
		err = k.ended(unix.ESRCH)
	}
	if errors.Is(err, errGone) {
		return gone(err), false, nil
	}
	if err == nil && k.pid == 0 {
		var is string
		if is, err = k.value(); err == nil && is != k.before {
			err = fmt.Errorf("it is %s", is)
		}
	}
	if err != nil {
		return "", false, k.failed(err)
	}
	return k.name + " is " + k.before + " again", true, nil
}

// dying is how long a killed process may take to exit before it is said to run. The signal was sent, and it is the
// observer who waits, not the process. On full CPUs the process waits for its turn first, a time slice or a few.
const dying = 200 * time.Millisecond

// exited reports whether a process has exited, or does so within [dying]. It uses no call that may block longer
// (pidfd_open(2), Linux 5.3).
func exited(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	ready, err := readable(fd, dying)
	return err == nil && ready
}

func gone(err error) string { return err.Error() + ": there is nothing to undo" }

func (k *knob) failed(err error) error {
	return fmt.Errorf("%s could not be set back to %s (%w): run `%s`", k.name, k.before, err, k.byHand())
}

// byHand returns the command that undoes the change.
func (k *knob) byHand() string {
	if k.pid != 0 {
		return "kill -CONT " + strconv.Itoa(k.pid)
	}
	return "echo '" + k.before + "' > '" + strings.ReplaceAll(k.name, "'", `'\''`) + "'"
}

// lock keeps a second experiment from the same knob. The watchdog shares the lock, so the lock lasts as long as it
// does.
func (k *knob) lock() error {
	if err := unix.Flock(int(k.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return refusedf("%s: another experiment is under way there (%v)", k.name, err)
	}
	return nil
}
