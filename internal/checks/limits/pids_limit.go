package limits

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramPIDsShare = &check.Param{
		Name: "pids-share", Default: 0.9, Unit: quantity.Ratio,
		Why: "a thread pool that grows to its maximum takes the last tenth at once",
	}
	paramPIDsHigh = &check.Param{
		Name: "pids-share-high", Default: 0.95, Unit: quantity.Ratio,
		Why: "with a twentieth left a restart beside the old process, or one more pool, fails",
	}
)

var pidsLimit = &check.Check{
	Name:  "pids-limit",
	Stage: check.Limits,
	Doc: `A cgroup comes near its limit of processes and threads

At the limit fork() and clone() fail with EAGAIN: a JVM throws "unable to create
native thread", a shell in the container does not start, and health checks that
run a command fail.

Measured: threads in the group against pids.max, in the target's cgroup and
every ancestor; the fullest level is named. A level alone is info; it is a
warning when the number grows so that it is full soon, or when hardly any is
left.

Fix: bound the thread pools, then raise the limit. Risk: a higher limit lets a
leak of threads use up memory.
Won't help: ulimit -u, which limits a user; kernel.pid_max, which limits the
host. Disproof: the number falls again by itself within minutes.`,
	URL:    "https://docs.kernel.org/admin-guide/cgroup-v2.html#pid",
	Needs:  []metric.Metric{metric.CgroupPIDs, metric.CgroupPIDsLimit},
	Uses:   []metric.Metric{metric.CgroupDir},
	Params: []*check.Param{paramPIDsShare, paramPIDsHigh, evidence.ParamFullSoon},
	Run:    runPIDsLimit,
}

func runPIDsLimit(p *check.Pass) error {
	s := evidence.FullestShare(p, metric.CgroupPIDs, metric.CgroupPIDsLimit)
	if s == nil {
		return nil
	}
	p.Read(s.Share.Named("threads / limit"))
	if s.Share.Below(p.Param(paramPIDsShare)) {
		return nil
	}
	cgroup, double := s.Label("cgroup"), fmt.Sprintf("%.0f", 2*s.Limit.Number())
	f := check.Finding{
		Subject:  check.Subject{Kind: "cgroup", ID: cgroup},
		Severity: check.Info,
		Summary: fmt.Sprintf("%s of at most %.0f, %s of the limit %s%s", s.Used.Text(), s.Limit.Number(),
			s.Share.Text(),
			s.LevelsAbove(), s.Forecast(p)),
		Evidence: s.Evidence(),
		Remedies: []check.Remedy{
			{
				Action: "Bound the pools that grow: compare the thread names of the group.",
				Risk:   "calls beyond the bound are queued or refused",
				Effect: fmt.Sprintf("the group stays below %s", p.Param(paramPIDsShare).Times(s.Limit).Text()),
			},
			{
				Action: "Raise the limit (Kubernetes: podPidsLimit of the kubelet; docker: --pids-limit; systemd: " +
					"TasksMax).",
				Command: evidence.KnobPIDsLimit.Set(p, cgroup, s.Label("level"), double, double),
				Risk:    "a leak of threads then uses up memory instead",
				Effect: fmt.Sprintf("share %s -> %s", s.Share.Text(),
					quantity.Of("", s.Share.Number()/2, quantity.Ratio).Text()),
			},
		},
		Placebos: []string{"ulimit -u and kernel.pid_max: other limits, of a user and of the host."},
		Disproof: "The number falls again by itself: cat " + evidence.KnobPIDs.File(p, cgroup, s.Label("level")),
	}
	if s.Soon(p) || s.Share.AtLeast(p.Param(paramPIDsHigh)) {
		f.Severity = check.Warning
	}
	p.Report(f)
	return nil
}
