package collect

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

func TestRunFirst(t *testing.T) {
	testenv.Need(t, testenv.Root)
	own := niceOf(t)
	runFirst()
	t.Cleanup(RunAsOthers)
	want := own // somebody chose it
	if own == 0 {
		want = niceness
	}
	for _, tid := range ownThreads() {
		if left, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err == nil && 20-left != want {
			t.Errorf("thread %d: niceness %d, want %d", tid, 20-left, want)
		}
	}
	RunAsOthers()
	if got := niceOf(t); got != own {
		t.Errorf("afterwards: niceness %d, want %d", got, own)
	}
}

// niceOf is the niceness of this thread.
func niceOf(t *testing.T) int {
	t.Helper()
	left, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	return 20 - left
}
