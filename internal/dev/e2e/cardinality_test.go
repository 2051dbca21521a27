package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
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

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/lab/labtest"
)

// Bounds of the exporter under attack, small enough to reach each of them.
const (
	attackSeries   = 20
	attackTargets  = 3
	attackFindings = 10
	maxExporterRSS = 60 << 20
)

// TestCardinality attacks the exporter with 10,000 destinations and 2,000 control groups that come and go: 2,500 and
// 500 stay for some windows, 5,000 and 1,000 live for less than one, and again as many others stay. Series stay within
// the limits, and what is beyond is counted. Memory stays within its bound, and in the end nothing of the attack is
// left.
func TestCardinality(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root, testenv.Tool("promtool"))
	l := labtest.New(t)
	host := newHost(t, l, "attack")
	a := newAttack(t, l, host)
	exporter := observed(t, host, "127.0.0.1:9843", perfdoctor(t), "exporter", "--web.listen-address", "127.0.0.1:9843",
		"--window", "5s", "--interval", "1s", "--target.cpu", "0.01", "--series.max", strconv.Itoa(attackSeries),
		"--target.max", strconv.Itoa(attackTargets), "--finding.max", strconv.Itoa(attackFindings))

	a.stay(t, exporter, 2500, 500)
	a.hurry(t, exporter, 5000, 1000)
	a.stay(t, exporter, 2500, 500)
	last := a.scrape(t, exporter)
	for _, family := range []string{
		"perfdoctor_tcp_destination_sockets", "perfdoctor_tcp_connects_total", "perfdoctor_tcp_connect_attempts_total",
	} {
		if n := last.value("perfdoctor_series_dropped_total", "family", family); n < attackSeries {
			t.Errorf("%s: %v values were counted as dropped", family, n)
		}
	}
	// of 2,500, the collector tells the largest apart
	if n := last.value("perfdoctor_tcp_destination_smaller_sockets"); n < 2000 {
		t.Errorf("%v sockets are counted as of smaller destinations", n)
	}
	if n := last.value("perfdoctor_targets_dropped_total"); n == 0 {
		t.Error("no control group was counted as dropped")
	}
	t.Logf("at most %d series of %d families, of %d destinations and %d groups; %d MiB RSS at most", a.most, len(last),
		a.destinations, a.groups,
		exporter.rss(t)>>20)
	if rss := exporter.rss(t); rss > maxExporterRSS {
		t.Errorf("%d bytes RSS, more than %d", rss, maxExporterRSS)
	}
	promtoolAccepts(t, exporter)

	a.end(t)
	eventually(t, "what has ended is gone", startTime, func() bool {
		m := a.scrape(t, exporter)
		return len(m.values("perfdoctor_tcp_destination_sockets", "destination", networks)) == 0 &&
			len(a.targets(m)) == 0
	})
}

// promtoolAccepts lets promtool read a scrape.
func promtoolAccepts(t *testing.T, r *running) {
	t.Helper()
	body, err := r.get()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
	cmd.Stdin = bytes.NewReader(body)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// attack makes destinations and control groups.
type attack struct {
	host    *lab.Host
	network string // the beginning of the latest destinations

	parents []string // directories in which groups are made, one for each controller
	path    string   // their paths in the hierarchy
	burners []*lab.Child

	conns        []net.Conn
	here         []string // names of the existing groups
	burning      []string // those with a process
	waves        int      // of destinations, until now
	destinations int      // made until now
	groups, most int      // groups made until now, and series seen at most
}

func newAttack(t *testing.T, l *lab.Lab, host *lab.Host) *attack {
	t.Helper()
	a := &attack{host: host}
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	limit.Cur = limit.Max // 5,000 sockets
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	must(t, host.Do(func() error {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "0.0.0.0:700")
		if err == nil {
			go accept(t, listener)
			t.Cleanup(func() { must(t, listener.Close()) })
		}
		return err
	}))
	parent, err := l.Cgroup("attack")
	must(t, err)
	a.path = parent.Path()
	for _, controller := range []string{"cpu", "cpuacct"} {
		dir, err := parent.Dir(controller)
		if controller == "cpuacct" && err != nil {
			continue // v2 has none
		}
		must(t, err)
		a.parents = append(a.parents, dir)
	}
	for range 2 * attackTargets {
		child, err := host.StartChild(nil, lab.ChildOptions{
			Mode: lab.ModeSpin, Duration: loadTime, Spin: lab.SpinOptions{
				Burst: 4 * time.Millisecond,
				Every: 100 * time.Millisecond,
			},
		})
		must(t, err)
		a.burners = append(a.burners, child)
	}
	t.Cleanup(func() { a.end(t) })
	return a
}

// stay replaces the destinations and groups by new ones, and waits until they and a target are exported.
func (a *attack) stay(t *testing.T, exporter *running, destinations, groups int) {
	t.Helper()
	a.closeAll(t)
	a.connect(t, destinations)
	old := a.here
	a.makeGroups(t, groups)
	a.removeGroups(t, old)
	eventually(t, "destinations and targets are exported", 2*startTime, func() bool {
		m := a.scrape(t, exporter)
		return len(m.values("perfdoctor_tcp_destination_sockets", "destination", a.network)) >= attackSeries/2 &&
			slices.ContainsFunc(a.targets(m),
				func(name string) bool { return slices.Contains(a.burning, filepath.Base(name)) })
	})
}

