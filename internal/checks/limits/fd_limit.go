package limits

import (
	"fmt"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramFDShare = &check.Param{
		Name: "fd-share", Default: 0.8, Unit: quantity.Ratio,
		Why: "a burst of reconnects doubles the sockets of one backend for a moment; a fifth is the room for it",
	}
	paramFDCritical = &check.Param{
		Name: "fd-share-critical", Default: 0.95, Unit: quantity.Ratio,
		Why: "with a twentieth left the next burst makes accept, open and DNS lookups fail with EMFILE",
	}
)

var fdLimit = &check.Check{
	Name:  "fd-limit",
	Stage: check.Limits,
	Doc: `A process comes near its limit of open files

At the limit accept(), connect() and open() fail with EMFILE: connections are
refused by a process that looks healthy, and log files and name lookups fail
too.

Measured: open descriptors against the soft RLIMIT_NOFILE, per process of the
target. A level alone is info, because pools may be large on purpose; it is a
warning when the number grows so that it is full soon (the arithmetic is
shown), and critical when hardly any is left. A server with a limit below the
kernel's default has set it itself: there the level is info while no connection
waits to be accepted.

Fix: close what leaks (CLOSE_WAIT sockets, files), then raise the limit. Risk:
a higher limit only delays a leak, and programs that use select() break above
1024.
Won't help: fs.file-max, the limit of the whole host.
Disproof: the number falls again by itself within minutes.`,
	URL:   "https://man7.org/linux/man-pages/man2/getrlimit.2.html",
	Needs: []metric.Metric{metric.ProcessFDs, metric.ProcessFDLimit},
	Uses: []metric.Metric{
		metric.TargetListenPorts, metric.ListenerQueue, metric.ListenerSockets, metric.DestinationOwner,
	},
	Params: []*check.Param{paramFDShare, paramFDCritical, evidence.ParamFullSoon},
	Run:    runFDLimit,
}

func runFDLimit(p *check.Pass) error {
	if s := evidence.FullestShare(p, metric.ProcessFDs, metric.ProcessFDLimit); s != nil {
		p.Read(s.Share.Named("open files / limit"))
	}
	for _, s := range evidence.LimitShares(p, metric.ProcessFDs, metric.ProcessFDLimit) {
		if s.Share.AtLeast(p.Param(paramFDShare)) {
			p.Report(fdFinding(p, s))
		}
	}
	return nil
}

func fdFinding(p *check.Pass, s *evidence.LimitShare) check.Finding {
	pid := s.Label("pid")
	f := check.Finding{
		Subject:  evidence.PIDSubject(pid, s.Label("comm")),
		Severity: check.Info,
		Summary: fmt.Sprintf("%.0f of at most %s are open, %s of the limit%s", s.Used.Number(), s.Limit.Text(),
			s.Share.Text(), s.Forecast(p)),
		Evidence: s.Evidence(),
		Remedies: []check.Remedy{
			{
				Action: "Find what is left open and close it.",
				Command: check.Commandf("ls -l /proc/%s/fd | awk '{print $NF}' | sed 's/[0-9]\\+//g' | "+
					"sort | uniq -c | sort -rn | head", pid),
				Risk:   "none: it only reads",
				Effect: fmt.Sprintf("open files stay below %s", p.Param(paramFDShare).Times(s.Limit).Text()),
			},
			{
				Action: "Raise the soft limit of the running process (for good: LimitNOFILE of the unit, or the " +
					"container's ulimit).",
				Command: check.Commandf("prlimit --pid %s --nofile=%.0f:", pid, 2*s.Limit.Number()),
				Risk:    "only delays a leak; must not exceed the hard limit; select() breaks above 1024",
				Effect: fmt.Sprintf("share %s -> %s", s.Share.Text(),
					quantity.Of("", s.Share.Number()/2, quantity.Ratio).Text()),
			},
		},
		Placebos: []string{"fs.file-max: it is the limit of the whole host, not of a process."},
		Disproof: fmt.Sprintf("The number falls again by itself: ls /proc/%s/fd | wc -l", check.Quote(pid)),
	}
	if open := mostOpen(p, pid, s.Used); open != "" {
		f.Summary += " Most of them are " + open + "."
	}
	chosen := byDesign(p, s)
	switch {
	case chosen:
		f.Notes = append(f.Notes, "it listens with a limit that is lower than any default, and no connection waits "+
			"to be accepted: so the limit was set for this number of connections")
	case s.Limit.Number() < fewestByDefault && len(p.Info(metric.TargetListenPorts)) > 0:
		limitsItself(&f)
	}
	switch {
	case s.Share.AtLeast(p.Param(paramFDCritical)) && !chosen:
		f.Severity = check.Critical
		f.Weight = min(1, s.Share.Number()) // of what can be opened
	case s.Soon(p):
		f.Severity = check.Warning
	}
	return f
}

// mostOpen names the connections that are at least half of a process's open files; "" if none are.
func mostOpen(p *check.Pass, pid string, used quantity.Value) string {
	half := used.Number() / 2
	for _, s := range p.Gauge(metric.DestinationOwner, "pid", pid) {
		if s.Max() >= half {
			return "connections to " + s.Label("destination")
		}
	}
	for _, l := range p.Info(metric.TargetListenPorts, "pid", pid) {
		at := l.Label("listener")
		for _, s := range p.Gauge(metric.ListenerSockets, "listener", at, "state", evidence.Established) {
			if s.Max() >= half {
				return "connections of clients at " + at
			}
		}
	}
	return ""
}

// limitsItself says where a server sets the limit of its own by which it refuses connections.
func limitsItself(f *check.Finding) {
	f.Notes = append(f.Notes, "the limit is lower than any default, so the server or its unit set it: memcached by "+
		"its number of connections (-c)")
	f.Remedies = slices.Insert(f.Remedies, 0, check.Remedy{
		Action: "Raise the server's own limit of connections (memcached -c, maxclients, worker_connections), or let " +
			"clients keep fewer of them open.",
		Risk:   "each connection takes memory of the server",
		Effect: "connections are accepted as they come",
	})
}

// fewestByDefault is the soft limit that the kernel gives the first process (INR_OPEN_CUR, include/uapi/linux/fs.h).
// A process with less has it on purpose, such as memcached, which limits itself to its number of connections and may
// use all of it.
const fewestByDefault = 1024

// byDesign reports whether a server that set itself a low limit refuses nobody: no connection waits to be accepted.
func byDesign(p *check.Pass, s *evidence.LimitShare) bool {
	listeners := p.Info(metric.TargetListenPorts)
	if s.Limit.Number() >= fewestByDefault || len(listeners) == 0 {
		return false
	}
	for _, l := range listeners {
		queues := p.Gauge(metric.ListenerQueue, "listener", l.Label("listener"))
		if len(queues) == 0 {
			return false
		}
		for _, q := range queues {
			if slices.ContainsFunc(q.Points, func(at recording.Point) bool { return at.Value > 0 }) {
				return false
			}
		}
	}
	return true
}
