package html

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A table is a set of facts as they were recorded.
type table struct {
	ID, Title, About string
	Columns          []string
	Rows             []row
	Left             int // rows that are only in the recording
}

// A row is one line of a table.
type row struct {
	ID     string // of a row to which a finding refers
	Cells  []string
	Shows  []link // findings that refer to it
	metric []metric.Metric
	labels []string
	named  string // if not empty, only findings whose words have it refer to the row: a process has a hundred flags
}

// rowsPerMetric bounds the rows of one metric on a page: a host of 64 CPUs has thousands of softirq counters. The
// recording has the rest.
const rowsPerMetric = 64

// The groups of the tables, by how the metrics' names begin, in the order in which they are shown. The last group
// takes what no other takes.
var groups = []struct {
	id, title string
	prefixes  []string
}{
	{"limits", "Limits and use: cgroups, processes", []string{"cgroup_", "process_"}},
	{"network", "Network: counters, devices, tables", []string{
		"tcp_", "ip_", "udp_", "net_", "conntrack_", "nat_",
		"netfilter_",
	}},
	{"jvm", "The JVM", []string{"jvm_"}},
	{"calls", "System calls and waits", []string{
		"target_syscall", "thread_wait", "thread_cpu_wait", "futex_", "thread_sleep",
		"thread_throttled", "target_cpu_wait",
	}},
	{"threads", "Threads", []string{"thread_", "target_"}},
	{"cpus", "CPUs and interrupts", []string{
		"cpu", "softirq", "interrupts", "irq_", "hardirq", "softnet", "context_", "procs_",
		"load_", "forks", "perf_",
	}},
	{"memory", "Memory and disks", []string{
		"memory_", "swap_", "page_", "major_", "direct_", "alloc_", "compact_", "thp_", "oom_",
		"disk_", "pressure_",
	}},
	{"host", "The host and the rest", []string{""}},
}

// tablesOf makes the tables of everything that was measured. Profiles are shown as profiles.
func tablesOf(rec *recording.Recording) []table {
	out := []table{destinations(rec), listeners(rec), settings(rec), flags(rec)}
	shown := map[string]bool{}
	for _, m := range []metric.Metric{
		metric.DestinationSockets, metric.DestinationRTT, metric.DestinationMin, metric.DestinationYoungTW,
		metric.ListenerSockets, metric.ListenerQueue, metric.ListenerBacklog, metric.JVMFlag, metric.JVMMonitorWaiters,
	} {
		shown[m.Describe().Name] = true
	}
	at := len(out)
	for _, g := range groups {
		out = append(out, table{ID: "facts-" + g.id, Title: g.title, Columns: []string{
			"what", "of", "at the end",
			"in the window",
		}})
	}
	for _, m := range metric.All() {
		d := m.Describe()
		if shown[d.Name] || strings.HasPrefix(d.Name, "sysctl_") || strings.HasSuffix(d.Name, "_profile_samples") {
			continue
		}
		for i, g := range groups {
			if slices.ContainsFunc(g.prefixes, func(p string) bool { return strings.HasPrefix(d.Name, p) }) {
				out[at+i].addMetric(rec, m)
				break
			}
		}
	}
	return slices.DeleteFunc(out, func(t table) bool { return len(t.Rows) == 0 })
}

// addMetric adds a row for each series.
func (t *table) addMetric(rec *recording.Recording, m metric.Metric) {
	var rows []row
	switch m := m.(type) {
	case *metric.Counter:
		for _, s := range rec.Counter(m) {
			rows = append(rows, seriesRow(s.Series, "", risen(s)))
		}
	case *metric.Gauge:
		for _, s := range rec.Gauge(m) {
			rows = append(rows, seriesRow(s.Series, value(s.Last(), m.Describe().Unit), ranged(s)))
		}
	case *metric.Info:
		for _, s := range rec.Info(m) {
			rows = append(rows, seriesRow(s, "", ""))
		}
	}
	n := min(len(rows), rowsPerMetric)
	t.Left += len(rows) - n
	t.Rows = append(t.Rows, rows[:n]...)
}

func seriesRow(s *recording.Series, last, window string) row {
	d := s.Metric.Describe()
	var of []string
	for i, name := range d.Labels {
		if i < len(s.Labels) && s.Labels[i] != "" {
			of = append(of, name+" "+s.Labels[i])
		}
	}
	return row{
		Cells: []string{d.Name, strings.Join(of, ", "), last, window}, metric: []metric.Metric{s.Metric},
		labels: s.Labels,
	}
}

