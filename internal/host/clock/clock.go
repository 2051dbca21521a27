// Package clock waits.
package clock

import (
	"context"
	"fmt"
	"time"
)

// Sleep waits for d, and not at all if d is not above zero. If ctx ends first, Sleep returns its Err.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Within returns the result of do. After limit it gives up with [context.DeadlineExceeded], while do goes on unused.
// The kernel may make a reader of a process wait for that process. Such a wait ends with the reader (TASK_KILLABLE),
// so an abandoned do ends with this process.
func Within[T any](limit time.Duration, do func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		value, err := do()
		done <- answer{value, err}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case a := <-done:
		return a.value, a.err
	case <-timer.C:
		var none T
		return none, fmt.Errorf("no answer within %v: %w", limit, context.DeadlineExceeded)
	}
}
