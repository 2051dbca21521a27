package jvm

import (
	"fmt"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

func TestCauseOf(t *testing.T) {
	for i, tc := range []struct {
		before, now moment
		n           int64
		pair        bool
		want        string
	}{
		{now: moment{last: "System.gc()"}, n: 1, want: "System.gc()"},
		{now: moment{last: noGC}, n: 1},
		{now: moment{last: "A"}, n: 2},
		{now: moment{last: "A"}, n: 2, pair: true},
		{now: moment{last: "A", parallel: true}, n: 2, pair: true, want: "A"},
		{before: moment{cause: "A"}, now: moment{cause: "A", last: noGC}, n: 1, want: "A"}, // a concurrent cycle, at its pauses
		{before: moment{cause: "A"}, now: moment{cause: "B", last: noGC}, n: 1},
		{before: moment{cause: "A"}, now: moment{last: "B"}, n: 1, want: "B"},
		{now: moment{cause: "A", last: noGC}, n: 1},
	} {
		if got := causeOf(tc.before, tc.now, tc.n, tc.pair); got != tc.want {
			t.Errorf("%d: %q, want %q", i, got, tc.want)
		}
	}
}

// TestCauses: what the program collects itself is counted, all of it and with its cause, in every collector.
func TestCauses(t *testing.T) {
	for _, gc := range []string{"Serial", "Parallel", "G1"} {
		t.Run(gc, func(t *testing.T) {
			c := startJava(t, "-XX:+Use"+gc+"GC", "-Xmx64m")
			src, b := open(t, c.pid, 0), recording.NewBuilder()
			sample(t, src, b)
			const calls = 6
			for range calls {
				time.Sleep(2 * lookPeriod)
				fmt.Fprint(c.in, "c") // seven collections, closer than they can be told apart
				c.expect(t, "done")
			}
			fmt.Fprint(c.in, "1") // and one
			c.expect(t, "done")
			time.Sleep(5 * lookPeriod)
			sample(t, src, b)
			got := map[string]float64{}
			rec := b.Done(recording.Meta{})
			for _, s := range rec.Counter(metric.JVMGCsByCause, "kind", "full") {
				got[s.Label("cause")] = s.Points[len(s.Points)-1].Value
			}
			rose := 0.0
			for _, s := range rec.Counter(metric.JVMGCs, "kind", "full") {
				rose, _ = s.Increase()
			}
			if got["System.gc()"]+got[metric.UnknownCause] != rose || rose != 7*calls+1 || got["System.gc()"] < 1 {
				t.Errorf("%v of %v collections", got, rose)
			}
		})
	}
}
