package threadstates

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// locksOfLinux618 is what Linux 6.18 shows of a flock with a chain of waiters, a record lock, a lock of an open file,
// one whose process has ended, and a lease.
const locksOfLinux618 = `1: FLOCK  ADVISORY  WRITE 20021 fe:00:9979182 0 EOF
1: -> FLOCK  ADVISORY  WRITE 20221 fe:00:9979182 0 EOF
1:  -> FLOCK  ADVISORY  WRITE 20342 fe:00:9979182 0 EOF
2: POSIX  ADVISORY  WRITE 11199 00:2d:77 100 199
2: -> POSIX  ADVISORY  WRITE 20221 00:2d:77 0 EOF
3: OFDLCK ADVISORY  READ  -1 fe:00:88 0 EOF
3: -> OFDLCK ADVISORY  WRITE -1 fe:00:88 0 EOF
4: FLOCK  ADVISORY  WRITE 0 fe:00:99 0 EOF
4: -> FLOCK  ADVISORY  WRITE 500 fe:00:99 0 EOF
5: LEASE  ACTIVE    READ  600 fe:00:101 0 EOF
`

func TestParseLocks(t *testing.T) {
	want := []fileLock{
		{holder: 20021, inode: 9979182, waiters: []int{20221, 20342}},
		{holder: 11199, inode: 77, waiters: []int{20221}},
		{holder: -1, inode: 88, waiters: []int{-1}},
		{holder: 0, inode: 99, waiters: []int{500}},
		{holder: 600, inode: 101},
	}
	got, err := parseLocks([]byte(locksOfLinux618))
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(fileLock{})); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, text := range []string{
		"1: FLOCK  ADVISORY  WRITE 20021 fe:00:9979182 0\n", "1: FLOCK ADVISORY WRITE x fe:00:99 0 EOF\n",
		"1: FLOCK ADVISORY WRITE 1 fe:00:x 0 EOF\n", "1: -> FLOCK ADVISORY WRITE 1 fe:00:99 0 EOF\n",
	} {
		if got, err := parseLocks([]byte(text)); err == nil {
			t.Errorf("%q gives %v", text, got)
		}
	}
}

// TestLockOf finds a lock by the waiting process, by the file if it waits for several, and only by the file for an open
// file's lock.
func TestLockOf(t *testing.T) {
	locks, err := parseLocks([]byte(locksOfLinux618))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		pid    int
		inode  uint64
		holder int
		ok     bool
	}{
		{20342, 0, 20021, true},
		{20221, 77, 11199, true},
		{20221, 9979182, 20021, true},
		{20221, 5, 0, false},
		{700, 88, -1, true},
		{700, 5, 0, false},
		{500, 0, 0, true},
	} {
		if l, ok := lockOf(locks, x.pid, x.inode); ok != x.ok || l.holder != x.holder {
			t.Errorf("process %d, file %d: held by %d, %v, want %d, %v", x.pid, x.inode, l.holder, ok, x.holder, x.ok)
		}
	}
}

func FuzzParseLocks(f *testing.F) {
	f.Add([]byte(locksOfLinux618))
	f.Fuzz(func(t *testing.T, text []byte) {
		locks, err := parseLocks(text)
		if err != nil && locks != nil {
			t.Error("an error and locks")
		}
		if len(locks) > (len(text)+1)/16 { // the shortest line; the last one may lack its end
			t.Errorf("%d locks of %d bytes", len(locks), len(text))
		}
		_, _ = lockOf(locks, -1, 0)
	})
}