func risen(s recording.CounterSeries) string {
	n, ok := s.Increase()
	rate, rated := s.Rate()
	if !ok || !rated {
		return "read once: no rate"
	}
	unit := s.Metric.Describe().Unit
	return "+" + value(n, unit) + ", " + value(rate, unit.Per(quantity.Seconds))
}

func ranged(s recording.GaugeSeries) string {
	if s.Min() == s.Max() {
		return ""
	}
	unit := s.Metric.Describe().Unit
	return value(s.Min(), unit) + " to " + value(s.Max(), unit)
}

func value(n float64, unit quantity.Unit) string { return quantity.Of("", n, unit).Text() }

// states are the columns of the tables of sockets, the most telling state first.
var states = []string{
	"ESTABLISHED", "SYN_SENT", "SYN_RECV", "TIME_WAIT", "CLOSE_WAIT", "FIN_WAIT1", "FIN_WAIT2", "LAST_ACK",
	"CLOSING", "CLOSE",
}

// destinations has a row for each local address and destination: the most sockets of each state seen at once.
func destinations(rec *recording.Recording) table {
	t := table{
		ID: "destinations", Title: "Sockets per destination",
		About: "Connections that this side opened, in the target's network namespace: the most seen at once of " +
			"each state.",
	}
	byPair, used := map[string]map[string]float64{}, map[string]bool{}
	var order []*recording.Series
	for _, s := range rec.Gauge(metric.DestinationSockets) {
		key := s.Label("source") + " " + s.Label("destination")
		if byPair[key] == nil {
			byPair[key] = map[string]float64{}
			order = append(order, s.Series)
		}
		byPair[key][s.Label("state")] = s.Max()
		used[s.Label("state")] = true
	}
	columns := slices.DeleteFunc(slices.Clone(states), func(s string) bool { return !used[s] })
	t.Columns = append(append([]string{"destination", "from"}, columns...), "closed per second", "round trip", "least")
	for _, s := range order {
		from, to := s.Label("source"), s.Label("destination")
		cells := []string{to, from}
		for _, state := range columns {
			cells = append(cells, number(byPair[from+" "+to][state]))
		}
		cells = append(cells, highest(rec, metric.DestinationYoungTW, "source", from, "destination", to),
			highest(rec, metric.DestinationRTT, "destination", to), highest(rec, metric.DestinationMin, "destination",
				to))
		t.Rows = append(t.Rows, row{
			Cells: cells, labels: []string{to},
			metric: []metric.Metric{
				metric.DestinationSockets, metric.DestinationYoungTW, metric.DestinationRTT,
				metric.DestinationMin,
			},
		})
	}
	return t
}

// listeners has a row for each listening socket.
func listeners(rec *recording.Recording) table {
	t := table{
		ID: "listeners", Title: "Listening sockets",
		Columns: []string{"listener", "process", "waiting for accept(), at most", "backlog", "established, at most"},
	}
	for _, s := range rec.Gauge(metric.ListenerBacklog) {
		l := s.Label("listener")
		t.Rows = append(t.Rows, row{
			Cells: []string{
				l, s.Label("comm") + " " + s.Label("pid"), highest(rec, metric.ListenerQueue, "listener", l),
				number(s.Last()),
				highest(rec, metric.ListenerSockets, "listener", l, "state", "ESTABLISHED"),
			},
			metric: []metric.Metric{metric.ListenerQueue, metric.ListenerBacklog, metric.ListenerSockets},
			labels: []string{
				l,
				s.Label("pid"),
			},
		})
	}
	return t
}

func settings(rec *recording.Recording) table {
	t := table{ID: "settings", Title: "Kernel settings", Columns: []string{
		"setting", "network namespace", "value",
		"meaning",
	}}
	for _, m := range metric.All() {
		g, ok := m.(*metric.Gauge)
		if !ok || !strings.HasPrefix(m.Describe().Name, "sysctl_") {
			continue
		}
		for _, s := range rec.Gauge(g) {
			d := m.Describe()
			t.Rows = append(t.Rows, row{
				Cells:  []string{d.Source, s.Label("netns"), value(s.Last(), d.Unit), d.Help},
				metric: []metric.Metric{m}, labels: s.Labels,
			})
		}
	}
	return t
}

