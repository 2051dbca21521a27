package exporter

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// collector makes a collector from its sample.
func collector(name string, sample func(context.Context, *recording.Appender) error,
	provides ...metric.Metric,
) collect.Collector {
	return collect.Collector{
		Name: name, Provides: provides,
		Open: func(context.Context, collect.Env) (collect.Source, error) { return collect.SourceFunc(sample), nil },
	}
}

// changing has so many destinations and control groups in each sample, and others after each minute.
func changing(many int) collect.Collector {
	n := 0
	return collector("changing", func(_ context.Context, a *recording.Appender) error {
		n++
		for i := range many {
			a.Gauge(metric.DestinationSockets, float64(i+1), "10.0.0.1", fmt.Sprintf("10.0.%d.%d:443", (n/4+i)%256,
				i%256), "ESTABLISHED")
			a.Counter(metric.CgroupCPU, float64(n), fmt.Sprintf("/pod%d", (n/4+i)%2000), "")
		}
		return nil
	}, metric.DestinationSockets, metric.CgroupCPU)
}

// always finds one problem with each destination.
func always() *check.Check {
	return &check.Check{
		Name: "always", Stage: check.Path, Needs: []metric.Metric{metric.DestinationSockets},
		Run: func(p *check.Pass) error {
			for _, s := range p.Gauge(metric.DestinationSockets) {
				p.Report(check.Finding{
					Subject:  check.Subject{Kind: "destination", ID: s.Label("destination")},
					Severity: check.Warning,
				})
			}
			return nil
		},
	}
}

func options(list ...collect.Collector) Options {
	return Options{
		Host: host.Local(), Version: "test", Log: slog.New(slog.DiscardHandler), Checks: []*check.Check{always()},
		Collectors:       func() []collect.Collector { return list },
		TargetCollectors: func() []collect.Collector { return nil },
		Window:           15 * time.Second, Interval: 5 * time.Second, TargetCPU: 0.1, MaxFindings: 20, MaxSeries: 50,
	}
}

func handler(t *testing.T, e *Exporter) http.Handler {
	t.Helper()
	return e.Handler()
}

func get(t *testing.T, h http.Handler, path string) (status int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	b, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(b)
}

