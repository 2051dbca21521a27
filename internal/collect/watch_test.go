package collect_test

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
)

// TestWatch: passes go on until the end, which may come during one. An error or a panic ends them earlier.
func TestWatch(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		pass func(context.Context, int) (idle bool, err error)
		pace collect.Passes
		most int // passes
		want func(error) bool
	}{
		"to the end": {
			pass: func(context.Context, int) (bool, error) { return false, nil },
			most: 1000, want: func(err error) bool { return err == nil },
		},
		"idle": {
			pass: func(context.Context, int) (bool, error) { return true, nil },
			most: 1, want: func(err error) bool { return err == nil },
		},
		"cut short": {
			pass: func(ctx context.Context, _ int) (bool, error) { <-ctx.Done(); return false, ctx.Err() },
			most: 1, want: func(err error) bool { return err == nil },
		},
		"dear": { // the longest rest of a millisecond would make it 5 passes and most of a CPU
			pass: func(context.Context, int) (bool, error) {
				for began := collect.ThreadCPU(); collect.ThreadCPU()-began < 20*time.Millisecond; {
					continue
				}
				return false, nil
			},
			pace: collect.Passes{Share: 0.01, Least: time.Millisecond, Longest: time.Millisecond},
			most: 1, want: func(err error) bool { return err == nil },
		},
		"an error": {
			pass: func(_ context.Context, n int) (bool, error) {
				if n == 2 {
					return false, broken
				}
				return false, nil
			},
			most: 2, want: func(err error) bool { return errors.Is(err, broken) },
		},
		"a panic": {
			pass: func(context.Context, int) (bool, error) { panic("no") },
			most: 1, want: firewall.IsFault,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 0
			opened, end := context.WithCancel(t.Context())
			w := collect.Env{}.Watch(opened, "passes", cmp.Or(tc.pace, collect.Passes{
				Share: 0.5, Least: time.Millisecond, Longest: time.Minute,
			}), func(ctx context.Context) (bool, error) {
				n++
				return tc.pass(ctx, n)
			})
			end() // the collector is open
			time.Sleep(100 * time.Millisecond)
			err := w.Stop()
			if !tc.want(err) || n == 0 || n > tc.most || tc.most > 1 && n < 2 {
				t.Errorf("%d passes, %v", n, err)
			}
			if again := w.Stop(); !errors.Is(again, err) {
				t.Errorf("then %v", again)
			}
		})
	}
}
