package html

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

// A chart is a set of numbers over the window that belong together. The window is the time axis of all charts.
type chart struct {
	ID, Title, About string
	Unit             quantity.Unit
	Stacked          bool // the lines are parts of one sum
	Heat             bool // each line is a row of cells, 0 to 1
	Metrics          []metric.Metric
	Lines            []line
}

// A line is one series of a chart.
type line struct {
	Label  string
	Points []recording.Point // what holds from the point before up to this one, or at it
	Limit  bool              // a ceiling to hold the others against
}

// charted bounds the lines of a chart: more of them cannot be told apart by colour. The largest are kept.
const charted = 8

// heatRows bounds the CPUs of the heat map: 256 rows of four pixels fill a screen.
const heatRows = 256

// chartsOf makes all charts for which the recording has numbers, in fix order.
func chartsOf(rec *recording.Recording) []chart {
	var out []chart
	for _, charts := range []func(*recording.Recording) []chart{
		cpuCharts, targetCPU, queueCharts, throttleCharts, pressureCharts, connectionCharts, ceilingChart, lossCharts,
		deviceCharts,
		jvmCharts,
		memoryCharts, diskCharts,
	} {
		for _, c := range charts(rec) {
			c.Lines = slices.DeleteFunc(c.Lines, func(l line) bool { return len(l.Points) == 0 })
			if slices.ContainsFunc(c.Lines, func(l line) bool { return !l.Limit }) {
				out = append(out, c)
			}
		}
	}
	return out
}

// rates returns the rate of a counter in each interval, at the interval's end.
func rates(s recording.CounterSeries) []recording.Point { return series.Rates(s.Points) }

func scaled(list []recording.Point, by float64) []recording.Point {
	out := slices.Clone(list)
	for i := range out {
		out[i].Value *= by
	}
	return out
}

// counted returns a line for each value of a label: the sum of the rates of a counter's matching series.
func counted(rec *recording.Recording, c *metric.Counter, label string, match ...string) []line {
	by := map[string][][]recording.Point{}
	for _, s := range rec.Counter(c, match...) {
		by[s.Label(label)] = append(by[s.Label(label)], rates(s))
	}
	return linesOf(by)
}

// gauged does for a gauge what counted does for a counter.
func gauged(rec *recording.Recording, g *metric.Gauge, label string, match ...string) []line {
	by := map[string][][]recording.Point{}
	for _, s := range rec.Gauge(g, match...) {
		by[s.Label(label)] = append(by[s.Label(label)], s.Points)
	}
	return linesOf(by)
}

func linesOf(by map[string][][]recording.Point) []line {
	var out []line
	for name, lists := range by {
		out = append(out, line{Label: name, Points: series.Sum(lists...)})
	}
	slices.SortFunc(out, func(a, b line) int { return cmp.Compare(a.Label, b.Label) })
	return out
}

// largest keeps the lines with the highest peaks, in order, and drops lines that are always zero.
func largest(lines []line) []line {
	peak := func(l line) float64 {
		m := 0.0
		for _, p := range l.Points {
			m = max(m, p.Value)
		}
		return m
	}
	lines = slices.DeleteFunc(slices.Clone(lines), func(l line) bool { return peak(l) == 0 })
	byPeak := slices.Clone(lines)
	slices.SortStableFunc(byPeak, func(a, b line) int { return cmp.Compare(peak(b), peak(a)) })
	if len(byPeak) <= charted {
		return lines
	}
	least := peak(byPeak[charted-1])
	kept := slices.DeleteFunc(lines, func(l line) bool { return peak(l) < least })
	return kept[:min(len(kept), charted)]
}

// total is one line: the sum of all matching series of a counter.
func total(rec *recording.Recording, label string, c *metric.Counter, match ...string) line {
	var lists [][]recording.Point
	for _, s := range rec.Counter(c, match...) {
		lists = append(lists, rates(s))
	}
	return line{Label: label, Points: series.Sum(lists...)}
}

