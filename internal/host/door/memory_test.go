package door

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

func TestMain(m *testing.M) {
	if Helped() {
		return
	}
	os.Exit(m.Run())
}

// mark is read by its address.
var mark = [2]uint64{0x5ec2e7, 1}

func markAt() uint64 { return uint64(uintptr(unsafe.Pointer(&mark))) }

func own() string { return fmt.Sprintf("/proc/%d", os.Getpid()) }

func markBytes() []byte { return (*[16]byte)(unsafe.Pointer(&mark))[:] }

func TestMemory(t *testing.T) {
	m := MemoryOf(own())
	got := make([]byte, 16)
	if n, err := m.ReadAt(got, int64(markAt())); n != 16 || err != nil || !slices.Equal(got, markBytes()) {
		t.Errorf("%d bytes, %x, %v; want %x", n, got, err, markBytes())
	}
	if n, err := m.ReadAt(got, 8); n != 0 || !errors.Is(err, unix.EFAULT) {
		t.Errorf("address 8: %d bytes, %v, want EFAULT", n, err)
	}
	if n, err := MemoryOf("/proc/4194305").ReadAt(got, 8); n != 0 || !errors.Is(err, unix.ESRCH) {
		t.Errorf("nobody's memory: %d bytes, %v, want ESRCH", n, err) // ids end at 4194304 (PID_MAX_LIMIT)
	}
}

// TestHelpers: a helper reads what this process reads, with the same errors. A helper that ends is replaced.
func TestHelpers(t *testing.T) {
	h := newHelpers()
	check := func() {
		t.Helper()
		got := make([]byte, 16)
		if n, err := h.read(os.Getpid(), got, markAt()); n != 16 || err != nil || !slices.Equal(got, markBytes()) {
			t.Errorf("%d bytes, %x, %v; want %x", n, got, err, markBytes())
		}
	}
	check()
	large := make([]byte, maxPiece)
	for name, tt := range map[string]struct {
		pid  int
		at   uint64
		into []byte
		want error
	}{
		"nowhere": {os.Getpid(), 8, large[:8], unix.EFAULT},
		"nobody":  {4194305, 8, large[:8], unix.ESRCH},
	} {
		if n, err := h.read(tt.pid, tt.into, tt.at); n != 0 || !errors.Is(err, tt.want) {
			t.Errorf("%s: %d bytes, %v, want %v", name, n, err, tt.want)
		}
	}
	if err := h.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.read(os.Getpid(), large[:8], markAt()); err == nil {
		t.Error("a helper that was killed answers")
	}
	check()
	for range 20000 { // among them the runtime of the helper needs all of its system calls
		if _, err := h.read(os.Getpid(), large, markAt()&^0xfff); err != nil && !errors.Is(err, unix.EFAULT) {
			t.Fatal(err)
		}
	}
	confined(t, h.command.Process.Pid)
	if h.notePeak(); h.peak < 1<<20 || h.peak > 40<<20 {
		t.Errorf("a helper has %d bytes", h.peak)
	}
	if err := h.command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := h.read(os.Getpid(), large[:8], markAt()); !errors.Is(err, ErrServer) {
		t.Errorf("of a helper that does not answer: %v, want %v", err, ErrServer)
	}
	if _, err := h.read(os.Getpid(), large[:8], markAt()); !errors.Is(err, ErrServer) || h.command != nil {
		t.Errorf("asked again for what a helper was lost for: %v", err)
	}
}

// confined fails the test unless a process may not gain rights and has a filter of system calls (proc(5)) on each of
// its threads.
func confined(t *testing.T, pid int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		for _, line := range []string{"NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
			if !strings.Contains(string(text), line) {
				t.Errorf("%s lacks %q", file, line)
			}
		}
	}
}

func TestOwnsHost(t *testing.T) {
	testenv.Need(t, testenv.Root)
	if !ownsHost(own()) {
		t.Error("root's process is not trusted")
	}
	for name, as := range map[string]*syscall.SysProcAttr{
		"nobody": {Credential: &syscall.Credential{Uid: 65534, Gid: 65534}},
		"root of its own namespace": {
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 65534, Size: 1}},
		},
	} {
		sleeper := exec.CommandContext(t.Context(), "sleep", "60")
		sleeper.SysProcAttr = as
		if err := sleeper.Start(); err != nil {
			t.Fatal(err)
		}
		if ownsHost(fmt.Sprintf("/proc/%d", sleeper.Process.Pid)) {
			t.Errorf("%s is trusted", name)
		}
	}
}
