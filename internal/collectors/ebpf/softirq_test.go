package ebpf

import (
	"context"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

const softirqName = "bpf-softirq"

// softirqCount is the second source: the kernel's count of a vector, on all CPUs.
func softirqCount(t *testing.T, vector string) float64 {
	t.Helper()
	b, err := os.ReadFile("/proc/softirqs")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if fields[0] != vector+":" {
			continue
		}
		sum := 0.0
		for _, f := range fields[1:] {
			n, err := strconv.ParseFloat(f, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		return sum
	}
	t.Fatalf("/proc/softirqs has no %s", vector)
	return 0
}

// openSoftirqs opens the collector with its own limit for what is busy.
func openSoftirqs(t *testing.T, limit float64) *opened {
	t.Helper()
	o := openNamed(t, softirqName, collect.Env{Host: host.Local(), Target: host.Target{Kind: host.KindHost}})
	s := o.src.(*softirq)
	s.turns.mu.Lock()
	defer s.turns.mu.Unlock()
	s.times.limit = limit
	if !s.turns.attached {
		t.Fatal("the first turn has ended before it could be kept")
	}
	return o
}

// TestSoftirqsInTurns: programs that are attached for a part of the time tell the same time as programs attached for
// all of it. This does not run in a guest, where attached code is slow at first: the guest's CPU translates the kernel
// anew when it changes its own code.
func TestSoftirqsInTurns(t *testing.T) {
	always, turns := openSoftirqs(t, math.Inf(1)), openSoftirqs(t, 0)
	h := newHost(t)
	addr := listen(t, h, "127.0.0.1:0", lab.ServeOptions{})
	window := 4*turnEvery + turnEvery/2
	ctx, stop := context.WithTimeout(t.Context(), window)
	defer stop()
	for ctx.Err() == nil {
		connect(t, h, addr, lab.ClientOptions{Count: 997, Concurrency: 2, KeepAlive: true, CloseFirst: true})
		turns.sample()
	}
	all, part := always.done(), turns.done()
	timed := func(rec *recording.Recording) (count, seconds float64) {
		return total(rec, metric.SoftirqsTimed, "vector", "NET_RX"), total(rec, metric.SoftirqSeconds, "vector",
			"NET_RX")
	}
	count, want := timed(all)
	some, got := timed(part)
	// If a softirq is timed in turns, its time includes the last of the programs that are always attached, because it
	// runs before.
	last := total(all, metric.BPFSeconds, "program", bpf.SoftirqProgSoftirqOut) / total(all, metric.BPFRuns, "program",
		bpf.SoftirqProgSoftirqOut)
	t.Logf("%v of %v softirqs NET_RX timed: %.4f s, truly %.4f s; %.0f ns of each are the other program's", some, count,
		got, want, 1e9*last)
	got -= count * last
	// Five turns, each with the time for attach and detach.
	if share := some / count; share < 0.04 || share > 0.2 {
		t.Errorf("%.0f %% of the softirqs were timed", 100*share)
	}
	// A softirq of 0.6 µs, the shortest there is, takes up to a third longer while two sets of programs and the meter
	// are attached, and what takes a virtual CPU away in one of the five turns counts fivefold. What is not scaled is
	// a twentieth, and what is twice is double.
	if got < 0.7*want || got > 1.6*want {
		t.Errorf("%.4f s in NET_RX, truly %.4f s", got, want)
	}
}

// TestSoftirqTurns: the programs are attached again and again, and their cost covers all their runs.
func TestSoftirqTurns(t *testing.T) {
	began := time.Now()
	o := openSoftirqs(t, 0)
	h := newHost(t)
	addr := listen(t, h, "127.0.0.1:0", lab.ServeOptions{})
	softirqs := o.src.(*softirq)
	turns, times := &softirqs.turns, &softirqs.times
	timed, seen := uint64(0), uint64(0) // until the turn that was seen last
	for deadline := began.Add(20 * turnEvery); seen < 3 && time.Now().Before(deadline); {
		connect(t, h, addr, lab.ClientOptions{Count: 211, Concurrency: 2, KeepAlive: true, CloseFirst: true})
		o.sample()
		turns.mu.Lock()
		sum := uint64(0)
		for _, n := range times.timedByCPU() {
			sum += n
		}
		if times.number > seen && sum > timed {
			seen, timed = times.number, sum
		}
		turns.mu.Unlock()
	}
	if seen < 3 {
		t.Fatalf("softirqs were timed in %d turns after the first", seen)
	}
	rec := o.done()
	for _, program := range []string{bpf.SoftirqProgSoftirqIn, bpf.SoftirqProgSoftirqOut} {
		runs, spent := total(rec, metric.BPFRuns, "program", program), total(rec, metric.BPFSeconds, "program", program)
		if sum := total(rec, metric.SoftirqsTimed); runs != sum {
			t.Errorf("%s: its cost is given of %v runs, of %v", program, runs, sum)
		}
		if of := total(rec, metric.BPFMeasured, "program", program); spent <= 0 || of < 2*turnEvery.Seconds() ||
			of > time.Since(began).Seconds() {
			t.Errorf("%s: %v s of %v s", program, spent, of)
		}
	}
}

// TestSoftirqTime: untimed softirqs count as long as timed ones, and nothing is counted twice.
func TestSoftirqTime(t *testing.T) {
	var v softirqTime
	v.add(bpf.SoftirqSpent{Count: 10, Ns: 1000}, 5000, false) // the kernel's count is since it booted
	for _, step := range []struct {
		count, ns, ran uint64
		missed         bool
		want           float64
	}{
		{110, 21_000, 5101, false, 21_000},                     // one more has begun: it is not missing
		{110, 21_000, 6101, true, 21_000 + 1000*200},           // none was timed: as long as the last
		{210, 61_000, 7101, true, 61_000 + 1000*200 + 900*400}, // of the last hundred
	} {
		v.add(bpf.SoftirqSpent{Count: step.count, Ns: step.ns}, step.ran, step.missed)
		if math.Abs(v.ns-step.want) > 1 {
			t.Errorf("%v ns, want %v", v.ns, step.want)
		}
	}
	var unknown softirqTime
	unknown.add(bpf.SoftirqSpent{}, 100, false)
	unknown.add(bpf.SoftirqSpent{}, 103, true)
	if unknown.ns != 0 || unknown.untimed != 3 {
		t.Errorf("no softirq was timed, and three took %v ns", unknown.ns)
	}
	unknown.add(bpf.SoftirqSpent{Count: 2, Ns: 20}, 105, false)
	if unknown.ns != 50 || unknown.untimed != 0 {
		t.Errorf("%v ns, want 50", unknown.ns)
	}
}

// TestSoftirqs compares counts with the kernel's own, and time with that of the ticks.
func TestSoftirqs(t *testing.T) {
	o := openSoftirqs(t, math.Inf(1))
	h := newHost(t)
	addr := listen(t, h, "127.0.0.1:0", lab.ServeOptions{})
	read := func() (outer, inner, outer2 float64) {
		outer = softirqCount(t, "NET_RX")
		b := recording.NewBuilder()
		a := b.Appender()
		if err := o.src.Sample(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		a.Commit()
		return outer, total(b.Done(recording.Meta{}), metric.SoftirqsTimed, "vector", "NET_RX"),
			softirqCount(t, "NET_RX")
	}
	lo1, n1, hi1 := read()
	began := time.Now()
	connect(t, h, addr, lab.ClientOptions{Count: 5003, Concurrency: 2, KeepAlive: true, CloseFirst: true})
	took := time.Since(began)
	lo2, n2, hi2 := read()
	// Others on this machine have softirqs, too. So the kernel's counts just before and just after must enclose ours.
	// The kernel counts when one begins (kernel/softirq.c, handle_softirqs), we when it ends: on each CPU one may be
	// under way.
	under := float64(runtime.NumCPU())
	if got := n2 - n1; got < lo2-hi1-under || got > hi2-lo1+under || got < 5003 {
		t.Errorf("%v NET_RX softirqs, /proc/softirqs has %v to %v", got, lo2-hi1, hi2-lo1)
	}
	rec := o.done()
	seconds := total(rec, metric.SoftirqSeconds)
	t.Logf("%v softirqs NET_RX of 5003 requests; %.1f ms in softirqs, %.1f ms in hardware interrupts, in %v", n2-n1,
		seconds*1e3,
		total(rec, metric.HardirqSeconds)*1e3, took)
	if seconds <= 0 || total(rec, metric.SoftirqSeconds, "vector", "NET_RX") <= 0 ||
		total(rec, metric.HardirqRuns) == 0 {
		t.Error("no time in interrupts")
	}
	for _, s := range rec.Counter(metric.SoftirqSeconds) {
		if v := s.Points[len(s.Points)-1].Value; v > 2*took.Seconds()+1 {
			t.Errorf("CPU %s %s: %v s", s.Label("cpu"), s.Label("vector"), v)
		}
	}
}

// TestSoftirqDurations: each timed softirq is in one bucket, and the buckets bound their time. Counting goes on between
// two readings. So the buckets have no less than was timed before they were read, and no more than was afterwards.
func TestSoftirqDurations(t *testing.T) {
	o := openSoftirqs(t, math.Inf(1))
	h := newHost(t)
	addr := listen(t, h, "127.0.0.1:0", lab.ServeOptions{})
	connect(t, h, addr, lab.ClientOptions{Count: 997, Concurrency: 2, KeepAlive: true, CloseFirst: true})
	read := func() *recording.Recording {
		b := recording.NewBuilder()
		a := b.Appender()
		if err := o.src.Sample(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		a.Commit()
		return b.Done(recording.Meta{})
	}
	before, after := read(), read()
	under := float64(runtime.NumCPU()) // softirqs under way, which one of the two tables has already
	for _, vector := range []string{"NET_RX", "TIMER"} {
		n := total(before, metric.SoftirqDurations, "vector", vector)
		lo, hi := total(before, metric.SoftirqsTimed, "vector", vector)-under, total(after, metric.SoftirqsTimed,
			"vector", vector)+under
		if n < lo || n > hi || n == 0 {
			t.Errorf("%s: %v in the buckets, %v to %v were timed", vector, n, lo, hi)
		}
		most, unbounded := 0.0, false
		for _, s := range after.Counter(metric.SoftirqDurations, "vector", vector) {
			bound, err := strconv.ParseFloat(s.Label("at_most"), 64)
			if err != nil {
				t.Fatal(err)
			}
			unbounded = unbounded || math.IsInf(bound, 1)
			most += bound * s.Points[0].Value
		}
		if spent := total(before, metric.SoftirqTimedSeconds, "vector", vector); spent <= 0 || spent > most &&
			!unbounded {
			t.Errorf("%s: %v s, by the buckets at most %v s", vector, spent, most)
		}
	}
}
