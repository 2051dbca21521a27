package hostile_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// nobody is a uid that owns nothing.
const nobody = 65534

// secret is text that must not appear anywhere.
const secret = "hunter2-of-root"

// trap starts testdata/victim.c and returns its pid.
func trap(t *testing.T, as *syscall.SysProcAttr, args ...string) int {
	t.Helper()
	testenv.Need(t, testenv.Tool("gcc"))
	binary, err := victimBinary()
	if err != nil {
		t.Fatal(err)
	}
	victim := exec.Command(binary, args...)
	victim.SysProcAttr, victim.Stderr = &syscall.SysProcAttr{}, os.Stderr
	if as != nil {
		*victim.SysProcAttr = *as
	}
	victim.SysProcAttr.Setpgid = true
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// With its children: one that waits for a file system of its own does not end before that has ended.
		_ = syscall.Kill(-victim.Process.Pid, syscall.SIGKILL)
		_ = victim.Wait()
		_ = os.Remove("/tmp/perf-" + strconv.Itoa(victim.Process.Pid) + ".map")
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the victim said %q: %v", line, err)
	}
	return victim.Process.Pid
}

// openDir is a directory that every user can search, unlike t.TempDir.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hostile") //nolint:usetesting // its parent lets nobody in
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestFilesOfOthers is attack 1: the perf map is another name of a file that only root can read.
func TestFilesOfOthers(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root, testenv.BPF)
	file := filepath.Join(builds, "shadow") // not below the /tmp that the victims mount
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "bind"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pid := trap(t, &syscall.SysProcAttr{
				Credential:  &syscall.Credential{NoSetGroups: true}, // uid 0 of its own namespace
				Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: nobody, Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: nobody, Size: 1}},
			}, name, file)
			if said := untilMapSought(t, pid); strings.Contains(said, secret) {
				t.Errorf("the report has the secret:\n%s", said)
			}
		})
	}
}

// untilMapSought diagnoses a victim until its perf map was looked for, which needs a sample of it, and returns
// everything that was printed. On full CPUs a victim may have no sample in a window. Without one its trap does not
// work.
func untilMapSought(t *testing.T, pid int) (said string) {
	t.Helper()
	sought := fmt.Sprintf("names of compiled methods in samples of process %d: ", pid)
	for range 3 {
		o := diagnose(t, pid)
		said += o.stdout + o.stderr
		if strings.Contains(inOneLine(o.stdout), sought) {
			return said
		}
	}
	t.Errorf("its perf map was not looked for:\n%s", said)
	return said
}

// TestHangingFileSystem is attack 5: the server of the file system on /tmp never answers.
func TestHangingFileSystem(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root, testenv.BPF)
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip(err)
	}
	untilMapSought(t, trap(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}, "fuse"))
}

// TestHangingMemory: a thread waits in poll(2) for what its memory says, and its memory is a file whose server never
// answers. A process that reads it cannot be ended, not even by SIGKILL.
func TestHangingMemory(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root, testenv.BPF)
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip(err)
	}
	o := diagnose(t, trap(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}, "page"))
	if !strings.Contains(o.stdout, "thread-states: ok") {
		t.Errorf("the states of threads are not told:\n%s%s", o.stdout, o.stderr)
	}
}

// TestHangingLooks: the server of a file system never answers a program that maps something over one of its pages, or
// executes another. The kernel lets everybody wait who looks at the program meanwhile, such as ps. The others have
// libraries, a root and a working directory there, in which a runtime is looked for. No other test runs meanwhile,
// because it would wait, too.
func TestHangingLooks(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.BPF)
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip(err)
	}
	served, locked := "whose server can keep perfdoctor from ending", "the kernel lets nobody look at it"
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"lock", []string{"lock"}, locked},
		{"exec", []string{"exec"}, ""}, // kernels differ in what is lost
		{"libraries", []string{"libraries", openDir(t)}, served},
		{"root", []string{"inside", openDir(t), "root"}, served},
		{"working directory", []string{"inside", openDir(t), "cwd", "@options"}, served},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pid := trap(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}, tt.args...)
			var o, host outcome
			var both sync.WaitGroup
			both.Go(func() { o = diagnose(t, pid) })
			both.Go(func() { host = diagnoseHost(t) })
			both.Wait()
			if text := inOneLine(o.stdout); !strings.Contains(text, tt.want) {
				t.Errorf("the report does not say %q:\n%s%s", tt.want, o.stdout, o.stderr)
			}
			if host.stdout == "" {
				t.Errorf("no report of the host: exit code %d, %s", host.code, host.stderr)
			}
		})
	}
}

// diagnoseHost is [diagnose] for the whole host.
func diagnoseHost(t *testing.T) outcome {
	t.Helper()
	const window = 2 * time.Second
	return perfdoctor(t, window, "diagnose", "--duration", window.String())
}

// TestHugeArguments is attack 3: a command line and an environment of 1 GiB each.
func TestHugeArguments(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root, testenv.BPF)
	o := diagnose(t, trap(t, nil, "arguments"))
	if len(o.stdout) > 1<<20 {
		t.Errorf("the report has %d bytes", len(o.stdout))
	}
}

// TestDevice is attack 6: a device under the name of a perf map is not opened, because that may act on it.
func TestDevice(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root, testenv.BPF)
	pid := trap(t, nil, "device")
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, "/tmp/perf-"+strconv.Itoa(pid)+".map", unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	untilMapSought(t, pid)
	if n, err := unix.Read(fd, make([]byte, 4096)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("the device was opened: %d bytes of events, %v", n, err)
	}
}

// TestManyMappings: 60,000 mappings of a file with a long name make a list of 900 MB. Only its beginning is read.
func TestManyMappings(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root, testenv.BPF)
	diagnose(t, trap(t, nil, "maps", openDir(t)))
}

// TestHugePerfMaps is attack 13: three perf maps of 56 MiB. Each of them took 140 MiB.
func TestHugePerfMaps(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root, testenv.BPF)
	for range 3 {
		trap(t, nil, "methods", "56")
	}
	if o := diagnoseHost(t); o.stdout == "" {
		t.Errorf("no report of the host: exit code %d, %s", o.code, o.stderr)
	}
}

// diagnose looks at the victim and expects perfdoctor to end with a report.
func diagnose(t *testing.T, pid int) outcome {
	t.Helper()
	const window = 2 * time.Second
	o := perfdoctor(t, window, "diagnose", "-v", "--pid", strconv.Itoa(pid), "--duration", window.String())
	if o.code < 0 || o.stdout == "" {
		t.Errorf("exit code %d, and the report:\n%s%s", o.code, o.stdout, o.stderr)
	}
	return o
}
