package evidence

import (
	"math"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// closed is a program that four clients keep busy: 100 requests a second, 40 ms each, and 2 ms of the host's two CPUs.
func closed() *served {
	exact := func(n float64) keynumber.Estimate { return keynumber.Estimate{Mean: n, Low: n, High: n, DF: 20} }
	return &served{
		requests: exact(100), inProgress: exact(4), time: exact(0.04), cpu: exact(0.001),
		known: map[string]bool{
			check.Throughput: true, "in_progress": true, check.RequestTime: true, check.CPUPerRequest: true,
		},
		connections: 4, cpus: 2, busy: 0.2, used: 0.1,
	}
}

// TestMore: four requests in progress are answered in what is left of their time, up to the capacity of the CPUs.
func TestMore(t *testing.T) {
	for _, tt := range []struct {
		name          string
		left          float64
		saved         float64
		expect, least float64
		next          string
	}{
		{"a quarter of the time is left", 0.25, 0, 400, 4 / (0.01 + 3*0.001), ""},
		{"the CPUs are full before", 0.05, 0, 1000, 4 / (0.002 + 3*0.001), "CPU"},
		{"half of the CPU time goes away, too", 0.04, 0.001, 2000, 4 / (0.0016 + 3*0.0005), "CPU"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			part := Part{Share: 1 - tt.left, Low: 1 - tt.left, High: 1 - tt.left, Alone: true}
			got := closed().more(part, tt.saved, lawLittle)
			if len(got) != 1 {
				t.Fatalf("%d promises", len(got))
			}
			p := got[0]
			err := keynumber.StudentQuantile(0.95, 20) * math.Sqrt2 * keynumber.SpreadOfLoad
			if math.Abs(p.Expect-tt.expect) > 1e-6 || p.Next != tt.next ||
				math.Abs(p.To[0]-tt.least/(1+err)) > 1e-6 || math.Abs(p.To[1]-tt.expect*(1+err)) > 1e-6 {
				t.Errorf("%+v, want %v, from %v, next %q", p, tt.expect, tt.least/(1+err), tt.next)
			}
		})
	}
}

// TestNoPromise: nothing is promised if the waiters are not known, or the gain is within the error.
func TestNoPromise(t *testing.T) {
	s := closed()
	if got := s.promise(check.RequestTime, s.time, 0.1, [3]float64{0.9, 0.95, 1}, lawLittle); got != nil {
		t.Errorf("a gain of one in twenty: %+v", got)
	}
	s.known[check.RequestTime] = false
	if got := s.promise(check.RequestTime, s.time, 0.1, [3]float64{0.1, 0.1, 0.1}, lawLittle); got != nil {
		t.Errorf("without a time: %+v", got)
	}
	if !s.saturated() {
		t.Error("four of four connections wait")
	}
	s.connections = 5
	if s.saturated() {
		t.Error("one of five connections asks for nothing")
	}
}

// TestAtLeast: the removed wait bounds throughput only from below, and the time of a request only from above.
func TestAtLeast(t *testing.T) {
	s, wait := closed(), Part{Share: 0.75, Low: 0.75, High: 0.75}
	got := s.more(wait, 0, lawLittle)
	if len(got) != 1 || !math.IsInf(got[0].To[1], 1) || got[0].Expect != 400 {
		t.Errorf("%+v", got)
	}
	// each of the four is 40 ms in progress; three times 2 ms of that, on two CPUs, is for the others
	d := s.shorter(wait)
	if d[0] != 0 || d[1] != 0.25 || math.Abs(d[2]-0.25-0.003/0.04) > 1e-9 {
		t.Errorf("%v of a request's time is left", d)
	}
	if d := s.shorter(Part{Share: 1, Low: 1, High: 1}); d[1] != 0.001/0.04 {
		t.Errorf("%v of a request's time is left, which is less than its CPU time", d)
	}
}

// TestJob: if a program listens on no port, threads with work count as its requests in progress. Idle pools do not.
func TestJob(t *testing.T) {
	nobody := recording.NewBuilder().Done(recording.Meta{})
	l := &ledger.Ledger{Window: 10, Passes: 100, Pools: []*ledger.Pool{
		{Workers: 40, Parts: map[ledger.Part]float64{ledger.User: 10, ledger.Lock: 29}},
		{Workers: 80, Parts: map[ledger.Part]float64{ledger.User: 1}},
	}}
	s := closed()
	s.ofJob(nobody, l)
	if !s.job || s.inProgress.Mean != 3.9 || !s.saturated() {
		t.Errorf("%v in progress, %v of the time in use", s.inProgress.Mean, s.occupied)
	}
	l.Pools[0].Parts[ledger.Lock] = 20
	if s.ofJob(nobody, l); s.saturated() {
		t.Error("a quarter of the time its threads have nothing to do")
	}
}
