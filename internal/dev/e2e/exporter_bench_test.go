package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/lab"
)

// What the exporter may cost.
const (
	maxCPUOfPeer    = 0.5 // of node_exporter's CPU time for a series
	maxScrape       = 20 * time.Millisecond
	maxExporterRSS  = 60 << 20
	maxExporterCPU  = 0.005
	scrapes         = 200
	observedWindows = 5 // a collector that costs much is left out of some
	exporterWindow  = 15 * time.Second
)

// BenchmarkScrape scrapes the exporter and node_exporter in turn, on a quiet host and on one with 100,000 sockets and
// 500 control groups, and reads what the exporter costs between scrapes.
func BenchmarkScrape(b *testing.B) {
	testenv.Need(b, testenv.Root, testenv.BPF, testenv.Tool("prometheus-node-exporter"))
	b.Run("quiet", func(b *testing.B) { scrapeBoth(b, func(*testing.B, *lab.Lab, *lab.Host) {}) })
	b.Run("crowded", func(b *testing.B) { scrapeBoth(b, crowd) })
}

func scrapeBoth(b *testing.B, prepare func(*testing.B, *lab.Lab, *lab.Host)) {
	program := perfdoctor(b)
	l, err := lab.New("bench")
	must(b, err)
	b.Cleanup(func() { must(b, l.Close()) })
	host, err := l.Host("bench")
	must(b, err)
	prepare(b, l, host)
	ours := observed(b, host, "127.0.0.1:9843", program, "exporter", "--web.listen-address", "127.0.0.1:9843")
	peer := observed(b, host, "127.0.0.1:9844", "prometheus-node-exporter", "--web.listen-address", "127.0.0.1:9844")
	for b.Loop() {
		b.StopTimer()
		time.Sleep(exporterWindow + 5*time.Second) // the first window, with the loading of programs
		before, programs := ours.cpu(b), ours.programs(b)
		time.Sleep(observedWindows * exporterWindow)
		idle := (ours.cpu(b) - before).Seconds() / (observedWindows * exporterWindow).Seconds()
		b.ReportMetric(100*ours.programs(b).since(programs), "%-cpu-bpf")
		b.StartTimer()
		a, p := ours.scrape(b), peer.scrape(b)
		b.ReportMetric(100*idle, "%-cpu")
		b.ReportMetric(float64(ours.rss(b))/(1<<20), "MiB-rss")
		b.ReportMetric(float64(a.p99.Microseconds())/1e3, "ms-p99")
		b.ReportMetric(float64(p.p99.Microseconds())/1e3, "ms-p99-node_exporter")
		b.ReportMetric(float64(a.series), "series")
		b.ReportMetric(a.perSeries()/p.perSeries(), "x-node_exporter-cpu-per-series")
		b.ReportMetric(float64(a.cpu.Microseconds())/scrapes, "µs-cpu/scrape")
		a.limits(b, p, idle, ours.rss(b))
	}
}

// crowd makes 100,000 sockets in the host's namespace, of eight programs, and 500 control groups.
func crowd(b *testing.B, l *lab.Lab, host *lab.Host) {
	b.Helper()
	const (
		pairs = 4
		// fewer than the open files that a program may have by default where the benchmark was written, 20,000
		connections = 50_000 / pairs
	)
	must(b, host.Sysctl("net.ipv4.ip_local_port_range", "10000 65000"))
	for i := range pairs {
		address := fmt.Sprintf("127.0.0.1:%d", 700+i)
		_, err := host.StartServer(address, lab.ServeOptions{HoldOpen: true, Duration: loadTime})
		must(b, err)
		client, err := host.StartClient(address, lab.ClientOptions{
			Count: connections, Concurrency: 8, HoldOpen: true,
			Duration: loadTime,
		})
		must(b, err)
		eventually(b, "connections", startTime, func() bool { return client.Stats().Conns >= connections })
	}
	for i := range 500 {
		_, err := l.Cgroup("crowd", fmt.Sprintf("pod%d", i))
		must(b, err)
	}
}

// accept keeps connections until their other end is closed.
func accept(b testing.TB, listener net.Listener) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		b.Cleanup(func() { _ = c.Close() })
	}
}

// running is a program that serves metrics in a host of the lab.
type running struct {
	pid  int
	url  string
	http *http.Client
}

