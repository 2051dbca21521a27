package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// A Resource is one line of the strip below the answer: how much of it is used, what waits for it, and what it lost
// (B. Gregg, the USE method). A number that was not measured is "-".
type Resource struct {
	Name                  string
	Used, Waiting, Errors string
	Verdict               string // "ok", "not assessed", or the worst finding about it: "warning: io-wait"
	Severity              check.Severity
}

// passed is the verdict of a resource if some of its checks passed and none has a finding.
const passed = "ok"

// notMeasured stands for a number that the recording does not have.
const notMeasured = "-"

// resourceChecks are the checks that judge a resource. Checks about a program's code rather than the machine, or
// about TCP in one program, belong to no resource: the findings have them.
func resourceChecks() []struct {
	resource string
	checks   []string
} {
	return []struct {
		resource string
		checks   []string
	}{
		{"CPU", []string{
			"cpu-saturated", "cpu-hog", "cpu-throttled", "cpu-throttled-burst", "cpu-steal", "cpu-in-system",
			"fork-storm", "governor", "context-switch-storm",
		}},
		{"memory", []string{"oom-kills", "memory-limit", "direct-reclaim", "swap-in", "major-faults"}},
		{"disk", []string{"io-wait", "fsync-bound", "io-bound-threads"}},
		{"network", []string{
			"udp-drops", "nic-drops", "nic-errors", "softnet-drops", "softirq-imbalance", "cpu-in-softirq",
			"snat-single-core", "conntrack-full", "irq-affinity", "bridge-nat-cost",
		}},
		{"TCP", []string{
			"short-connection-ceiling", "local-port-exhaustion", "port-search-cliff", "bind-without-no-port",
			"time-wait-overflow", "accept-queue-overflow", "syn-backlog-drops", "syn-sent-pileup", "syn-retransmits",
			"retransmits", "reset-storm", "paws-behind-nat", "tcp-memory-pressure", "tcp-orphans", "rcvbuf-prune",
			"path-rtt-under-load", "slow-accept", "close-wait-leak",
		}},
	}
}

// ResourceChecks are the names of the checks that judge a resource of the strip.
func ResourceChecks() (names []string) {
	for _, r := range resourceChecks() {
		names = append(names, r.checks...)
	}
	return names
}

// resourcesOf fills the strip from a recording and the findings about it.
func resourcesOf(rec *recording.Recording, d *Data) []Resource {
	var out []Resource
	for _, r := range resourceChecks() {
		x := Resource{Name: r.resource, Used: notMeasured, Waiting: notMeasured, Errors: notMeasured}
		switch r.resource {
		case "CPU":
			cpuUse(rec, d, &x)
		case "memory":
			memoryUse(rec, &x)
		case "disk":
			diskUse(rec, &x)
		case "network":
			networkUse(rec, &x)
		case "TCP":
			tcpUse(rec, &x)
		}
		x.judge(d, r.checks)
		out = append(out, x)
	}
	return out
}

// judge takes the worst finding of the checks. Without a finding, one check that passed makes the resource ok.
func (r *Resource) judge(d *Data, checks []string) {
	r.Verdict = "not assessed"
	if slices.ContainsFunc(d.Fine, func(f Fine) bool { return slices.Contains(checks, f.Check) }) {
		r.Verdict = passed
	}
	for i := range d.Findings { // the verdict comes first
		if f := &d.Findings[i]; slices.Contains(checks, f.Check) && f.Severity > r.Severity {
			r.Severity, r.Verdict = f.Severity, f.Severity.String()+": "+f.Check
		}
	}
}

// perSecond returns the rise of counters per second. ok is false if there are no two readings.
func perSecond(series []recording.CounterSeries) (n float64, ok bool) {
	rise, seconds, ok := evidence.Rise("", series)
	if !ok || seconds.Number() <= 0 {
		return 0, false
	}
	return rise.Number() / seconds.Number(), true
}

