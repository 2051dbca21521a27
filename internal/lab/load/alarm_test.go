package load

import (
	"context"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lateness is the median of how much later than requested a wait ends.
func lateness(wait func(time.Duration)) time.Duration {
	var late []time.Duration
	for range 100 {
		const asked = 1300 * time.Microsecond // no multiple of a millisecond
		begin := time.Now()
		wait(asked)
		late = append(late, time.Since(begin)-asked)
	}
	slices.Sort(late)
	return late[len(late)/2]
}

// TestAlarm: a wait ends as exactly as the kernel's own sleep, which is the control for a busy machine. The median of
// the runtime's timers is 0.5 ms later.
func TestAlarm(t *testing.T) {
	clock, err := newAlarm(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer clock.close()
	var got, control time.Duration
	for range 5 {
		got = lateness(func(d time.Duration) {
			if err := clock.wait(time.Now().Add(d)); err != nil {
				t.Fatal(err)
			}
		})
		control = lateness(func(d time.Duration) {
			ts := unix.NsecToTimespec(int64(d))
			_ = unix.Nanosleep(&ts, nil) // shortened by a signal it only makes the control stricter
		})
		if got < control+250*time.Microsecond {
			return
		}
	}
	t.Errorf("%v late, the kernel's own sleep %v", got, control)
}

func TestAlarmEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	clock, err := newAlarm(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer clock.close()
	begin := time.Now()
	if err := clock.wait(begin.Add(time.Minute)); err != nil || time.Since(begin) > 10*time.Second {
		t.Errorf("returned after %v, error %v", time.Since(begin), err)
	}
}
