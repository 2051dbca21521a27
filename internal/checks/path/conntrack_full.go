package path

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	conntrackWarn = &check.Param{
		Name: "level-warn", Default: 0.75, Unit: quantity.Ratio,
		Why: "closed connections stay for minutes, so one burst of a third more fills the rest",
	}
	conntrackCritical = &check.Param{
		Name: "level-critical", Default: 0.9, Unit: quantity.Ratio,
		Why: "new connections fail at once when it is full, and at 95 % the kernel begins to evict " +
			"(net/netfilter/nf_conntrack_core.c)",
	}
	conntrackForecast = &check.Param{
		Name: "full-within", Default: 60, Unit: quantity.Seconds,
		Why: "entries of closed connections leave after 120 s by default: growth that fills the table in half of " +
			"that does " +
			"not level off first",
	}
	conntrackFloor = &check.Param{
		Name: "forecast-level", Default: 0.25, Unit: quantity.Ratio,
		Why: "a forecast from a nearly empty table is a guess about how long the growth will last",
	}
	conntrackEntry = &check.Param{
		Name: "entry-size", Default: 320, Unit: "B/entries",
		Why: "about what an entry takes on amd64 (include/net/netfilter/nf_conntrack.h, with its extensions); not " +
			"swappable",
	}
	conntrackGrow = &check.Param{
		Name: "grow-by", Default: 4, Unit: quantity.None,
		Why: "a table that is full today should be a quarter full tomorrow",
	}
)

var conntrackFull = &check.Check{
	Name:  "conntrack-full",
	Stage: check.Path,
	Doc: `The connection tracking table is full, or soon will be

With NAT or stateful rules the kernel keeps an entry for each connection. When nf_conntrack_max entries exist in a
network namespace, the first packet of a new connection is dropped: connections time out while the host looks idle.
The limit is for the whole host, the count is per namespace. A closed connection stays for
nf_conntrack_tcp_timeout_time_wait, so short connections have a ceiling of limit / timeout a second.

The check takes the highest count of the window against the limit, drops, evictions (early_drop) and the growth: "full
in 40 s". It is critical when nearly full or when packets are dropped at a high level. Drops or failed inserts in a
table with room are clashes of two packets of one new flow, known from DNS over UDP; they are no warning about the
size.

Fixes: raise the limit (its memory is computed), do not track what needs no tracking (NOTRACK), keep connections
alive, shorten the time_wait timeout. Disproof: conntrack -S shows no drop while the count stays level.`,
	URL:   "https://docs.kernel.org/networking/nf_conntrack-sysctl.html",
	Needs: []metric.Metric{metric.ConntrackEntries, metric.ConntrackMax},
	Uses: []metric.Metric{
		metric.ConntrackDrops, metric.ConntrackInsertFailed, metric.ConntrackEarlyDrops,
		metric.ConntrackTimeWait,
	},
	Params: []*check.Param{
		conntrackWarn, conntrackCritical, conntrackForecast, conntrackFloor, conntrackEntry,
		conntrackGrow,
	},
	Run: runConntrackFull,
}

// conntrackTable is one namespace's table over the window.
type conntrackTable struct {
	netns                          string
	limit, level                   quantity.Value
	dropped, evicted, insertFailed quantity.Value // per second; a zero rate where the counter was not recorded
	growth, full                   quantity.Value // full is the time until the table is full
	filling                        bool           // growth and full are known and growth is positive
}

func runConntrackFull(p *check.Pass) error {
	for _, s := range p.Gauge(metric.ConntrackEntries) {
		limits := p.Gauge(metric.ConntrackMax, "netns", s.Label("netns"))
		if len(limits) == 0 || limits[0].Last() <= 0 {
			continue
		}
		t := readConntrack(p, s, quantity.Of("limit", limits[0].Last(), quantity.Entries))
		p.Read(t.level)
		if sev, why := conntrackSeverity(p, t); sev > 0 {
			p.Report(conntrackFinding(p, t, sev, why))
		}
	}
	return nil
}

func readConntrack(p *check.Pass, s recording.GaugeSeries, limit quantity.Value) conntrackTable {
	netns := s.Label("netns")
	t := conntrackTable{netns: netns, limit: limit}
	t.level = quantity.Of("entries", s.Max(), quantity.Entries).Per(limit).
		Named("tracked connections of the %s's namespace", netns)
	t.dropped = conntrackRate(p, "packets dropped", metric.ConntrackDrops, netns)
	t.evicted = conntrackRate(p, "entries evicted to make room", metric.ConntrackEarlyDrops, netns)
	t.insertFailed = conntrackRate(p, "entries that could not be inserted", metric.ConntrackInsertFailed, netns)
	grown := quantity.Of("", s.Last()-s.First(), quantity.Entries)
	if s.Span() > 0 && grown.Number() > 0 {
		t.filling = true
		t.growth = grown.Per(evidence.Span(s.Series)).Named("growth")
		t.full = limit.Minus(quantity.Of("", s.Last(), quantity.Entries)).Per(t.growth).As(quantity.Seconds).
			Named("full in")
	}
	return t
}

func conntrackRate(p *check.Pass, label string, c *metric.Counter, netns string) quantity.Value {
	rate, ok := evidence.RateOf(label, p.Counter(c, "netns", netns))
	if !ok {
		return quantity.Of(label, 0, c.Describe().Unit.Per(quantity.Seconds))
	}
	return rate
}