// rise returns by how much counters rose in the window, all together.
func rise(rec *recording.Recording, list ...*metric.Counter) (n float64, ok bool) {
	for _, c := range list {
		if v, _, had := evidence.Rise("", inTarget(rec, c)); had {
			n, ok = n+v.Number(), true
		}
	}
	return n, ok
}

// inTarget returns the series of the target's network namespace, or all series of a counter without that label.
func inTarget(rec *recording.Recording, c *metric.Counter) []recording.CounterSeries {
	if slices.Contains(c.Describe().Labels, "netns") {
		return rec.Counter(c, "netns", metric.NetNSTarget)
	}
	return rec.Counter(c)
}

func cpuUse(rec *recording.Recording, d *Data, r *Resource) {
	if busy, cpus, ok := keynumber.NewSource(rec, keynumber.Told{}).Busy(); ok {
		r.Used = fmt.Sprintf("%s of %s", cpusNumber(busy), cpusText(cpus))
	}
	if n, ok := perSecond(rec.Counter(metric.CPURunDelay)); ok {
		r.Waiting = quantity.Of("", rounded(n), quantity.Threads).Text()
	} else if share, ok := stalled(rec, "cpu"); ok {
		r.Waiting = share
	}
	for i := range d.Numbers {
		if n := &d.Numbers[i]; n.Name == "throttled_share" && rec.Recorded(metric.CgroupPeriods) {
			r.Errors = shareText(n.Estimate.Mean) + " throttled"
		}
	}
}

// ofTime is left out in a narrow terminal.
const ofTime = " of time"

// stalled returns the share of time in which something waited for the resource (PSI, some).
func stalled(rec *recording.Recording, resource string) (string, bool) {
	share, ok := perSecond(rec.Counter(metric.Pressure, "resource", resource, "kind", "some"))
	return wholeShare(share) + ofTime, ok
}

// wholeShare returns a share in whole per cent: "0 %", "<1 %", "33 %".
func wholeShare(n float64) string {
	if n > 0 && n < 0.01 {
		return "<1 %"
	}
	return fmt.Sprintf("%.0f %%", 100*n)
}

func memoryUse(rec *recording.Recording, r *Resource) {
	left, total := rec.Gauge(metric.MemoryAvailable), rec.Gauge(metric.MemoryTotal)
	if len(left) > 0 && len(total) > 0 && total[0].Last() > 0 {
		all := total[0].Last()
		r.Used = fmt.Sprintf("%s of %s", wholeShare(1-left[0].Last()/all), short(all, quantity.Bytes))
	}
	if share, ok := stalled(rec, "memory"); ok {
		r.Waiting = share
	}
	if n, ok := rise(rec, metric.HostOOMKills); ok {
		r.Errors = plural(int(n), "OOM kill")
	}
}

// longestDevice is long enough for nvme10n1p1.
const longestDevice = 10

func diskUse(rec *recording.Recording, r *Resource) {
	most := -1.0
	for _, s := range rec.Counter(metric.DiskBusySeconds) {
		if n, ok := perSecond([]recording.CounterSeries{s}); ok && n > most {
			device := []rune(s.Label("device"))
			most, r.Used = n, wholeShare(min(n, 1))+" "+string(device[:min(len(device), longestDevice)])
		}
	}
	if share, ok := stalled(rec, "io"); ok {
		r.Waiting = share
	}
}

func networkUse(rec *recording.Recording, r *Resource) {
	if n, ok := perSecond(withoutLoopback(inTarget(rec, metric.DeviceBytes))); ok {
		r.Used = short(n, "B/s")
	} else if rec.Recorded(metric.DeviceBytes) {
		r.Used = "loopback only"
	}
	if n, ok := rise(rec, metric.SoftnetSqueezed); ok {
		r.Waiting = short(n, quantity.None) + " squeezed"
	}
	if n, ok := rise(rec, metric.DeviceDrops, metric.DeviceErrors, metric.SoftnetDropped); ok {
		r.Errors = short(n, quantity.None) + " lost"
	}
}

func withoutLoopback(list []recording.CounterSeries) []recording.CounterSeries {
	return slices.DeleteFunc(list, func(s recording.CounterSeries) bool { return s.Label("device") == "lo" })
}

