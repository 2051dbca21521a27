package asprof

import (
	"context"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What a profile may cost the JVM that is profiled.
const (
	minThroughput = 0.98        // with the profiler, of that without, all CPUs busy
	maxPeerGap    = 0.02        // between our sessions and async-profiler used by hand: no more than their noise
	maxStart      = time.Second // from attaching to the first sample, on an idle machine
)

// rate is the JVM's throughput over a while.
func (b *busyJVM) rate(tb testing.TB, d time.Duration) float64 {
	tb.Helper()
	t0, n0 := b.done(tb)
	time.Sleep(d)
	t1, n1 := b.done(tb)
	return float64(n1-n0) / float64(t1-t0)
}

// BenchmarkProfiledThroughput compares the throughput of a JVM whose threads keep all CPUs busy with a profiler and without, in turns
// of half a second: each turn with one is held against the mean of the turns before and after it. The profilers are a session with
// the defaults, and the same settings given to async-profiler by jcmd, as a person would.
func BenchmarkProfiledThroughput(bench *testing.B) {
	const turn, pairs = 500 * time.Millisecond, 14
	b := startJVM(bench, nil)
	_, first := sample(bench, b.inspect(bench), defaults(bench))
	by := &byHand{b: b, library: first.library} // the one that is mapped: a second copy of it would be another's cost
	time.Sleep(3 * time.Second)                 // until it is compiled
	kinds := []struct {
		unit  string
		start func(testing.TB) (stop func())
	}{
		{"x-throughput", func(tb testing.TB) func() { return session(tb, b, defaults(tb)) }},
		{"x-by-hand", by.start},
	}
	for bench.Loop() {
		ratios := make([][]float64, len(kinds))
		before := b.rate(bench, turn)
		for range pairs {
			for i, k := range kinds {
				stop := k.start(bench)
				with := b.rate(bench, turn)
				stop()
				after := b.rate(bench, turn)
				ratios[i] = append(ratios[i], 2*with/(before+after))
				before = after
			}
		}
		for i, k := range kinds {
			bench.ReportMetric(median(ratios[i]), k.unit)
		}
		if m := median(ratios[0]); m < minThroughput {
			bench.Errorf("%.3f of the throughput without a profiler, less than %v", m, minThroughput)
		}
		if d := median(ratios[0]) - median(ratios[1]); d < -maxPeerGap {
			bench.Errorf("%.3f less than with async-profiler by hand", -d)
		}
	}
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return (list[len(list)/2] + list[(len(list)-1)/2]) / 2
}

func session(tb testing.TB, b *busyJVM, o Options) (stop func()) {
	tb.Helper()
	s, err := Start(context.Background(), b.inspect(tb), o)
	must(tb, err)
	return func() {
		f, err := s.Stop(context.Background())
		must(tb, err)
		f.Close()
	}
}

// byHand drives async-profiler with the JDK's own jcmd.
type byHand struct {
	b       *busyJVM
	library string
}

func (h *byHand) start(tb testing.TB) (end func()) {
	o := defaults(tb)
	dir, err := classes()
	must(tb, err)
	h.command(tb, o.start("cpu", dir+"/hand.jfr", dir+"/hand.log"))
	return func() { h.command(tb, stop) }
}

func (h *byHand) command(tb testing.TB, options string) {
	tb.Helper()
	out, err := exec.Command("jcmd", strconv.Itoa(h.b.Process.Pid), "JVMTI.agent_load", h.library, strconv.Quote(options)).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "return code: 0") {
		tb.Fatalf("jcmd: %v: %s", err, out)
	}
}

// BenchmarkStart is the time from attaching to a JVM that idles until the profiler runs: with the library to be loaded, and later.
func BenchmarkStart(bench *testing.B) {
	for bench.Loop() {
		bench.StopTimer()
		b := startThreads(bench, 0, nil)
		o := defaults(bench)
		bench.StartTimer()
		began := time.Now()
		stopFirst := session(bench, b, o)
		first := time.Since(began)
		stopFirst()
		began = time.Now()
		session(bench, b, o)()
		again := time.Since(began)
		bench.ReportMetric(float64(first.Microseconds())/1e3, "ms-first")
		bench.ReportMetric(float64(again.Microseconds())/1e3, "ms-later-start-and-stop")
		if first > maxStart {
			bench.Errorf("%v to the first sample, more than %v", first, maxStart)
		}
	}
}
