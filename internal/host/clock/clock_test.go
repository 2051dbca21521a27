package clock

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestSleep(t *testing.T) {
	const short = 10 * time.Millisecond
	began := time.Now()
	if err := Sleep(t.Context(), short); err != nil || time.Since(began) < short {
		t.Errorf("%v after %v, want nil after %v or more", err, time.Since(began), short)
	}
	for _, d := range []time.Duration{time.Hour, 0, -1} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Sleep(ctx, d); !errors.Is(err, context.Canceled) {
			t.Errorf("%v with an ended context: %v", d, err)
		}
	}
	if err := Sleep(t.Context(), 0); err != nil {
		t.Errorf("no time at all: %v", err)
	}
}

func TestWithin(t *testing.T) {
	failed := errors.New("failed")
	if n, err := Within(time.Hour, func() (int, error) { return 7, failed }); n != 7 || !errors.Is(err, failed) {
		t.Errorf("%d, %v; want 7 and its error", n, err)
	}
	const short = 10 * time.Millisecond
	never := func() (int, error) { <-t.Context().Done(); return 7, nil }
	if n, err := Within(short, never); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("what does not end: %d, %v", n, err)
	}
}
