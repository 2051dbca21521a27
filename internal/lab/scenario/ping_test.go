package scenario

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect/vantage"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// TestPingsEndWithThePhase: a phase whose diagnosis fails leaves no ping behind, which would measure the next phase's
// load.
func TestPingsEndWithThePhase(t *testing.T) {
	var running atomic.Int64
	began := make(chan struct{}, 2)
	failed := errors.New("no diagnosis")
	o := Options{
		Diagnose: func(context.Context, int, time.Duration, time.Duration, bool) (*recording.Recording, error) {
			<-began
			<-began
			return nil, failed
		},
		Ping: func(ctx context.Context, _ int, _ vantage.Plan) (*recording.Recording, error) {
			running.Add(1)
			defer running.Add(-1)
			began <- struct{}{}
			<-ctx.Done()
			time.Sleep(50 * time.Millisecond) // a socket that is being closed
			return nil, ctx.Err()
		},
	}
	b := &built{
		site: &Site{Diagnose: Diagnose{
			Target: TargetHost, Ping: "127.0.0.1:1", Vantages: map[string]string{"here": "a", "neighbour": "a"},
		}},
		processes: map[string]*process{"a": {Process: &Process{}, other: &lab.Process{Pid: 1}}},
	}
	if err := b.observe(t.Context(), &Phase{}, o); !errors.Is(err, failed) {
		t.Fatalf("the phase says %v, want %v", err, failed)
	}
	if n := running.Load(); n != 0 {
		t.Errorf("%d pings go on after the phase", n)
	}
}
