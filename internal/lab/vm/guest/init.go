package guest

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Main is process 1: it sets up the guest, runs the command, sends the results and stops the machine. It returns only
// if the machine cannot be stopped. The end of process 1 then makes the kernel panic, which also ends the guest.
func Main() error {
	err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err) // the console is the last resort
	}
	// Reset instead of powering off, which needs ACPI or PSCI drivers. qemu is started with -no-reboot.
	return errors.Join(err, unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART))
}

func run() error {
	notes, err := mountAll()
	if err != nil {
		return err
	}
	config, err := readConfig(ConfigPath)
	if err != nil {
		return err
	}
	results, err := openResults(config.Results)
	if err != nil {
		return err
	}
	out := &sender{w: results}
	exited := setUpAndRun(config, notes, out)
	if err := out.sendJSON(Exit, exited); err != nil {
		return err
	}
	// Otherwise the reset discards what is still in the port's queue.
	return unix.IoctlSetInt(int(results.Fd()), unix.TCSBRK, 1)
}

func setUpAndRun(config Config, notes []string, out *sender) Exited {
	if err := setUp(config); err != nil {
		return Exited{Error: err.Error()}
	}
	if err := out.sendJSON(Boot, booted(notes)); err != nil {
		return Exited{Error: err.Error()}
	}
	code, err := runCommand(config, out)
	if err == nil {
		err = sendFiles(config.Outputs, out)
	}
	if err != nil {
		return Exited{Code: code, Error: err.Error()}
	}
	return Exited{Code: code}
}

// sender keeps frames whole when both outputs of the command are sent at once.
type sender struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *sender) send(kind Kind, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return WriteFrames(s.w, kind, data)
}

func (s *sender) sendJSON(kind Kind, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.send(kind, data)
}

// openResults opens the serial port in raw mode, so that the terminal layer does not change bytes.
func openResults(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the port for results: %w: this kernel lacks the serial driver (8250)", err)
	}
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
	t.Cflag |= unix.CLOCAL
	if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// A mount is one file system of the guest.
type mount struct {
	dir, fs  string
	optional bool // depends on the kernel's configuration
}

// mounts returns the mounts. It leaves out /tmp and /run: the root is already in memory, and may have given files
// there.
func mounts() []mount {
	return []mount{
		{dir: "/proc", fs: "proc"},
		{dir: "/sys", fs: "sysfs"},
		{dir: "/dev", fs: "devtmpfs"},
		{dir: "/dev/pts", fs: "devpts", optional: true},
		{dir: "/dev/shm", fs: "tmpfs", optional: true},
		{dir: "/sys/fs/cgroup", fs: "cgroup2", optional: true},
		{dir: "/sys/fs/bpf", fs: "bpf", optional: true},
		{dir: "/sys/kernel/tracing", fs: "tracefs", optional: true},
	}
}

// mountAll mounts all of them, and returns which optional ones are missing.
func mountAll() ([]string, error) {
	var notes []string
	for _, m := range mounts() {
		err := os.MkdirAll(m.dir, 0o750)
		if err == nil {
			err = unix.Mount(m.fs, m.dir, m.fs, 0, "")
		}
		switch {
		case err == nil:
		case m.optional:
			notes = append(notes, fmt.Sprintf("%s on %s: %v", m.fs, m.dir, err))
		default:
			return nil, fmt.Errorf("mount %s on %s: %w", m.fs, m.dir, err)
		}
	}
	return append(notes, enableControllers("/sys/fs/cgroup")...), nil
}

// enableControllers lets groups below the root have limits, as systemd does. It enables them one by one, because a
// kernel that lacks one refuses the whole line.
func enableControllers(root string) []string {
	var notes []string
	for _, name := range []string{"cpu", "cpuset", "io", "memory", "pids"} {
		if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+"+name), 0); err != nil {
			notes = append(notes, fmt.Sprintf("cgroup controller %s: %v", name, err))
		}
	}
	return notes
}

func setUp(config Config) error {
	for _, path := range config.Modules {
		if err := loadModule(path); err != nil {
			return err
		}
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	// As systemd does (DefaultLimitNOFILE): the kernel's own 1024, up to 4096, is less than a load of connections
	// needs.
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1024, Max: 1 << 19}); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	for _, setting := range config.Sysctls {
		if err := setSysctl(setting); err != nil {
			return err
		}
	}
	return unix.Sethostname([]byte("perfdoctor-guest"))
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load module %s: %w", filepath.Base(path), err)
	}
	return nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}

func setSysctl(setting string) error {
	name, value, ok := strings.Cut(setting, "=")
	if !ok {
		return fmt.Errorf("sysctl %q: not name=value", setting)
	}
	path := filepath.Join("/proc/sys", strings.ReplaceAll(strings.TrimSpace(name), ".", "/"))
	if err := os.WriteFile(path, []byte(strings.TrimSpace(value)), 0); err != nil {
		return fmt.Errorf("sysctl %s: %w: this kernel or its loaded modules have no such setting, or refuse the value",
			setting, err)
	}
	return nil
}

func booted(notes []string) Booted {
	b := Booted{Notes: notes}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		b.Release = unix.ByteSliceToString(name.Release[:])
	}
	var up unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) == nil {
		b.Uptime = time.Duration(up.Nano()).Seconds()
	}
	return b
}

// runCommand returns the command's status once the command has ended and everything it left behind is dead. It waits
// for every process, because process 1 inherits all orphans.
func runCommand(config Config, out *sender) (int, error) {
	var copies sync.WaitGroup
	stdout, err := pipeTo(out, Stdout, &copies)
	if err != nil {
		return 0, err
	}
	stderr, err := pipeTo(out, Stderr, &copies)
	if err != nil {
		return 0, err
	}
	stdin, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	process, err := os.StartProcess(config.Command, append([]string{config.Command}, config.Args...), &os.ProcAttr{
		Dir: config.Dir, Env: config.Env, Files: []*os.File{stdin, stdout, stderr},
	})
	_, _ = stdout.Close(), stderr.Close()
	if err != nil {
		return 0, fmt.Errorf("start the command: %w", err)
	}
	code, err := waitFor(process.Pid)
	_ = unix.Kill(-1, unix.SIGKILL) // everything but process 1; ESRCH when nothing is left
	copies.Wait()
	return code, err
}

// pipeTo returns a file to write to. Written bytes are sent as frames until the last holder closes the file.
func pipeTo(out *sender, kind Kind, copies *sync.WaitGroup) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	copies.Go(func() {
		buf := make([]byte, maxPayload)
		for {
			n, err := r.Read(buf)
			if n > 0 && out.send(kind, buf[:n]) != nil || err != nil {
				return
			}
		}
	})
	return w, nil
}

func waitFor(pid int) (int, error) {
	for {
		var status unix.WaitStatus
		got, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for the command: %w", err)
		case got != pid:
		case status.Signaled():
			return 128 + int(status.Signal()), nil
		case status.Exited():
			return status.ExitStatus(), nil
		}
	}
}

// sendFiles sends one tar archive, or nothing if nothing was asked for.
func sendFiles(paths []string, out *sender) error {
	if len(paths) == 0 {
		return nil
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, path := range paths {
		err := filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case !entry.Type().IsRegular():
				return nil
			}
			return addFile(w, path)
		})
		if err != nil {
			return fmt.Errorf("bring back %s: %w", path, err)
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return out.send(Tar, archive.Bytes())
}

// addFile adds a file to the archive. It reads the file first, because files in /proc and /sys have no size.
func addFile(w *tar.Writer, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: path, Mode: 0o600, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}
