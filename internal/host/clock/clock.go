// Package clock waits.
package clock

import (
	"context"
	"fmt"
	"time"
)

// Sleep waits for d, not at all when d is not above zero, and ends with ctx, whose Err it then gives.
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

// Within gives what do gives, or gives up on it after a while: its error then is [context.DeadlineExceeded], and do
// goes on for nobody. The kernel makes who looks at a process wait for that, in a way that ends with the process that
// waits (TASK_KILLABLE), so what was given up ends with this one.
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