// hurry makes destinations and groups that are gone at once, over two windows.
func (a *attack) hurry(t *testing.T, exporter *running, destinations, groups int) {
	t.Helper()
	const parts = 20
	for range parts {
		a.closeAll(t)
		a.connect(t, destinations/parts)
		old := a.here
		a.makeGroups(t, groups/parts)
		a.removeGroups(t, old)
		a.scrape(t, exporter)
	}
	windows := func() float64 {
		return a.scrape(t, exporter).value("perfdoctor_window_end_timestamp_seconds", "target", "host")
	}
	before := windows()
	eventually(t, "a window is over", startTime, func() bool { return windows() > before })
}

// networks is the beginning of all destinations.
const networks = "127.1"

// connect opens a connection to each of n new addresses, in a network of their own.
func (a *attack) connect(t *testing.T, n int) {
	t.Helper()
	a.network = fmt.Sprintf("%s%02d.", networks, a.waves)
	a.waves++
	must(t, a.host.Do(func() error {
		for i := range n {
			c, err := net.Dial("tcp", fmt.Sprintf("%s%d.%d:700", a.network, i>>8, i&255))
			if err != nil {
				return err
			}
			a.conns = append(a.conns, c)
		}
		a.destinations += n
		return nil
	}))
}

// closeAll closes with a reset, because TIME_WAIT would be visible for a minute.
func (a *attack) closeAll(t *testing.T) {
	t.Helper()
	for _, c := range a.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			must(t, tcp.SetLinger(0))
		}
		must(t, c.Close())
	}
	a.conns = nil
}

// makeGroups makes groups, and moves the burners to the first of them.
func (a *attack) makeGroups(t *testing.T, n int) {
	t.Helper()
	a.here, a.burning = nil, nil
	for i := range n {
		name := fmt.Sprintf("pod%d", a.groups)
		a.groups++
		a.here = append(a.here, name)
		for _, parent := range a.parents {
			must(t, os.Mkdir(filepath.Join(parent, name), 0o750))
			if i < len(a.burners) {
				must(t, os.WriteFile(filepath.Join(parent, name, "cgroup.procs"),
					[]byte(strconv.Itoa(a.burners[i].Pid)), 0))
			}
		}
		if i < len(a.burners) {
			a.burning = append(a.burning, name)
		}
	}
}

func (a *attack) removeGroups(t *testing.T, names []string) {
	t.Helper()
	for _, name := range names {
		for _, parent := range a.parents {
			dir := filepath.Join(parent, name)
			eventually(t, "remove "+dir, startTime, func() bool { return unix.Rmdir(dir) == nil })
		}
	}
}

// end ends everything that exists. It does nothing the second time.
func (a *attack) end(t *testing.T) {
	t.Helper()
	a.closeAll(t)
	for _, b := range a.burners {
		_, err := b.Stop()
		must(t, err)
	}
	a.burners = nil
	a.removeGroups(t, a.here)
	a.here = nil
}

// targets are the names of the attack's groups among the targets.
func (a *attack) targets(m scrapedMetrics) []string {
	return m.values("perfdoctor_window_seconds", "target", "cgroup "+a.path+"/")
}

// scrape reads the metrics, and fails the test if a limit is exceeded.
func (a *attack) scrape(t *testing.T, r *running) scrapedMetrics {
	t.Helper()
	body, err := r.get()
	must(t, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	m, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	must(t, err)
	all := 0
	for name, family := range m {
		all += len(family.GetMetric())
		bounded(t, name, family)
	}
	a.most = max(a.most, all)
	if n := len(scrapedMetrics(m).values("perfdoctor_window_seconds", "target", "")); n > attackTargets+1 {
		t.Errorf("%d targets", n)
	}
	if n := len(m["perfdoctor_finding"].GetMetric()); n > attackFindings {
		t.Errorf("%d findings", n)
	}
	return m
}

// bounded compares the values of the unbounded labels with the limit: as many for each target, and other.
func bounded(t *testing.T, name string, family *dto.MetricFamily) {
	t.Helper()
	seen := map[string]map[string]bool{} // by target and label
	for _, m := range family.GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		for _, l := range []string{
			"destination", "endpoint", "source", "listener", "comm", "cgroup", "pool", "device",
			"irq",
		} {
			if v, ok := labels[l]; ok {
				key := labels["target"] + " " + l
				if seen[key] == nil {
					seen[key] = map[string]bool{}
				}
				seen[key][v] = true
			}
		}
	}
	for key, values := range seen {
		if len(values) > attackSeries+1 {
			t.Errorf("%s has %d values of %s", name, len(values), key)
		}
	}
}

// scrapedMetrics are the families of a scrape.
type scrapedMetrics map[string]*dto.MetricFamily

// values returns the values of a label that begin so.
func (s scrapedMetrics) values(family, label, prefix string) []string {
	found := map[string]bool{}
	for _, m := range s[family].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == label && strings.HasPrefix(l.GetValue(), prefix) {
				found[l.GetValue()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// value returns the value of the first series with the label, 0 without one.
func (s scrapedMetrics) value(family string, label ...string) float64 {
	for _, m := range s[family].GetMetric() {
		for _, l := range m.GetLabel() {
			if len(label) > 0 && l.GetName() == label[0] && l.GetValue() != label[1] {
				m = nil
				break
			}
		}
		if m != nil {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return 0
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
	eventually(b, program, startTime, func() bool { _, err := r.get(); return err == nil })
	return r
}

// get scrapes once, over a connection that stays open.
func (r *running) get() (body []byte, err error) {
	resp, err := r.http.Get(r.url)
	if err != nil {
		return nil, err
	}
	body, err = io.ReadAll(resp.Body)
	return body, errors.Join(err, resp.Body.Close())
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
