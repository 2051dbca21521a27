package ebpf

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// The windows of a benchmark alternate with and without the programs. A window has thousands of connections. Other work
// on the machine changes more from one window to the next than the programs cost. So there are many pairs, each a
// window with the programs beside two without. The result is the median of the pairs and the interval in which it lies
// (19 times of 20).
const (
	benchPairs  = 24
	benchWindow = 500 * time.Millisecond
)

// BenchmarkOverhead gives the Overhead of the collectors: the throughput of a load with the programs over that without,
// and the CPU time that perfdoctor itself takes: for a sample, which comes once a second, and once, to begin and at the
// end. The default set is every collector of this package that needs no --deep.
func BenchmarkOverhead(b *testing.B) {
	testenv.Need(b, testenv.Root, testenv.BPF)
	for _, load := range []struct {
		name  string
		start func(testing.TB) *benchLoad
	}{
		{"nginx", shortConnectionsOfNginx},
		{"connections", shortConnections},
		{"switches", func(t testing.TB) *benchLoad { return contextSwitches(t, 0, 0) }},
		{"wakeups", func(t testing.TB) *benchLoad { return contextSwitches(t, 0, 1) }},
		{"idle", idleHost},
	} {
		for _, names := range [][]string{{connectionsName}, {bindsName}, {softirqName}, {cpuProfileName}, nil} {
			name := "default"
			if names != nil {
				name = names[0]
			}
			b.Run(load.name+"/"+name, func(b *testing.B) {
				l := load.start(b)
				l.env.Target.Kind = host.KindHost // everything, in all namespaces: what costs most
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
	units func() float64 // done so far; nil if the load does nothing
}

// compare runs the windows and reports medians.
func (l *benchLoad) compare(b *testing.B, names []string) {
	b.Helper()
	rows := map[string][]float64{}
	note := func(what string, v float64) { rows[what] = append(rows[what], v) }
	without := l.rate(benchWindow)
	for range benchPairs {
		var srcs openSet
		note("ms-to-open", 1e3*ownCPU(b, func() { srcs = openAll(b, l.env, names) }).Seconds())
		measured := l.rate(measuredFor) // most of the time the kernel does not measure: the next window
		note("%-cpu-programs", 100*srcs.used(b))
		with := l.rate(turnEvery) // as long as a window of the programs attached in turns
		note("%-cpu-sampling", 100*ownCPU(b, func() { sampleAll(b, srcs.ticking) }).Seconds())
		note("ms-at-end", 1e3*ownCPU(b, func() { sampleAll(b, srcs.atEnd) }).Seconds())
		srcs.close(b)
		after := l.rate(benchWindow)
		note("ratio", 2*with/(without+after))
		note("measured", 2*measured/(without+after))
		note("units/s", without)
		without = after
	}
	if l.units != nil {
		low, middle, high := interval(rows["ratio"])
		b.ReportMetric(low, "throughput-low")
		b.ReportMetric(middle, "throughput-ratio")
		b.ReportMetric(high, "throughput-high")
		b.ReportMetric(median(rows["measured"]), "throughput-measured")
		b.ReportMetric(median(rows["units/s"]), "units/s")
	}
	for _, what := range []string{"%-cpu-programs", "%-cpu-sampling", "ms-to-open", "ms-at-end"} {
		b.ReportMetric(median(rows[what]), what)
	}
}

// rate returns the units a second in a window.
func (l *benchLoad) rate(window time.Duration) float64 {
	if l.units == nil {
		time.Sleep(window)
		return 1
	}
	began, before := time.Now(), l.units()
	time.Sleep(window)
	return (l.units() - before) / time.Since(began).Seconds()
}

// openSet are open collectors, by pace.
type openSet struct{ ticking, atEnd []collect.Source }

func (o openSet) close(b *testing.B) {
	b.Helper()
	for _, s := range slices.Concat(o.ticking, o.atEnd) {
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// used returns the CPUs that the programs took in the interval in which the kernel measured them.
func (o openSet) used(b *testing.B) float64 {
	b.Helper()
	rec := sampleAll(b, o.ticking)
	used := 0.0
	for _, s := range rec.Counter(metric.BPFSeconds) {
		if m := total(rec, metric.BPFMeasured, "program", s.Label("program")); m > 0 {
			used += s.Points[len(s.Points)-1].Value / m
		}
	}
	return used
}

// openAll opens the named collectors, or all that can be opened without --deep.
func openAll(b *testing.B, env collect.Env, names []string) (out openSet) {
	b.Helper()
	l := &Loader{}
	defer l.Keep()() // as in a diagnosis, which opens them in parallel, so that the kernel's types are read once
	for _, c := range Collectors(l, Options{LeaveJVMs: true}) {
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
		if c.Pace == collect.AtEnd {
			out.atEnd = append(out.atEnd, src)
		} else {
			out.ticking = append(out.ticking, src)
		}
	}
	return out
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
	var before, after unix.Timespec // not Rusage, which a thread that does not sleep has only at the next tick
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &before)
	f()
	if err = errors.Join(err, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &after)); err != nil {
		b.Fatal(err)
	}
	return time.Duration(after.Nano() - before.Nano())
}

func median(row []float64) float64 {
	s := slices.Sorted(slices.Values(row))
	return s[len(s)/2]
}

// interval returns the median and where it lies with a certainty of 95 %: between the values whose rank, of n tosses of
// a coin, is 1.96 standard deviations from the middle.
func interval(row []float64) (low, middle, high float64) {
	s := slices.Sorted(slices.Values(row))
	n := len(s)
	rank := max(int((float64(n)-1.96*math.Sqrt(float64(n)))/2), 1)
	return s[rank-1], median(s), s[n-rank]
}

// nginxConf is of a server in one process, for a command that ends with its lab.
const nginxConf = `daemon off; master_process off; pid DIR/pid; error_log DIR/error.log;
events { worker_connections 512; }
http {
	access_log off;
	client_body_temp_path DIR; proxy_temp_path DIR; fastcgi_temp_path DIR; uwsgi_temp_path DIR; scgi_temp_path DIR;
	server { listen 127.0.0.1:9000; location / { return 200 "a small answer\n"; } }
}`

// shortConnectionsOfNginx measures what the programs cost a real service: nginx, with a connection for each request of
// wrk.
func shortConnectionsOfNginx(t testing.TB) *benchLoad {
	testenv.Need(t, testenv.Tool("nginx"), testenv.Tool("wrk"))
	h, dir := timeWaitlessHost(t), t.TempDir()
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, []byte(strings.ReplaceAll(nginxConf, "DIR", dir)), 0o644); err != nil {
		t.Fatal(err)
	}
	server, err := h.Start(exec.Command("nginx", "-p", dir, "-c", conf, "-e", filepath.Join(dir, "error.log")))
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(benchWindow) // until it listens
	client, err := h.Start(exec.Command("wrk", "-t1", "-c32", "-d600s", "-H", "Connection: close",
		"http://127.0.0.1:9000/"))
	if err != nil {
		t.Fatal(err)
	}
	pin(t, server.Pid, 0)
	pin(t, client.Pid, 1)
	return loadOfConnections(t, h)
}

// shortConnections runs both ends of connections of one request each, on loopback, in programs that do nothing else.
func shortConnections(t testing.TB) *benchLoad {
	h := timeWaitlessHost(t)
	const addr = "127.0.0.1:9000"
	server, err := h.StartServer(addr, lab.ServeOptions{Duration: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	client, err := h.StartClient(addr, lab.ClientOptions{
		Concurrency: 4, Requests: 1, CloseFirst: true,
		Duration: 5 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	pin(t, server.LoadPid(), 0)
	pin(t, client.LoadPid(), 1)
	return loadOfConnections(t, h)
}

// timeWaitlessHost drops TIME_WAIT sockets at once. So the search for a port is never long, however many connections
// there were.
func timeWaitlessHost(t testing.TB) *lab.Host {
	t.Helper()
	h := newHost(t)
	if err := errors.Join(h.Sysctl("net.ipv4.tcp_tw_reuse", "1"), h.Sysctl("net.ipv4.tcp_max_tw_buckets",
		"1")); err != nil {
		t.Fatal(err)
	}
	return h
}

// loadOfConnections is the work of h, counted in connections, as soon as it has reached its rate.
func loadOfConnections(t testing.TB, h *lab.Host) *benchLoad {
	t.Helper()
	time.Sleep(benchWindow)
	return &benchLoad{env: inHost(t, h), units: func() float64 {
		var n float64
		if err := h.Do(
			func() error { n = netCounter(t, "thread-self/net/snmp", "Tcp:", "ActiveOpens"); return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}}
}

// pin keeps the threads of a process on a CPU, also those that it will start. Where the kernel puts them changes what
// they do in a second by more than any program does.
func pin(t testing.TB, pid, cpu int) {
	t.Helper()
	threads, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		if err = errors.Join(err, pinThread(tid, cpu)); err != nil {
			t.Fatal(err)
		}
	}
}

// pinThread keeps one thread on a CPU, modulo those there are.
func pinThread(tid, cpu int) error {
	var set unix.CPUSet
	set.Set(cpu % runtime.NumCPU())
	return unix.SchedSetaffinity(tid, &set)
}

// contextSwitches runs two threads that wake each other, each on a CPU: two switches a round. Between CPUs each wakes
// the other's CPU by an interrupt.
func contextSwitches(t testing.TB, cpu, other int) *benchLoad {
	var there, back [2]int
	if err := errors.Join(unix.Pipe(there[:]), unix.Pipe(back[:])); err != nil {
		t.Fatal(err)
	}
	var rounds atomic.Int64
	done := make(chan struct{}, 2)
	pass := func(from, to, cpu int, count *atomic.Int64) {
		// so that it is the kernel that switches; the thread ends with the function, as it is pinned
		runtime.LockOSThread()
		if err := pinThread(0, cpu); err != nil {
			t.Error(err)
		}
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
	go pass(there[0], back[1], cpu, nil)
	go pass(back[0], there[1], other, &rounds)
	if _, err := unix.Write(there[1], []byte{0}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = unix.Close(there[1]), unix.Close(back[1]) // the next write fails, or the read meets its end
		<-done
		<-done
		_, _ = unix.Close(there[0]), unix.Close(back[0])
	})
	h := newHost(t)
	return &benchLoad{env: inHost(t, h), units: func() float64 { return float64(rounds.Load()) }}
}

func idleHost(t testing.TB) *benchLoad { return &benchLoad{env: inHost(t, newHost(t))} }