// conntrackSeverity returns the severity and what decided it; it is zero when the table is fine.
func conntrackSeverity(p *check.Pass, t conntrackTable) (check.Severity, string) {
	high := t.level.AtLeast(p.Param(conntrackWarn))
	switch {
	case high && t.dropped.Number() > 0:
		return check.Critical, "it drops " + t.dropped.Text()
	case t.level.AtLeast(p.Param(conntrackCritical)):
		return check.Critical, "the limit is " + t.limit.Text()
	case t.evicted.Number() > 0:
		return check.Warning, "it evicts " + t.evicted.Text()
	case high:
		return check.Warning, "the limit is " + t.limit.Text()
	case t.filling && t.level.AtLeast(p.Param(conntrackFloor)) && !t.full.Above(p.Param(conntrackForecast)):
		return check.Warning, "at this growth it is full in " + t.full.Text()
	case t.dropped.Number() > 0:
		return check.Info, t.dropped.Text() + " are dropped: clashes of new flows"
	case t.insertFailed.Number() > 0:
		return check.Info, t.insertFailed.Text() + " were not inserted: clashes of new flows"
	}
	return 0, ""
}

func conntrackFinding(p *check.Pass, t conntrackTable, sev check.Severity, why string) check.Finding {
	f := check.Finding{
		Subject:  evidence.NetnsOf(p, t.netns),
		Severity: sev,
		Summary:  fmt.Sprintf("connection tracking of the %s's namespace is %s full; %s", t.netns, t.level.Text(), why),
		Evidence: []quantity.Value{t.level},
		Disproof: "conntrack -S shows no drop and no early_drop while the load runs, and nf_conntrack_count stays " +
			"level.",
	}
	if t.filling {
		f.Evidence = append(f.Evidence, t.growth, t.full)
	}
	for _, v := range []quantity.Value{t.dropped, t.evicted, t.insertFailed} {
		if v.Number() > 0 {
			f.Evidence = append(f.Evidence, v)
		}
	}
	if sev == check.Info {
		f.Remedies = []check.Remedy{{
			Action: "Do not track flows that race, most often DNS over UDP from many threads, or use TCP or a " +
				"local cache for it.",
			Command: "nft add rule ip raw prerouting udp dport 53 notrack (and the same in output)",
			Risk:    "Untracked flows get no NAT and no stateful rule.",
			Effect:  "insert_failed and drop towards 0",
		}}
		return f
	}
	if t.level.Below(p.Param(conntrackWarn)) && t.evicted.Number() == 0 {
		f.Confidence = check.Medium
		f.Doubts = []string{"the forecast assumes that the growth of this window goes on; it levels off if the load " +
			"began just now"}
	}
	if !p.Recorded(metric.ConntrackDrops) {
		f.Confidence = check.Medium
		f.Doubts = append(f.Doubts, "the drop counters were not recorded")
	}
	f.Remedies = conntrackRemedies(p, &f, t)
	f.Placebos = []string{"net.ipv4.tcp_fin_timeout and tcp_tw_reuse are about sockets; the table has timeouts of " +
		"its own."}
	return f
}

func conntrackRemedies(p *check.Pass, f *check.Finding, t conntrackTable) []check.Remedy {
	want := t.limit.Times(p.Param(conntrackGrow))
	memory := want.Times(p.Param(conntrackEntry)).As(quantity.Bytes)
	out := []check.Remedy{{
		Action: "Raise the limit, which is set on the host for all namespaces, and the number of hash buckets with it.",
		Command: check.Commandf("sysctl -w net.netfilter.nf_conntrack_max=%.0f net.netfilter.nf_conntrack_buckets=%.0f",
			want.Number(), want.Number()),
		Risk: fmt.Sprintf("Kernel memory of about %s when full (%s × %s).", memory.Text(), want.Text(),
			p.Param(conntrackEntry).Text()),
		Effect: fmt.Sprintf("level from %s to %s", t.level.Text(), t.level.Per(p.Param(conntrackGrow)).Text()),
	}}
	short := check.Remedy{
		Action: "Keep connections alive, or do not track what needs no NAT and no stateful rule (notrack).",
		Risk:   "Untracked flows get no NAT and no stateful rule.",
		Effect: "fewer new entries a second",
	}
	if tw := p.Gauge(metric.ConntrackTimeWait, "netns", t.netns); len(tw) > 0 && tw[0].Last() > 0 {
		timeout := quantity.Of("time_wait timeout", tw[0].Last(), quantity.Seconds)
		ceiling := t.limit.Per(timeout).As("connections/s").Named("most short connections the table can sustain")
		f.Evidence = append(f.Evidence, ceiling)
		short.Effect = "short connections below " + ceiling.Text()
		out = append(out, short, shorterTimeout(t, timeout))
		return out
	}
	return append(out, short)
}

// shortTimeWait is what the timeout can go down to, in seconds: late segments of a closed connection are gone well
// before (a retransmission timeout of 200 ms at least, and a few tries).
const shortTimeWait = 30

func shorterTimeout(t conntrackTable, now quantity.Value) check.Remedy {
	want := quantity.Of("", min(shortTimeWait, now.Number()), quantity.Seconds)
	return check.Remedy{
		Action:  "Let closed connections leave the table sooner.",
		Command: check.Commandf("sysctl -w net.netfilter.nf_conntrack_tcp_timeout_time_wait=%.0f", want.Number()),
		Risk:    "A late packet of a closed connection is then taken as invalid or as a new flow.",
		Effect:  "short connections up to " + t.limit.Per(want).As("connections/s").Text(),
	}
}
