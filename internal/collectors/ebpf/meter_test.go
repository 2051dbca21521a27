package ebpf

import (
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/kernel/sockdiag"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// TestMeasuredInTurns: the kernel measures only a part of a window, also for a collector that is sampled only at its
// end, because each run of any program on the host takes longer meanwhile.
func TestMeasuredInTurns(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.BPF)
	env := collect.Env{Host: host.Local(), Target: host.Target{Kind: host.KindHost}, Duration: 2 * time.Second}
	for _, name := range []string{cpuProfileName, softirqName} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := openNamed(t, name, env)
			for end := time.Now().Add(measuredFor + time.Second); time.Now().Before(end); {
				_ = end // busy: an idle CPU has no samples
			}
			rec := o.done()
			series := rec.Counter(metric.BPFMeasured)
			if len(series) == 0 {
				t.Fatal("nothing was measured")
			}
			for _, s := range series {
				measured := time.Duration(s.Points[len(s.Points)-1].Value * float64(time.Second))
				least, most := measuredFor, measuredFor+measuredFor/2
				if p := s.Label("program"); p == bpf.SoftirqProgSoftirqIn || p == bpf.SoftirqProgSoftirqOut {
					least, most = least+time.Second, most+time.Second // it stands for all runs
				}
				if measured < least || measured > most {
					t.Errorf("program %s was measured for %v of %v", s.Label("program"), measured,
						measuredFor+time.Second)
				}
			}
			if total(rec, metric.BPFRuns) == 0 || total(rec, metric.BPFSeconds) == 0 {
				t.Error("no run was measured")
			}
		})
	}
}

// TestMeasuredIterators: an iterator is measured whenever it runs, because it may never run in its turn.
func TestMeasuredIterators(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.BPF)
	s, err := OpenSockets(t.Context(), &Loader{}, ownEnv(t), 0)
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	time.Sleep(measuredFor + measuredFor/4)
	b := recording.NewBuilder()
	const passes = 3
	for range passes {
		check(t, s.Each(t.Context(), func(*sockdiag.Socket) error { return nil }))
		a := b.Appender()
		check(t, s.AppendCost(a))
		a.Commit()
	}
	for _, series := range b.Done(recording.Meta{}).Counter(metric.BPFRuns, "program", "sockets") {
		before := 0.0
		for _, p := range series.Points {
			if p.Value <= before {
				t.Errorf("%v runs after a pass, %v before it: each pass has one at least, of its end", p.Value, before)
			}
			before = p.Value
		}
		if len(series.Points) == passes {
			return
		}
	}
	t.Error("the passes were not recorded")
}