// After three days of windows of things that come and go, memory and open files are what they were after the first
// hour.
func TestThreeDays(t *testing.T) {
	if testing.Short() {
		t.Skip("4,320 windows take a while")
	}
	synctest.Test(t, func(t *testing.T) {
		const hour = 60 // windows of a minute
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		windows, heap, files := 0, uint64(0), 0
		o := options(changing(25))
		o.MaxSeries, o.Window, o.Interval = 10, time.Minute, 20*time.Second
		var h http.Handler
		o.Listeners = []func(Window){func(Window) {
			windows++
			if windows%hour == 1 {
				get(t, h, metricsPath)
			}
			switch windows {
			case hour:
				heap, files = heapInUse(), openFiles(t)
			case 72 * hour:
				cancel()
			}
		}}
		e := New(o)
		h = handler(t, e)
		if err := e.Run(ctx); err != nil {
			t.Fatal(err)
		}
		// A window holds 0.4 MB. A thousandth of that again would be more than one window.
		if now := heapInUse(); now > heap+1<<20 {
			t.Errorf("heap: %d bytes after an hour, %d after 72", heap, now)
		}
		if now := openFiles(t); now > files {
			t.Errorf("open files: %d after an hour, %d after 72", files, now)
		}
	})
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// A file system that hangs, or anything else that does not return, costs its collector's metrics. Scrapes and windows
// go on.
func TestScrapesGoOnBesideWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		stuck := collector("stuck", func(context.Context, *recording.Appender) error { <-release; return nil },
			metric.DiskReads)
		e := New(options(changing(500), stuck))
		h := handler(t, e)
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		if status, _ := get(t, h, readyPath); status != http.StatusServiceUnavailable {
			t.Errorf("ready before the first window: %d", status)
		}
		for window := range 5 {
			time.Sleep(16 * time.Second)
			began := time.Now()
			status, body := get(t, h, metricsPath)
			if took := time.Since(began); took > 0 || status != http.StatusOK {
				t.Errorf("window %d: the scrape waited for %v, status %d", window, took, status)
			}
			for _, want := range []string{
				`perfdoctor_collector_success{collector="changing",target="host"} 1`,
				`perfdoctor_collector_success{collector="stuck",target="host"} 0`,
				`perfdoctor_window_seconds{target="host"} 15`,
				`perfdoctor_check_assessed{check="always",target="host"} 1`,
			} {
				if !strings.Contains(body, want) {
					t.Errorf("window %d: no %s", window, want)
				}
			}
		}
		if status, _ := get(t, h, readyPath); status != http.StatusOK {
			t.Errorf("ready after five windows: %d", status)
		}
		if _, body := get(t, h, collectorsPath); !strings.Contains(
			body, "stuck: timeout: a sample did not return in time") {
			t.Errorf("collectors: %s", body)
		}
		cancel()
		close(release)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// Findings are bounded. Those beyond the bound are counted.
func TestFindings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var last atomic.Pointer[Window]
		o := options(changing(500))
		o.Listeners = []func(Window){func(w Window) { last.Store(&w); cancel() }}
		e := New(o)
		h := handler(t, e)
		if err := e.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if w := last.Load(); w.Name != HostName || w.End.Sub(w.Begin) != 15*time.Second ||
			len(w.Result.Findings) < 500 {
			t.Errorf("the listener got %s, %v long, with %d findings", w.Name, w.End.Sub(w.Begin),
				len(w.Result.Findings))
		}
		e.snapshot.put(*last.Load(), nil, o)
		_, body := get(t, h, metricsPath)
		if n := strings.Count(body, "\nperfdoctor_finding{"); n != 20 {
			t.Errorf("%d findings are exported, want 20", n)
		}
		want := `perfdoctor_finding{check="always",severity="warning",stage="path",subject="destination 10.0.`
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
		if strings.Contains(body, "perfdoctor_findings_dropped_total 0") {
			t.Error("no dropped finding is counted")
		}
	})
}

// Prometheus' own tool finds no fault with the served page.
func TestPromtool(t *testing.T) {
	testenv.Need(t, testenv.Tool("promtool"))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var body string
		var h http.Handler
		all := collector("all", everyMetric, metric.All()...)
		o := options(all)
		windows := 0
		o.Listeners = []func(Window){func(Window) {
			if windows++; windows == 2 {
				_, body = get(t, h, metricsPath)
				cancel()
			}
		}}
		e := New(o)
		h = handler(t, e)
		if err := e.Run(ctx); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
		cmd.Stdin = strings.NewReader(body)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		for _, name := range []string{
			"perfdoctor_tcp_connect_duration_seconds_bucket",
			"perfdoctor_tcp_memory_pressure_seconds_total",
		} {
			if !strings.Contains(body, "\n"+name) {
				t.Errorf("no %s", name)
			}
		}
	})
}

// everyMetric has a series of each metric.
func everyMetric(_ context.Context, a *recording.Appender) error {
	n := float64(time.Now().UnixMicro() % 1e12)
	for _, m := range metric.All() {
		labels := make([]string, len(m.Describe().Labels))
		for i, name := range m.Describe().Labels {
			labels[i] = "x"
			if name == "level" {
				labels[i] = "0"
			}
			if name == "at_most" {
				labels[i] = "0.001"
			}
		}
		switch m := m.(type) {
		case *metric.Counter:
			a.Counter(m, n, labels...)
		case *metric.Gauge:
			a.Gauge(m, n, labels...)
		case *metric.Info:
			a.Info(m, labels...)
		}
	}
	return nil
}
