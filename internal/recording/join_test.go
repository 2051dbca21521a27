package recording

import (
	"bytes"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// samplesOf returns samples.jsonl.
func samplesOf(t *testing.T, r *Recording) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteSamples(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestJoinOfCuts: the parts of a recording, joined again, are the recording, except for what [Recording.Between] cannot
// divide.
func TestJoinOfCuts(t *testing.T) {
	files, err := filepath.Glob("../checks/*/testdata/*/firing*.txtar")
	if err != nil || len(files) < 50 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	points := 0
	for _, file := range files {
		rec, err := Open(file)
		if err != nil {
			t.Fatal(err)
		}
		third := (rec.length() / 3).Truncate(time.Microsecond)
		parts := []Part{
			{0, rec.Between(0, third)},
			{third, rec.Between(third, 2*third)},
			{2 * third, rec.Between(2*third, rec.length()+time.Second)},
		}
		want := divisible(rec)
		got := Join(parts...)
		if d := cmp.Diff(samplesOf(t, want), samplesOf(t, got)); d != "" {
			t.Fatalf("%s: %s", file, d)
		}
		if math.Abs(got.Meta.Duration-rec.Meta.Duration) > 1e-6 || !got.Meta.Started.Equal(rec.Meta.Started) {
			t.Errorf("%s: %v s from %v, want %v s from %v", file, got.Meta.Duration, got.Meta.Started,
				rec.Meta.Duration, rec.Meta.Started)
		}
		points += strings.Count(samplesOf(t, got), "\n")
	}
	if points < 1000 {
		t.Errorf("only %d lines were compared", points)
	}
}

// divisible is the recording without what was read once at its end or is a sum over all of it.
func divisible(r *Recording) *Recording {
	out := &Recording{Meta: r.Meta, series: map[string]*family{}}
	for name, f := range r.series {
		at, once := f.once()
		if f.metric.Describe().OverWindow || once && at > r.length()/2 {
			continue
		}
		out.series[name] = f
	}
	return out
}

// window builds a recording of ten seconds with a sample a second, using fill to append.
func window(t *testing.T, meta Meta, fill func(second int, a *Appender)) *Recording {
	t.Helper()
	b := NewBuilder()
	start := b.start
	var now time.Duration
	b.now = func() time.Time { return start.Add(now) }
	for i := range 11 {
		now = time.Duration(i) * time.Second
		a := b.Appender()
		fill(i, a)
		a.Commit()
	}
	meta.Schema, meta.Duration = SchemaVersion, 10
	return b.Done(meta)
}

func profiled(count int64) *stacks.Profile {
	return &stacks.Profile{
		Event: stacks.CPU, Engine: "x", Duration: 10 * time.Second, Frames: []stacks.Frame{{Name: "main"}},
		Samples: []stacks.Sample{{Thread: -1, Stack: []int{0}, Count: count, Value: count * 1e6}},
	}
}

func TestJoin(t *testing.T) {
	started := time.Date(2026, 11, 22, 3, 12, 0, 0, time.UTC)
	status := func(st Status, samples int, lost ...Loss) Meta {
		return Meta{Started: started, Collectors: []CollectorStatus{{
			Name: "c", Status: st, Reason: "broken", Samples: samples, Lost: lost,
			Metrics: []string{metric.ContextSwitches.Describe().Name},
		}}, Unsupported: []Missing{
			{Metric: metric.SwapFree.Describe().Name, Reason: "first"},
			{Metric: metric.Uptime.Describe().Name},
		}}
	}
	first := window(t, status(StatusOK, 11, Loss{What: "things", Count: 3}), func(i int, a *Appender) {
		a.Counter(metric.ContextSwitches, float64(1000+100*i))
		if i == 10 {
			a.Counter(metric.HostOOMKills, 3)
		}
		if i == 0 {
			a.Gauge(metric.CPUsOnline, 2)
			a.Info(metric.Governor, "0", "powersave", "x")
		}
		if i == 10 {
			a.Gauge(metric.CgroupCPURun, 4, "/a")
			a.Profile(profiled(7))
		}
	})
	second := window(t, status(StatusFailed, 2, Loss{What: "things", Count: 2}), func(i int, a *Appender) {
		a.Counter(metric.ContextSwitches, float64(10*i)) // it was reset
		a.Counter(metric.HostOOMKills, 3)
		if i == 0 {
			a.Gauge(metric.CPUsOnline, 2)
			a.Info(metric.Governor, "0", "performance", "x")
			a.Gauge(metric.Uptime, 1)
		}
		if i == 10 {
			a.Gauge(metric.CgroupCPURun, 1, "/a")
			a.Profile(profiled(4))
		}
	})
	got := Join(Part{0, first}, Part{10*time.Second + 200*time.Millisecond, second})
	// The first reading of a window is the last one of the window before, by a clock read to the millisecond.
	shared := Join(Part{0, first}, Part{10*time.Second + 900*time.Microsecond, second})
	if n := len(shared.Counter(metric.HostOOMKills)[0].Points); n != 11 {
		t.Errorf("%d readings, want one at the joint and ten more", n)
	}

	if n, _ := got.Counter(metric.ContextSwitches)[0].Increase(); n != 1000+0+100 {
		t.Errorf("an increase of %v over a reset, want 1100", n)
	}
	if s := got.Gauge(metric.CPUsOnline)[0]; len(s.Points) != 1 {
		t.Errorf("a fact that stayed stands %d times", len(s.Points))
	}
	if n := len(got.Info(metric.Governor)); n != 2 {
		t.Errorf("a fact that changed has %d answers, want both", n)
	}
	if d := cmp.Diff([]Point{{At: 20*time.Second + 200*time.Millisecond, Value: 5}},
		got.Gauge(metric.CgroupCPURun)[0].Points); d != "" {
		t.Errorf("seconds over both windows: %s", d)
	}
	p, _ := got.Profile(stacks.CPU)
	if p.Total().Count != 11 || p.Duration != 20*time.Second {
		t.Errorf("%d samples in %v, want 11 in 20s", p.Total().Count, p.Duration)
	}
	if got.Meta.Duration != 20.2 || !got.Meta.Started.Equal(started) {
		t.Errorf("%v s from %v", got.Meta.Duration, got.Meta.Started)
	}
	want := []CollectorStatus{{
		Name: "c", Status: StatusFailed, Reason: "broken", Samples: 13,
		Metrics: []string{metric.ContextSwitches.Describe().Name},
		Lost:    []Loss{{What: "things", Count: 3}, {What: "of 2 windows, in which it did not work: broken", Count: 1}},
	}}
	if d := cmp.Diff(want, got.Meta.Collectors); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]Missing{{Metric: metric.SwapFree.Describe().Name, Reason: "first"}},
		got.Meta.Unsupported); d != "" {
		t.Errorf("not measured, though one window has one of them: %s", d)
	}
}