// columns are the modes of CPU time by their mpstat names, from the bottom of the stack up. user includes guest.
var columns = []struct{ label, mode string }{
	{"us", "user"},
	{"ni", "nice"},
	{"sy", "system"},
	{"si", "softirq"},
	{"hi", "irq"},
	{"wa", "iowait"},
	{"st", "steal"},
}

func cpuCharts(rec *recording.Recording) []chart {
	all := total(rec, "", metric.CPUSeconds)
	in := func(mode string) []recording.Point { return total(rec, "", metric.CPUSeconds, "mode", mode).Points }
	guests := series.Sum(in("guest"), in("guest_nice"))
	whole := series.Sum(all.Points, scaled(guests, -1))
	share := chart{
		ID: "cpu", Title: "CPU time by column", Unit: quantity.Ratio, Stacked: true,
		Metrics: []metric.Metric{metric.CPUSeconds},
		About: "Of all CPUs together; what is left to 100 % is idle. us, ni: programs; sy: the kernel for them; si, " +
			"hi: interrupts; " +
			"wa: idle while a disk works; st: taken by the hypervisor.",
	}
	for _, c := range columns {
		share.Lines = append(share.Lines,
			line{Label: c.label, Points: series.Over(total(rec, "", metric.CPUSeconds, "mode",
				c.mode).Points, whole)})
	}
	share.Lines = slices.DeleteFunc(share.Lines, func(l line) bool {
		return l.Label != "us" && l.Label != "sy" && !slices.ContainsFunc(l.Points,
			func(p recording.Point) bool { return p.Value >= 0.001 })
	})
	return append([]chart{share}, heatMaps(rec)...)
}

