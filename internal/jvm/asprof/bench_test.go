package asprof

import (
	"context"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What a profile may cost the JVM that is profiled.
const (
	minThroughput = 0.98        // with the profiler, of that without, all CPUs busy
	maxPeerGap    = 0.02        // between our sessions and async-profiler used by hand: no more than their noise
	maxStart      = time.Second // from attaching to the first sample, on an idle machine
)

// A speed is the JVM's work in a turn: for the time that passed, and for the CPU time it had.
type speed struct{ wall, cpu float64 }

func (b *busyJVM) speed(tb testing.TB, d time.Duration) speed {
	tb.Helper()
	t0, n0 := b.done(tb)
	c0 := b.cpuTime(tb)
	time.Sleep(d)
	t1, n1 := b.done(tb)
	c1 := b.cpuTime(tb)
	work := float64(n1 - n0)
	return speed{work / float64(t1-t0), work / float64(c1-c0)}
}

// cpuTime is that of all threads of the JVM in nanoseconds. /proc/PID/stat has it in 10 ms, which is too coarse for a
// turn.
func (b *busyJVM) cpuTime(tb testing.TB) int64 {
	tb.Helper()
	const sched = 2 // CPUCLOCK_SCHED (include/linux/posix-timers_types.h); clock_getcpuclockid(3) makes the same of it
	var ts unix.Timespec
	must(tb, unix.ClockGettime(int32(^b.Process.Pid)<<3|sched, &ts))
	return ts.Nano()
}

// BenchmarkProfiledThroughput compares the throughput of a JVM whose threads keep all CPUs busy with a profiler and
// without, in turns of half a second: each turn with one is held against the mean of the turns before and after it. The
// profilers are a session with the defaults, and the same settings given to async-profiler by jcmd, as a person would.
//
// Work per CPU second decides: with all CPUs busy it is the throughput, since a profiler takes its time from the JVM's
// threads. Work per second is reported beside it; on a virtual machine its neighbours make it scatter by 1 %, as much
// as is to be measured.
func BenchmarkProfiledThroughput(bench *testing.B) {
	const turn, pairs = 500 * time.Millisecond, 14
	b := startJVM(bench, nil)
	_, first := sample(bench, b.inspect(bench), defaults(bench))
	by := &byHand{b: b, library: first.library} // the one that is mapped: a second copy of it would be another's cost
	time.Sleep(3 * time.Second)                 // until it is compiled
	kinds := []struct {
		name  string
		start func(testing.TB) (stop func())
	}{
		{"", func(tb testing.TB) func() { return session(tb, b, defaults(tb)) }},
		{"-by-hand", by.start},
	}
	for bench.Loop() {
		var wall, cpu [2][]float64
		before := b.speed(bench, turn)
		for range pairs {
			for i, k := range kinds {
				stop := k.start(bench)
				with := b.speed(bench, turn)
				stop()
				after := b.speed(bench, turn)
				wall[i] = append(wall[i], 2*with.wall/(before.wall+after.wall))
				cpu[i] = append(cpu[i], 2*with.cpu/(before.cpu+after.cpu))
				before = after
			}
		}
		for i, k := range kinds {
			bench.ReportMetric(median(wall[i]), "x-per-second"+k.name)
			bench.ReportMetric(median(cpu[i]), "x-per-cpu-second"+k.name)
		}
		ours, peer := median(cpu[0]), median(cpu[1])
		if ours < minThroughput {
			bench.Errorf("%.3f of the throughput without a profiler, less than %v", ours, minThroughput)
		}
		if ours < peer-maxPeerGap {
			bench.Errorf("%.3f of the throughput, and %.3f with async-profiler by hand", ours, peer)
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
	out, err := exec.Command("jcmd", strconv.Itoa(h.b.Process.Pid), "JVMTI.agent_load", h.library,
		strconv.Quote(options)).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "return code: 0") {
		tb.Fatalf("jcmd: %v: %s", err, out)
	}
}

// BenchmarkStart is the time from attaching to a JVM that idles until the profiler runs: with the library to be loaded,
// and later.
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
