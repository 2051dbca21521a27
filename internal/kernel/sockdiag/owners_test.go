package sockdiag

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

const manyFDs = 1 << 20

// ownSockets makes n sockets and returns their inodes.
func ownSockets(t testing.TB, n int) map[uint64]struct{} {
	t.Helper()
	inodes := map[uint64]struct{}{}
	for range n {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		check(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		var stat unix.Stat_t
		check(t, unix.Fstat(fd, &stat))
		inodes[stat.Ino] = struct{}{}
	}
	return inodes
}

func TestOwners(t *testing.T) {
	wanted := ownSockets(t, 101)
	want := map[uint64]int{}
	for inode := range wanted {
		want[inode] = os.Getpid()
	}
	const noPID = 1 << 30 // above PID_MAX_LIMIT, 1<<22
	got, err := Owners(t.Context(), "/proc", []int{noPID, os.Getpid()}, wanted, manyFDs)
	check(t, err)
	if diff := cmp.Diff(want, got.PID); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Gone != 1 || got.Denied != 0 || got.Truncated || got.FDs < 101 {
		t.Errorf("gone %d, denied %d, truncated %v, %d descriptors", got.Gone, got.Denied, got.Truncated, got.FDs)
	}
}

// 1009 descriptors need more than one buffer of getdents.
func TestOwnersStopsWhenComplete(t *testing.T) {
	wanted := ownSockets(t, 1009)
	got, err := Owners(t.Context(), "/proc", []int{os.Getpid(), 1}, wanted, manyFDs)
	check(t, err)
	if len(got.PID) != 1009 || got.Truncated {
		t.Errorf("%d owners, truncated %v; want 1009", len(got.PID), got.Truncated)
	}
	none, err := Owners(t.Context(), "/proc", []int{os.Getpid()}, nil, manyFDs)
	check(t, err)
	if none.FDs != 0 || none.Truncated {
		t.Errorf("nothing wanted, %d descriptors read, truncated %v", none.FDs, none.Truncated)
	}
}

func TestOwnersBudgets(t *testing.T) {
	wanted := ownSockets(t, 11)
	wanted[0] = struct{}{} // never found, so the search does not end by itself
	got, err := Owners(t.Context(), "/proc", []int{os.Getpid()}, wanted, 5)
	check(t, err)
	if got.FDs != 5 || !got.Truncated {
		t.Errorf("%d descriptors, truncated %v; want 5, true", got.FDs, got.Truncated)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err = Owners(ctx, "/proc", []int{os.Getpid()}, wanted, manyFDs)
	check(t, err)
	if got.FDs != 0 || !got.Truncated {
		t.Errorf("%d descriptors after the deadline, truncated %v; want 0, true", got.FDs, got.Truncated)
	}
}

// TestOwnersDenied runs itself again as the user nobody, who may not read the descriptors of root's processes.
func TestOwnersDenied(t *testing.T) {
	if pid, err := strconv.Atoi(os.Getenv("SOCKDIAG_TEST_PID")); err == nil {
		got, err := Owners(t.Context(), "/proc", []int{pid}, map[uint64]struct{}{1: {}}, manyFDs)
		check(t, err)
		if got.Denied != 1 || got.Gone != 0 || got.FDs != 0 {
			t.Errorf("denied %d, gone %d, %d descriptors; want 1, 0, 0", got.Denied, got.Gone, got.FDs)
		}
		return
	}
	testenv.Need(t, testenv.Root)
	dir, err := os.MkdirTemp("/tmp", "sockdiag") //nolint:usetesting // nobody cannot enter t.TempDir
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	check(t, os.Chmod(dir, 0o755))
	self := filepath.Join(dir, "test")
	check(t, os.WriteFile(self, readFile(t, "/proc/self/exe"), 0o755))
	cmd := exec.Command(self, "-test.run=^TestOwnersDenied$", "-test.count=1")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "SOCKDIAG_TEST_PID="+strconv.Itoa(os.Getpid()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

func TestOwnersForeignTree(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "42", "fd")
	check(t, os.MkdirAll(dir, 0o755))
	for name, link := range map[string]string{
		"0": "/dev/null", "1": "socket:[", "2": "socket:[12x]", "3": "socket:[12]",
		"4": "socket:[99999999999999999999]",
		"5": "/very/long/" + string(make0(200)), "x": "socket:[13]",
	} {
		check(t, os.Symlink(link, filepath.Join(dir, name)))
	}
	got, err := Owners(t.Context(), root, []int{42}, map[uint64]struct{}{12: {}, 13: {}}, manyFDs)
	check(t, err)
	if diff := cmp.Diff(map[uint64]int{12: 42}, got.PID); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	check(t, os.RemoveAll(dir))
	check(t, os.WriteFile(dir, nil, 0o644))
	if _, err := Owners(t.Context(), root, []int{42}, map[uint64]struct{}{12: {}}, manyFDs); err == nil {
		t.Error("fd is a file: no error")
	}
}

func make0(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = '0'
	}
	return b
}

// BenchmarkOwners reads 1009 sockets' owners; divide by that for the cost of a descriptor.
func BenchmarkOwners(b *testing.B) {
	wanted := ownSockets(b, 1009)
	b.ReportAllocs()
	for b.Loop() {
		got, err := Owners(b.Context(), "/proc", []int{os.Getpid()}, wanted, manyFDs)
		check(b, err)
		if len(got.PID) != len(wanted) {
			b.Fatalf("%d owners, want %d", len(got.PID), len(wanted))
		}
	}
}
