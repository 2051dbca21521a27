package door

import (
	"errors"
	"testing"
	"time"
)

// TestPatient: a request that a process holds up is not repeated until the process has let go. Others are.
func TestPatient(t *testing.T) {
	lets, gone := make(chan struct{}), make(chan struct{})
	if n, err := patient("/proc/1", func() (int, error) { <-lets; defer close(gone); return 7, nil }); n != 0 ||
		!errors.Is(err, ErrHeld) {
		t.Errorf("%d, %v; want %v", n, err, ErrHeld)
	}
	answers := func() (int, error) { return 7, nil }
	if _, err := patient("/proc/1", answers); !errors.Is(err, ErrHeld) {
		t.Errorf("asked again: %v, want %v", err, ErrHeld)
	}
	if n, err := patient("/proc/2", answers); n != 7 || err != nil {
		t.Errorf("of another process: %d, %v", n, err)
	}
	close(lets)
	<-gone
	for range 1000 {
		if n, err := patient("/proc/1", answers); n == 7 && err == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("it has let go and is not asked")
}
