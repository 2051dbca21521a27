package evidence

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// TestLoadOfNaps: ticks see 0.1 s of work in a window of 2 s, but the CPU idled for only 1.2 s of it.
func TestLoadOfNaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := recording.NewBuilder()
		for n := range 2 {
			a := b.Appender()
			for mode, seconds := range map[string]float64{"user": 0.05, "system": 0.05, "idle": 1, "iowait": 0.2} {
				a.Counter(metric.CPUSeconds, seconds*float64(n), "0", mode)
			}
			a.Commit()
			time.Sleep(2 * time.Second)
		}
		_, all, err := CPUTimes(&check.Pass{Recording: b.Done(recording.Meta{})})
		if err != nil {
			t.Fatal(err)
		}
		if got := all.Load().Number(); math.Abs(got-0.4) > 1e-6 {
			t.Errorf("busy for %v of the time, want 0.4", got)
		}
		if got := all.OfBusy("system", "system").Number(); math.Abs(got-0.5) > 1e-6 {
			t.Errorf("the kernel has %v of the busy time, want 0.5", got)
		}
	})
}