// observed starts a program in the host and waits until it answers.
func observed(b testing.TB, host *lab.Host, address, program string, args ...string) *running {
	b.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stderr = io.Discard
	p, err := host.Start(cmd)
	must(b, err)
	r := &running{pid: p.Pid, url: "http://" + address + "/metrics"}
	r.http = &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (c net.Conn,
		err error,
	) {
		err = host.Do(func() error { c, err = net.Dial("tcp", address); return err })
		return c, err
	}}}
	eventually(b, program, startTime, func() bool { _, _, err := r.get(); return err == nil })
	return r
}

// get scrapes once, over a connection that stays open.
func (r *running) get() (body []byte, took time.Duration, err error) {
	began := time.Now()
	resp, err := r.http.Get(r.url)
	if err != nil {
		return nil, 0, err
	}
	body, err = io.ReadAll(resp.Body)
	return body, time.Since(began), errors.Join(err, resp.Body.Close())
}

// cpu gives the process's CPU time, of all threads, to the nanosecond.
func (r *running) cpu(b *testing.B) (sum time.Duration) {
	b.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", r.pid))
	must(b, err)
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue // a thread that has ended
		}
		ns, err := strconv.ParseInt(strings.Fields(string(data))[0], 10, 64)
		must(b, err)
		sum += time.Duration(ns)
	}
	return sum
}

func (r *running) rss(b testing.TB) (peak int64) {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.pid))
	must(b, err)
	_, rest, _ := strings.Cut(string(data), "VmHWM:")
	_, err = fmt.Sscanf(rest, "%d kB", &peak)
	must(b, err)
	return peak << 10
}

// programs are the BPF programs that run in what they interrupt: iterators, which run when the exporter reads, are in
// its own time.
type programs map[string]struct{ run, measured float64 }

func (r *running) programs(b *testing.B) programs {
	b.Helper()
	body, _, err := r.get()
	must(b, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	m, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	must(b, err)
	all := scrapedMetrics(m)
	out := programs{}
	for _, name := range all.values("perfdoctor_bpf_program_seconds_total", "program", "") {
		if !slices.Contains([]string{"sockets", "descriptors", "limits"}, name) {
			out[name] = struct{ run, measured float64 }{
				all.value("perfdoctor_bpf_program_seconds_total", "program", name),
				all.value("perfdoctor_bpf_program_measured_seconds_total", "program", name),
			}
		}
	}
	return out
}

// since gives the CPUs that they used, of all CPUs, by the times in which they were measured.
func (p programs) since(before programs) (sum float64) {
	for name, now := range p {
		if then := before[name]; now.measured > then.measured {
			sum += (now.run - then.run) / (now.measured - then.measured)
		}
	}
	return sum
}

// scraping is what many scrapes cost.
type scraping struct {
	cpu    time.Duration
	p99    time.Duration
	series int
}

func (s scraping) perSeries() float64 { return s.cpu.Seconds() / float64(s.series) / scrapes }

func (r *running) scrape(b *testing.B) scraping {
	b.Helper()
	var times []time.Duration
	var out scraping
	before := r.cpu(b)
	for range scrapes {
		body, took, err := r.get()
		must(b, err)
		times = append(times, took)
		out.series = bytes.Count(body, []byte("\n")) - bytes.Count(body, []byte("\n#"))
		time.Sleep(10 * time.Millisecond) // so that a window falls into some
	}
	out.cpu = r.cpu(b) - before
	slices.Sort(times)
	out.p99 = times[len(times)*99/100]
	return out
}

// limits fails the benchmark when the exporter costs more than promised.
func (s scraping) limits(b *testing.B, peer scraping, idle float64, rss int64) {
	b.Helper()
	if ratio := s.perSeries() / peer.perSeries(); ratio > maxCPUOfPeer {
		b.Errorf("%.2f of node_exporter's CPU time for a series, more than %v", ratio, maxCPUOfPeer)
	}
	if s.p99 > maxScrape {
		b.Errorf("p99 of a scrape %v, more than %v", s.p99, maxScrape)
	}
	if rss > maxExporterRSS {
		b.Errorf("%d bytes RSS, more than %d", rss, maxExporterRSS)
	}
	if idle > maxExporterCPU {
		b.Errorf("%.4f CPUs, more than %v", idle, maxExporterCPU)
	}
}