func tcpUse(rec *recording.Recording, r *Resource) {
	if list := rec.Gauge(metric.Sockets, "state", "ESTABLISHED"); len(list) > 0 {
		r.Used = short(list[0].Last(), quantity.None) + " open"
	}
	if rec.Recorded(metric.ListenerQueue) {
		waiting := 0.0
		for _, g := range rec.Gauge(metric.ListenerQueue) {
			waiting += g.Max()
		}
		r.Waiting = short(waiting, quantity.None) + " queued"
	}
	lost, _ := rise(rec, metric.TCPRetransSegs)
	if sent, ok := rise(rec, metric.TCPOutSegs); ok {
		r.Errors = wholeShare(lost/max(sent, lost, 1)) + " resent"
	}
	refused, _ := rise(rec, metric.ListenOverflows)
	if failed, _, ok := evidence.Rise("", rec.Counter(metric.ConnectFailures, "netns", metric.NetNSTarget)); ok {
		refused += failed.Number()
	}
	if refused > 0 {
		r.Errors = short(refused/max(rec.Meta.Duration, 1), "1/s") + " failed"
	}
}

// short writes a number as people do if there is no room for more: "115k/s", "1.2M", "23 GiB".
func short(n float64, unit quantity.Unit) string {
	if unit == quantity.Bytes || unit == "B/s" {
		number, word, _ := strings.Cut(quantity.Of("", n, unit).Text(), " ")
		var f float64
		if _, err := fmt.Sscan(number, &f); err == nil {
			number = digits(f)
		}
		return number + " " + word
	}
	per := ""
	if unit == "1/s" {
		per = "/s"
	}
	switch {
	case n >= 1e6:
		return digits(n/1e6) + "M" + per
	case n >= 1e4:
		return digits(n/1e3) + "k" + per
	case n >= 1e3:
		return fmt.Sprintf("%.0f%s", n, per)
	}
	return digits(n) + per
}

// digits keeps two digits, or all digits of a whole number: "0.53", "4.2", "115".
func digits(n float64) string {
	switch {
	case n >= 10:
		return fmt.Sprintf("%.0f", n)
	case n >= 1:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", n), ".0")
	}
	return strings.TrimSuffix(fmt.Sprintf("%.2g", n), ".0")
}

// strip writes the resources, one per line. If a verdict does not fit, its severity stands for it: the findings name
// the check. If the width is too small for a table, each resource is a sentence.
func (t *text) strip() {
	if len(t.d.Resources) == 0 {
		return
	}
	t.blank()
	if t.width < leastForLabels {
		t.line(bold, "RESOURCES", "", "")
		for _, r := range t.d.Resources {
			t.line(plain, "  "+r.Name+": ", "    ", fmt.Sprintf("used %s, waiting %s, errors %s: %s", r.Used, r.Waiting,
				r.Errors, r.Verdict))
		}
		return
	}
	rows := [][]string{{"RESOURCES", "used", "waiting", "errors"}}
	for _, r := range t.d.Resources {
		waiting := r.Waiting
		if t.width < defaultWidth {
			waiting = strings.TrimSuffix(waiting, ofTime)
		}
		rows = append(rows, []string{"  " + r.Name, r.Used, waiting, r.Errors})
	}
	gap := "  "
	if t.width < defaultWidth {
		gap = " "
	}
	for i, row := range padded(rows) {
		head := clean(strings.Join(row, gap)) + gap
		if i == 0 {
			t.line(bold, head+"verdict", "", "")
			continue
		}
		r := t.d.Resources[i-1]
		verdict := r.Verdict
		if utf8.RuneCountInString(head+verdict) > t.width && r.Severity > 0 {
			verdict = r.Severity.String()
		}
		t.b.WriteString(head + t.paint(r.style(), clean(verdict)) + "\n")
	}
}

func (r *Resource) style() style {
	if r.Severity > 0 {
		return severityStyle(r.Severity)
	}
	if r.Verdict == passed {
		return green
	}
	return faint
}