// heatMaps show each CPU: how busy it is, and its time in softirqs, where one hot CPU is the usual fault.
func heatMaps(rec *recording.Recording) []chart {
	var cpus []string
	for _, s := range rec.Counter(metric.CPUSeconds, "mode", "user") {
		cpus = append(cpus, s.Label("cpu"))
	}
	slices.SortFunc(cpus, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	busy := chart{
		ID: "cpu-heat", Title: "Each CPU: busy", Unit: quantity.Ratio, Heat: true,
		Metrics: []metric.Metric{metric.CPUSeconds},
		About:   "A row a CPU. One row that stands out from the others is a hot CPU.",
	}
	softirq := chart{
		ID: "softirq-heat", Title: "Each CPU: in softirqs", Unit: quantity.Ratio, Heat: true,
		Metrics: []metric.Metric{metric.CPUSeconds, metric.Softirqs, metric.SoftnetDropped, metric.SoftnetProcessed},
		About:   "Packets are received and forwarded in softirqs, each queue on one CPU.",
	}
	some := false
	for _, cpu := range cpus[:min(len(cpus), heatRows)] {
		var used [][]recording.Point
		for _, c := range columns {
			if c.mode != "iowait" && c.mode != "steal" {
				used = append(used, total(rec, "", metric.CPUSeconds, "mode", c.mode, "cpu", cpu).Points)
			}
		}
		in := total(rec, "CPU "+cpu, metric.CPUSeconds, "mode", "softirq", "cpu", cpu)
		some = some || slices.ContainsFunc(in.Points, func(p recording.Point) bool { return p.Value >= 0.02 })
		busy.Lines = append(busy.Lines, line{Label: "CPU " + cpu, Points: series.Sum(used...)})
		softirq.Lines = append(softirq.Lines, in)
	}
	if !some {
		return []chart{busy}
	}
	return []chart{busy, softirq}
}

// targetCPU is the CPU time of the target's processes against their quota.
func targetCPU(rec *recording.Recording) []chart {
	c := chart{
		ID: "target-cpu", Title: "CPUs used by the target", Unit: quantity.CPUs, Stacked: true,
		Metrics: []metric.Metric{metric.ProcessCPU, metric.CgroupQuota, metric.CgroupCPU},
		About:   "CPU time of its processes per second. The line, where there is one, is the lowest quota above them.",
	}
	c.Lines = counted(rec, metric.ProcessCPU, "mode", "member", "target")
	slices.Reverse(c.Lines) // user below
	var quota *recording.GaugeSeries
	for _, s := range rec.Gauge(metric.CgroupQuota) {
		if quota == nil || s.Last() < quota.Last() {
			quota = &s
		}
	}
	if quota != nil {
		c.Lines = append(c.Lines, line{Label: "quota of " + quota.Label("cgroup"), Points: quota.Points, Limit: true})
	}
	return []chart{c}
}

func queueCharts(rec *recording.Recording) []chart {
	wait := chart{
		ID: "run-queue", Title: "Waiting for a CPU", Unit: quantity.Threads, Metrics: []metric.Metric{
			metric.CPURunDelay,
			metric.ThreadRunDelay,
		},
		About: "Threads that are ready and not running, on average: seconds waited per second.",
		Lines: []line{total(rec, "all threads of the host", metric.CPURunDelay), total(rec, "threads of the target",
			metric.ThreadRunDelay)},
	}
	runnable := chart{
		ID: "runnable", Title: "Running or ready to run", Unit: quantity.Threads, Metrics: []metric.Metric{
			metric.ProcsRunning,
			metric.ProcsBlocked,
		},
		About: "Counted at the moment of each sample, on the whole host.",
		Lines: append(gaugeLine(rec, "running or ready", metric.ProcsRunning), gaugeLine(rec, "blocked on I/O",
			metric.ProcsBlocked)...),
	}
	for _, l := range gaugeLine(rec, "CPUs", metric.CPUsOnline) {
		l.Limit = true
		runnable.Lines = append(runnable.Lines, l)
	}
	switches := chart{
		ID: "switches", Title: "Context switches", Unit: "switches/s", Metrics: []metric.Metric{
			metric.ContextSwitches,
			metric.ThreadSwitches,
		},
		Lines: append([]line{total(rec, "host", metric.ContextSwitches)},
			prefixed("target, ", counted(rec, metric.ThreadSwitches,
				"kind"))...),
	}
	return []chart{wait, runnable, switches}
}

func gaugeLine(rec *recording.Recording, label string, g *metric.Gauge, match ...string) []line {
	var lists [][]recording.Point
	for _, s := range rec.Gauge(g, match...) {
		lists = append(lists, s.Points)
	}
	if len(lists) == 0 {
		return nil
	}
	return []line{{Label: label, Points: series.Sum(lists...)}}
}

func prefixed(prefix string, lines []line) []line {
	for i := range lines {
		lines[i].Label = prefix + lines[i].Label
	}
	return lines
}

func throttleCharts(rec *recording.Recording) []chart {
	c := chart{
		ID: "throttled", Title: "Throttled periods", Unit: quantity.Ratio,
		Metrics: []metric.Metric{metric.CgroupThrottled, metric.CgroupPeriods, metric.CgroupThrottledTime},
		About:   "Share of the enforcement periods with work in which the group used up its quota and was stopped.",
	}
	for _, s := range rec.Counter(metric.CgroupThrottled) {
		g := s.Label("cgroup")
		periods := total(rec, "", metric.CgroupPeriods, "cgroup", g, "level", s.Label("level"))
		c.Lines = append(c.Lines, line{Label: g, Points: series.Over(rates(s), periods.Points)})
	}
	limited := map[string]bool{}
	for _, s := range rec.Gauge(metric.CgroupQuota) {
		limited[s.Label("cgroup")] = true
	}
	c.Lines = slices.DeleteFunc(c.Lines, func(l line) bool { return !limited[l.Label] })
	return []chart{c}
}

func pressureCharts(rec *recording.Recording) []chart {
	host := chart{
		ID: "psi", Title: "Pressure (PSI)", Unit: quantity.Ratio, Metrics: []metric.Metric{metric.Pressure},
		About: "Share of the time in which at least one thread (some), or all (full), waited for the resource.",
	}
	group := chart{
		ID: "cgroup-psi", Title: "Pressure (PSI) of the target's cgroup", Unit: quantity.Ratio,
		Metrics: []metric.Metric{metric.CgroupPressure},
		About:   host.About,
	}
	for _, resource := range []string{"cpu", "memory", "io"} {
		for _, kind := range []string{"some", "full"} {
			label := resource + ", " + kind
			host.Lines = append(host.Lines, total(rec, label, metric.Pressure, "resource", resource, "kind", kind))
			group.Lines = append(group.Lines, total(rec, label, metric.CgroupPressure, "resource", resource, "kind",
				kind, "level", "0"))
		}
	}
	return []chart{host, group}
}

func connectionCharts(rec *recording.Recording) []chart {
	states := chart{
		ID: "connections", Title: "TCP sockets by state", Unit: quantity.Sockets,
		Metrics: []metric.Metric{
			metric.Sockets, metric.TCPTimeWait, metric.DestinationSockets, metric.ListenerSockets,
			metric.ProcessSockets, metric.SynSentRetrans,
		},
		About: "Of the target's network namespace.",
		Lines: largest(gauged(rec, metric.Sockets, "state")),
	}
	opened := chart{
		ID: "opened", Title: "Connections opened", Unit: "connections/s",
		Metrics: []metric.Metric{
			metric.TCPActiveOpens, metric.TCPPassiveOpens, metric.TCPAttemptFails,
			metric.Connects,
		},
		About: "By this side (connect), by others (accept), and those that failed before they were established.",
		Lines: []line{
			total(rec, "by this side", metric.TCPActiveOpens, "netns", metric.NetNSTarget),
			total(rec, "accepted", metric.TCPPassiveOpens, "netns", metric.NetNSTarget),
			total(rec, "failed", metric.TCPAttemptFails, "netns", metric.NetNSTarget),
		},
	}
	queue := chart{
		ID: "accept-queue", Title: "Accept queues", Unit: quantity.Connections,
		Metrics: []metric.Metric{metric.ListenerQueue, metric.ListenerBacklog},
		About:   "Connections that wait for accept(). The line is the largest backlog of these listeners.",
		Lines:   largest(gauged(rec, metric.ListenerQueue, "listener")),
	}
	if len(queue.Lines) > 0 {
		var limit *recording.GaugeSeries
		for _, s := range rec.Gauge(metric.ListenerBacklog) {
			used := slices.ContainsFunc(queue.Lines, func(l line) bool { return l.Label == s.Label("listener") })
			if used && (limit == nil || s.Last() > limit.Last()) {
				limit = &s
			}
		}
		if limit != nil {
			queue.Lines = append(queue.Lines, line{Label: "backlog", Points: limit.Points, Limit: true})
		}
	}
	turns := chart{
		ID: "requests", Title: "Requests on connections that ended", Unit: "requests/s",
		Metrics: []metric.Metric{metric.ConnectionTurns},
		About: "Where BPF programs saw them: requests with an answer, at most. Connections that stay open are " +
			"not in it.",
		Lines: largest(counted(rec, metric.ConnectionTurns, "endpoint")),
	}
	return []chart{states, opened, queue, turns}
}

// timeWait is TCP_TIMEWAIT_LEN of include/net/tcp.h.
const timeWait = 60

// ceilingChart holds the connections that this side closes per second to a destination against what local ports
// allow: usable ports / the time for which a closed connection keeps its port (TIME_WAIT, or the delay after which
// tcp_tw_reuse frees it).
func ceilingChart(rec *recording.Recording) []chart {
	c := chart{
		ID: "ceiling", Title: "Connections closed by this side, and the ceiling of local ports", Unit: "connections/s",
		Metrics: []metric.Metric{metric.DestinationYoungTW, metric.PortRangeLow, metric.PortRangeHigh},
		About: "Each closed connection keeps its local port for 60 s (TIME_WAIT), so that usable ports / 60 s can be " +
			"opened per second " +
			"to one destination; where tcp_tw_reuse applies, ports / its delay.",
		Lines: largest(gauged(rec, metric.DestinationYoungTW, "destination")),
	}
	first := func(g *metric.Gauge, otherwise float64) float64 {
		for _, s := range rec.Gauge(g, "netns", metric.NetNSTarget) {
			return s.Last()
		}
		return otherwise
	}
	ports := first(metric.PortRangeHigh, 0) - first(metric.PortRangeLow, 0) + 1 - first(metric.ReservedPorts, 0)
	if ports <= 1 || !rec.Recorded(metric.PortRangeLow) {
		return []chart{c}
	}
	hold := map[string]float64{}
	for _, l := range c.Lines {
		h := float64(timeWait)
		reuse := first(metric.TWReuse, 0)
		if first(metric.Timestamps, 0) != 0 && (reuse == 1 || reuse == 2 && loopback(l.Label)) {
			h = first(metric.TWReuseDelay, 1)
		}
		if h > 0 {
			hold[fmt.Sprintf("ceiling: %.0f ports / %g s", ports, h)] = ports / h
		}
	}
	for _, label := range sortedKeys(hold) {
		c.Lines = append(c.Lines, line{Label: label, Limit: true, Points: []recording.Point{
			{At: 0, Value: hold[label]},
			{At: time.Duration(rec.Meta.Duration * float64(time.Second)), Value: hold[label]},
		}})
	}
	return []chart{c}
}

func sortedKeys(m map[string]float64) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func loopback(destination string) bool {
	a, err := netip.ParseAddrPort(destination)
	return err == nil && a.Addr().Unmap().IsLoopback()
}

func lossCharts(rec *recording.Recording) []chart {
	ns := []string{"netns", metric.NetNSTarget}
	lost := chart{
		ID: "losses", Title: "Losses and retransmits", Unit: "1/s",
		Metrics: []metric.Metric{
			metric.TCPRetransSegs, metric.TCPSynRetrans, metric.ListenOverflows, metric.ListenDrops, metric.TCPOutRsts,
			metric.SoftnetDropped, metric.ConntrackDrops, metric.DeviceDrops,
		},
		About: "Of the target's network namespace; packets that a CPU's backlog dropped are of the whole host.",
		Lines: largest([]line{
			total(rec, "TCP retransmits", metric.TCPRetransSegs, ns...),
			total(rec, "of these SYN", metric.TCPSynRetrans, ns...),
			total(rec, "accept queue full", metric.ListenOverflows, ns...), total(rec, "dropped by listeners",
				metric.ListenDrops, ns...),
			total(rec, "resets sent", metric.TCPOutRsts, ns...), total(rec, "dropped by a CPU's backlog",
				metric.SoftnetDropped),
			total(rec, "conntrack table", metric.ConntrackDrops, ns...), total(rec, "dropped by devices",
				metric.DeviceDrops, ns...),
		}),
	}
	table := chart{
		ID: "conntrack", Title: "Tracked connections", Unit: quantity.Entries, Metrics: []metric.Metric{
			metric.ConntrackEntries,
			metric.ConntrackMax,
		},
		Lines: gauged(rec, metric.ConntrackEntries, "netns"),
	}
	for _, l := range gauged(rec, metric.ConntrackMax, "netns") {
		if len(table.Lines) > 0 && l.Label == table.Lines[0].Label {
			table.Lines = append(table.Lines, line{Label: "limit", Points: l.Points, Limit: true})
		}
	}
	return []chart{lost, table}
}

func deviceCharts(rec *recording.Recording) []chart {
	c := chart{
		ID: "packets", Title: "Packets per device", Unit: "packets/s", Metrics: []metric.Metric{
			metric.DevicePackets,
			metric.DeviceBytes, metric.SoftnetProcessed,
		},
		About: "Of the target's network namespace.",
	}
	for _, s := range rec.Counter(metric.DevicePackets, "netns", metric.NetNSTarget) {
		c.Lines = append(c.Lines, line{Label: s.Label("device") + ", " + s.Label("direction"), Points: rates(s)})
	}
	c.Lines = largest(c.Lines)
	return []chart{c}
}

func jvmCharts(rec *recording.Recording) []chart {
	gc := chart{
		ID: "gc", Title: "Garbage collection and safepoints", Unit: quantity.Ratio,
		Metrics: []metric.Metric{
			metric.JVMGCSeconds, metric.JVMGCs, metric.JVMSafepointSeconds, metric.JVMSafepointSync,
			metric.JVMSafepoints,
		},
		About: "Share of the time in collections, by kind, and with all threads stopped for any reason.",
	}
	gc.Lines = append(prefixed("collections, ", counted(rec, metric.JVMGCSeconds, "kind")),
		total(rec, "stopped (safepoints)", metric.JVMSafepointSeconds))
	heap := chart{
		ID: "heap", Title: "Heap in use", Unit: quantity.Bytes, Stacked: true,
		Metrics: []metric.Metric{metric.JVMSpace},
		About:   "By space. Most collectors update it at collections only.",
		Lines:   largest(gauged(rec, metric.JVMSpace, "space", "kind", "used")),
	}
	threads := chart{
		ID: "threads", Title: "Threads of the target", Unit: quantity.Threads, Metrics: []metric.Metric{
			metric.ThreadStates,
			metric.JVMThreads, metric.ProcessThreads,
		},
		About: "By state: R running or ready, S sleeping, D waiting for a device.",
		Lines: largest(gauged(rec, metric.ThreadStates, "state")),
	}
	return []chart{gc, heap, threads}
}

func memoryCharts(rec *recording.Recording) []chart {
	group := chart{
		ID: "memory", Title: "Memory of the target's cgroup", Unit: quantity.Bytes,
		Metrics: []metric.Metric{metric.CgroupMemory, metric.CgroupWorkingSet, metric.CgroupMemoryLimit},
		Lines:   gaugeLine(rec, "without what can be dropped", metric.CgroupWorkingSet, "level", "0"),
	}
	for _, l := range gaugeLine(rec, "limit", metric.CgroupMemoryLimit, "level", "0") {
		l.Limit = true
		group.Lines = append(group.Lines, l)
	}
	resident := chart{
		ID: "resident", Title: "Resident memory of the target's processes", Unit: quantity.Bytes, Stacked: true,
		Metrics: []metric.Metric{metric.ProcessRSS},
	}
	for _, s := range rec.Gauge(metric.ProcessRSS) {
		resident.Lines = append(resident.Lines, line{Label: s.Label("comm") + " " + s.Label("pid"), Points: s.Points})
	}
	resident.Lines = largest(resident.Lines)
	faults := chart{
		ID: "faults", Title: "Page faults", Unit: "faults/s", Metrics: []metric.Metric{
			metric.MinorFaults, metric.MajorFaults,
			metric.ProcessFaults,
		},
		Lines: append([]line{total(rec, "host", metric.MinorFaults), total(rec, "host, with I/O", metric.MajorFaults)},
			prefixed("target, ", counted(rec, metric.ProcessFaults, "kind"))...),
	}
	return []chart{group, resident, faults}
}

func diskCharts(rec *recording.Recording) []chart {
	busy := chart{
		ID: "disk", Title: "Disks: time with I/O in flight", Unit: quantity.Ratio, Metrics: []metric.Metric{
			metric.DiskBusySeconds,
			metric.DiskReads, metric.DiskWrites,
		},
		Lines: largest(counted(rec, metric.DiskBusySeconds, "device")),
	}
	return []chart{busy}
}
