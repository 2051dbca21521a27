// Package clock waits.
package clock

import (
	"context"
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
