package ebpf

import (
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/testenv"
)

// The windows of a benchmark, with the programs and without in turns. A window has thousands of connections; the median of the pairs
// leaves out those that something else on the machine disturbed.
const (
	benchPairs  = 12
	benchWindow = 300 * time.Millisecond
)

// BenchmarkOverhead is where the Overhead of the collectors comes from: the throughput of a load with the programs over that without,
// and the CPU time that perfdoctor itself takes for a sample, of which there is one a second. The default set is every collector of
// this package that needs no --deep.
func BenchmarkOverhead(b *testing.B) {
	testenv.Need(b, testenv.Root, testenv.BPF)
	for _, load := range []struct {
		name  string
		start func(testing.TB) *benchLoad
	}{
		{"connections", shortConnections},
		{"switches", contextSwitches},
		{"idle", idleHost},
	} {
		for _, names := range [][]string{{connectionsName}, {bindsName}, {softirqName}, nil} {
			name := "default"
			if names != nil {
				name = names[0]
			}
			b.Run(load.name+"/"+name, func(b *testing.B) {
				l := load.start(b)
				l.env.Target.Kind = host.KindHost // all there is, in all namespaces: what costs most
				for b.Loop() {
					l.compare(b, names)
				}
			})
		}
	}
}

// A benchLoad is what the programs slow down.
type benchLoad struct {
	env   collect.Env
	units func() float64 // done so far; nil where the load does nothing
}

// compare runs the windows and reports medians.
func (l *benchLoad) compare(b *testing.B, names []string) {
	b.Helper()
	var ratios, rates, samples, programs []float64
	for range benchPairs {
		without := l.rate()
		srcs := openAll(b, l.env, names)
		programs = append(programs, l.measured(b, srcs))
		with := l.rate()
		cpu := ownCPU(b, func() { sampleAll(b, srcs) })
		for _, s := range srcs {
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
		without = (without + l.rate()) / 2
		ratios, rates, samples = append(ratios, with/without), append(rates, without), append(samples, cpu.Seconds())
	}
	if l.units != nil {
		b.ReportMetric(median(ratios), "throughput-ratio")
		b.ReportMetric(median(rates), "units/s")
	}
	b.ReportMetric(100*median(samples), "%-cpu-sampling")
	b.ReportMetric(100*median(programs), "%-cpu-programs")
}

// rate gives the units a second in a window.
func (l *benchLoad) rate() float64 {
	if l.units == nil {
		return 1
	}
	began, before := time.Now(), l.units()
	time.Sleep(benchWindow)
	return (l.units() - before) / time.Since(began).Seconds()
}

// measured waits for the interval in which the kernel measures the programs, and gives the CPUs that they took. The next interval is
// not measured, as most are not.
func (l *benchLoad) measured(b *testing.B, srcs []collect.Source) float64 {
	b.Helper()
	time.Sleep(measuredAtLeast + 50*time.Millisecond)
	rec := sampleAll(b, srcs)
	used := 0.0
	for _, s := range rec.Counter(metric.BPFSeconds) {
		if m := total(rec, metric.BPFMeasured, "program", s.Label("program")); m > 0 {
			used += s.Points[len(s.Points)-1].Value / m
		}
	}
	return used
}

// openAll opens the named collectors, or all that can be opened without --deep.
func openAll(b *testing.B, env collect.Env, names []string) []collect.Source {
	b.Helper()
	var srcs []collect.Source
	for _, c := range Collectors(&Loader{}, Options{LeaveJVMs: true}) {
		if names != nil && !slices.Contains(names, c.Name) {
			continue
		}
		src, err := c.Open(b.Context(), env)
		var cannot *collect.UnavailableError
		if names == nil && errors.As(err, &cannot) {
			continue
		}
		if err != nil {
			b.Fatal(err)
		}
		srcs = append(srcs, src)
	}
	return srcs
}

func sampleAll(b *testing.B, srcs []collect.Source) *recording.Recording {
	b.Helper()
	builder := recording.NewBuilder()
	for _, s := range srcs {
		a := builder.Appender()
		if err := s.Sample(b.Context(), a); err != nil {
			b.Fatal(err)
		}
		a.Commit()
	}
	return builder.Done(recording.Meta{})
}

// ownCPU is the CPU time of the calling thread in f.
func ownCPU(b *testing.B, f func()) time.Duration {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_THREAD, &before)
	f()
	if err = errors.Join(err, unix.Getrusage(unix.RUSAGE_THREAD, &after)); err != nil {
		b.Fatal(err)
	}
	return time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
}

func median(row []float64) float64 {
	s := slices.Sorted(slices.Values(row))
	return s[len(s)/2]
}

// shortConnections are both ends of connections of one request each, on loopback, as fast as one child process goes.
func shortConnections(t testing.TB) *benchLoad {
	h := newHost(t)
	if err := h.Sysctl("net.ipv4.tcp_tw_reuse", "1"); err != nil {
		t.Fatal(err)
	}
	// What is in TIME_WAIT is forgotten at once: no port is searched for long, however many connections there were.
	if err := h.Sysctl("net.ipv4.tcp_max_tw_buckets", "1"); err != nil {
		t.Fatal(err)
	}
	const addr = "127.0.0.1:9000"
	if _, err := h.StartServer(addr, lab.ServeOptions{Duration: 5 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	_, err := h.StartClient(addr, lab.ClientOptions{Concurrency: 4, Requests: 1, CloseFirst: true, Duration: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(benchWindow) // until it is at its rate
	return &benchLoad{env: inHost(t, h), units: func() float64 {
		var n float64
		if err := h.Do(func() error { n = netCounter(t, "thread-self/net/snmp", "Tcp:", "ActiveOpens"); return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}}
}

// contextSwitches are two threads that wake each other: two switches a round.
func contextSwitches(t testing.TB) *benchLoad {
	var there, back [2]int
	if err := errors.Join(unix.Pipe(there[:]), unix.Pipe(back[:])); err != nil {
		t.Fatal(err)
	}
	var rounds atomic.Int64
	done := make(chan struct{}, 2)
	pass := func(from, to int, count *atomic.Int64) {
		runtime.LockOSThread() // so that it is the kernel that switches
		defer func() { done <- struct{}{} }()
		var b [1]byte
		for {
			if n, err := unix.Read(from, b[:]); n != 1 || err != nil {
				return
			}
			if count != nil {
				count.Add(2)
			}
			if _, err := unix.Write(to, b[:]); err != nil {
				return
			}
		}
	}
	go pass(there[0], back[1], nil)
	go pass(back[0], there[1], &rounds)
	if _, err := unix.Write(there[1], []byte{0}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = unix.Close(there[1]), unix.Close(back[1]) // the next write fails, or the read has its end
		<-done
		<-done
		_, _ = unix.Close(there[0]), unix.Close(back[0])
	})
	h := newHost(t)
	return &benchLoad{env: inHost(t, h), units: func() float64 { return float64(rounds.Load()) }}
}

func idleHost(t testing.TB) *benchLoad { return &benchLoad{env: inHost(t, newHost(t))} }
