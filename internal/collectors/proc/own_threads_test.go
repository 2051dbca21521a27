package proc

import (
	"sync/atomic"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/host"
)

// TestOtherThreads runs threads of this process. They must not count as the host's load.
func TestOtherThreads(t *testing.T) {
	var stop atomic.Bool
	t.Cleanup(func() { stop.Store(true) })
	for range 3 {
		go func() {
			for !stop.Load() {
			}
		}()
	}
	for range 1000 { // the first of them may not have started yet
		if otherThreads(host.Local()) > 0 {
			return
		}
	}
	t.Error("three busy threads of this process were not seen")
}

// TestOtherThreadsElsewhere: a saved tree does not contain this process.
func TestOtherThreadsElsewhere(t *testing.T) {
	if n := otherThreads(&host.Host{Proc: t.TempDir()}); n != 0 {
		t.Errorf("%d threads in an empty tree", n)
	}
}