func flags(rec *recording.Recording) table {
	t := table{ID: "flags", Title: "JVM flags", Columns: []string{"flag", "value", "set by", "process"}}
	for _, s := range rec.Info(metric.JVMFlag) {
		t.Rows = append(t.Rows, row{
			Cells:  []string{s.Label("name"), s.Label("value"), s.Label("origin"), s.Label("pid")},
			metric: []metric.Metric{metric.JVMFlag}, labels: s.Labels, named: s.Label("name"),
		})
	}
	return t
}

// highest returns the greatest value of a gauge's matching series, or an empty cell if there are none.
func highest(rec *recording.Recording, g *metric.Gauge, match ...string) string {
	list := rec.Gauge(g, match...)
	if len(list) == 0 {
		return ""
	}
	top := list[0].Max()
	for _, s := range list {
		top = max(top, s.Max())
	}
	if g.Describe().Unit == quantity.Seconds {
		return value(top, quantity.Seconds)
	}
	return number(top)
}

func number(n float64) string { return quantity.Of("", n, quantity.None).Text() }

// monitors are the locks that threads waited for: who held them at one moment, and how long threads waited for each
// class.
func monitors(rec *recording.Recording) []table {
	held := table{
		ID: "monitors", Title: "Monitors at one moment",
		About: "From one thread dump at the end of the window: who waits for which lock, and who holds it.",
		Columns: []string{
			"class of the lock", "waiters", "held by", "which took it at", "and is in", "they wait at",
			"lock",
		},
	}
	waiting := rec.Gauge(metric.JVMMonitorWaiters)
	slices.SortStableFunc(waiting, func(a, b recording.GaugeSeries) int { return cmp.Compare(b.Last(), a.Last()) })
	for _, s := range waiting {
		held.Rows = append(held.Rows, row{
			Cells: []string{
				s.Label("class"), number(s.Last()), s.Label("holder"), s.Label("holder_at"), s.Label("holder_in"),
				s.Label("waiter_at"), s.Label("lock"),
			},
			metric: []metric.Metric{metric.JVMMonitorWaiters}, labels: s.Labels,
		})
	}
	return slices.DeleteFunc([]table{held, lockTimes(rec)}, func(t table) bool { return len(t.Rows) == 0 })
}

// lockTimes is the lock profile by class.
func lockTimes(rec *recording.Recording) table {
	t := table{
		ID: "lock-times", Title: "Time waited, by class of the lock", About: "From the profile of contended locks.",
		Columns: []string{"class of the lock", "time waited, all threads", "waits", "threads", "most in"},
	}
	p, ok := rec.Ranked(stacks.Lock)
	if !ok {
		return t
	}
	classes := stacks.Group(p, func(s stacks.Sample) string { return s.Class })
	shown := min(len(classes), rowsPerMetric)
	t.Left = len(classes) - shown
	for _, c := range classes[:shown] {
		of := p.Filter(func(s stacks.Sample) bool { return s.Class == c.Key })
		threads := stacks.Group(of, func(s stacks.Sample) int { return s.Thread })
		places := stacks.Group(of, func(s stacks.Sample) string { return caller(p, s) })
		t.Rows = append(t.Rows, row{
			Cells: []string{
				cmp.Or(c.Key, "unknown"), value(float64(c.Value)/1e9, quantity.Seconds), number(float64(c.Count)),
				fmt.Sprint(len(threads)), places[0].Key,
			},
			metric: []metric.Metric{metric.LockProfileSamples}, labels: []string{c.Key},
		})
	}
	return t
}

// caller is the innermost managed frame outside of java.util.concurrent's own code. It shows where a thread waits.
func caller(p *stacks.Profile, s stacks.Sample) string {
	for _, f := range s.Stack {
		if fr := p.Frames[f]; fr.Managed() && !strings.HasPrefix(fr.Name,
			"java.util.concurrent.locks.") && !strings.HasPrefix(fr.Name, "jdk.internal.misc.") {
			return fr.Name
		}
	}
	if len(s.Stack) > 0 {
		return p.Frames[s.Stack[0]].Name
	}
	return ""
}

// Marked reports whether a finding refers to one of the rows.
func (t table) Marked() bool {
	return slices.ContainsFunc(t.Rows, func(r row) bool { return r.ID != "" })
}
