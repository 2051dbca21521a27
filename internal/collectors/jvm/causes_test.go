package jvm

import (
	"fmt"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func TestCauseOf(t *testing.T) {
	const gc = "System.gc()"
	for i, tc := range []struct {
		before, now moment
		kind        string
		n, all      int64
		want        string
	}{
		{moment{}, moment{last: gc}, "full", 1, 1, gc},
		{moment{}, moment{last: noGC}, "young", 1, 1, ""},
		{moment{}, moment{last: "A"}, "young", 2, 2, ""},
		{moment{}, moment{last: "A"}, "full", 1, 2, ""},
		{moment{}, moment{last: gc}, "full", 1, 3, gc},           // the last of them
		{moment{cause: gc}, moment{last: "A"}, "full", 1, 3, gc}, // the first of them
		{moment{cause: gc}, moment{last: "A"}, "young", 2, 3, ""},
		{moment{cause: gc}, moment{last: gc}, "full", 2, 2, ""},
		{moment{cause: "A"}, moment{cause: "A", last: noGC}, "concurrent", 1, 1, "A"}, // a cycle, at one of its pauses
		{moment{cause: "A"}, moment{cause: "B", last: noGC}, "young", 1, 1, ""},
		{moment{cause: "A"}, moment{last: "B"}, "young", 1, 1, "B"},
		{moment{}, moment{cause: "A", last: gc}, "young", 1, 1, ""},
	} {
		if got := causeOf(tc.before, tc.now, tc.kind, tc.n, tc.all); got != tc.want {
			t.Errorf("%d: %q, want %q", i, got, tc.want)
		}
	}
}

// TestOperations: the last collections are in the JVM's own log, with their causes.
func TestOperations(t *testing.T) {
	for gc, want := range map[string]string{
		"Serial": "GenCollectFull", "Parallel": "ParallelGCSystemGC",
		"G1": "G1CollectFull",
	} {
		t.Run(gc, func(t *testing.T) {
			c := startJava(t, "-XX:+Use"+gc+"GC", "-Xmx64m")
			fmt.Fprint(c.in, "c")
			c.expect(t, "done")
			src, b := open(t, c.pid, 1), recording.NewBuilder()
			src.(*answerSource).window = time.Hour
			sample(t, src, b)
			asked := 0.0
			for _, s := range b.Done(recording.Meta{}).Gauge(metric.JVMOperations) {
				if s.Label("operation") == want || s.Label("cause") == "System.gc()" {
					asked += s.Last()
				}
			}
			if asked != 7 {
				t.Errorf("%v of 7 collections are in the log", asked)
			}
		})
	}
}

// TestCauses: every collection that the program asks for is counted, with its cause, in every collector.
func TestCauses(t *testing.T) {
	for _, gc := range []string{"Serial", "Parallel", "G1"} {
		t.Run(gc, func(t *testing.T) {
			c := startJava(t, "-XX:+Use"+gc+"GC", "-Xmx64m")
			src, b := open(t, c.pid, 0), recording.NewBuilder()
			sample(t, src, b)
			const calls = 6
			for range calls {
				time.Sleep(4 * lookPeriod)
				fmt.Fprint(c.in, "c") // seven collections, closer than they can be told apart
				c.expect(t, "done")
			}
			fmt.Fprint(c.in, "1") // and one
			c.expect(t, "done")
			time.Sleep(20 * lookPeriod)
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