// TestJoinIsStored: the file of a joined recording reads back the same, and its parts have what was summed over a
// window.
func TestJoinIsStored(t *testing.T) {
	one := func(ran float64) *Recording {
		return window(t, Meta{}, func(i int, a *Appender) {
			a.Counter(metric.ContextSwitches, ran*float64(i))
			if i == 10 {
				a.Gauge(metric.CgroupCPURun, ran, "/a")
			}
		})
	}
	// The exporter's next window begins while the last samples of the one before are taken.
	rec := Join(Part{0, one(1)}, Part{9900 * time.Millisecond, one(2)}, Part{20 * time.Second, one(4)}).
		WithIncident(Incident{From: 9.9, To: 30, Check: "cpu-throttled", Subject: "cgroup /a"})
	path := filepath.Join(t.TempDir(), "x.zip")
	if err := rec.Save(path); err != nil {
		t.Fatal(err)
	}
	back, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(samplesOf(t, rec), samplesOf(t, back)); d != "" {
		t.Error(d)
	}
	if n := back.Gauge(metric.CgroupCPURun)[0].Last(); n != 7 {
		t.Errorf("%v s in all windows, want 7", n)
	}
	part := back.AtIncident()
	if n := part.Gauge(metric.CgroupCPURun)[0].Last(); n != 6 || math.Abs(part.Meta.Duration-20.1) > 1e-9 {
		t.Errorf("%v s in the %v s of the incident, want 6 in 20.1", n, part.Meta.Duration)
	}
	meta, err := OpenMeta(path)
	if d := cmp.Diff(back.Meta, meta); err != nil || d != "" {
		t.Errorf("%v, %s", err, d)
	}
	if n := one(1).Between(0, 5*time.Second); n.Recorded(metric.CgroupCPURun) {
		t.Error("a sum over the whole window is taken for that of its half")
	}
}

// TestWithProfiles: a profile taken in the middle of a recording is there at the incident, and is not taken twice.
func TestWithProfiles(t *testing.T) {
	rec := window(t, Meta{Collectors: []CollectorStatus{{Name: "c"}}},
		func(i int, a *Appender) { a.Counter(metric.ContextSwitches, float64(i)) })
	name := metric.CPUProfileSamples.Describe().Name
	prof := window(t, Meta{Collectors: []CollectorStatus{{Name: "jvm-profile", Metrics: []string{name}}}},
		func(i int, a *Appender) {
			if i == 3 {
				a.Profile(profiled(7))
				a.File("jvm.jfr", []byte("x"))
			}
		})
	got := rec.WithProfiles(2*time.Second, prof).WithIncident(Incident{From: 1, To: 9}).AtIncident()
	if p, ok := got.Profile(stacks.CPU); !ok || p.Total().Count != 7 {
		t.Error("the profile is not there")
	}
	if s := got.Gauge(metric.CPUProfileSamples); len(s) != 1 || s[0].Last() != 7 {
		t.Errorf("samples: %+v", s)
	}
	if len(got.Meta.Collectors) != 2 || len(got.raws) != 1 || rec.Recorded(metric.CPUProfileSamples) {
		t.Errorf("collectors %+v, %d files", got.Meta.Collectors, len(got.raws))
	}
}

// TestWithMeta: the words about a recording change only in the copy, and are those that a file would read back.
func TestWithMeta(t *testing.T) {
	rec := window(t, Meta{Collectors: []CollectorStatus{{Name: "a"}}}, func(i int, a *Appender) {
		a.Counter(metric.ContextSwitches, float64(i))
	})
	before := rec.Meta
	m := rec.Meta
	m.EndedEarly, m.Collectors = "no more: \xff", append(m.Collectors, CollectorStatus{Name: "b"})
	got := rec.WithMeta(m)
	if d := cmp.Diff(before, rec.Meta); d != "" {
		t.Errorf("the recording has changed (-before +after):\n%s", d)
	}
	if got.Meta.EndedEarly != "no more: \ufffd" || len(got.Meta.Collectors) != 2 {
		t.Errorf("the copy says %q of collectors %v", got.Meta.EndedEarly, got.Meta.Collectors)
	}
	if d := cmp.Diff(samplesOf(t, rec), samplesOf(t, got)); d != "" {
		t.Error(d)
	}
}
