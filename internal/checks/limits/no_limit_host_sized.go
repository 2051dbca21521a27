package limits

import (
	"fmt"
	"math"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramRequestShare = &check.Param{
		Name: "request-share", Default: 0.25, Unit: quantity.Ratio,
		Why: "a container that asked for a quarter of the host or less has at least three such neighbours when " +
			"the host is full",
	}
	paramHostCPUs = &check.Param{
		Name: "host-cpus", Default: 8, Unit: quantity.CPUs,
		Why: "HotSpot starts one GC thread a CPU up to eight CPUs; on smaller hosts pools of the host's size cost " +
			"little",
	}
)

var noLimitHostSized = &check.Check{
	Name:  "no-limit-host-sized",
	Stage: check.Limits,
	Doc: `A container without a CPU limit sizes its pools to the whole host

Without a limit a runtime counts all CPUs of the host as its own: it starts as
many event loops, GC and compiler threads as the host has CPUs, although the
container asked for a fraction. On a quiet host that is harmless; on a full one
all these threads compete for the fraction.

Measured: no CPU limit and no smaller cpuset at any level, the container's
request (from its weight) against the host's CPUs, and the threads of the pools
known to be sized by CPUs. It is a level without a sign of harm, and so never a
warning.

Fix: keep the container without a limit, but set the number of CPUs the runtime
should see. Risk: less parallel work on an idle host.
Won't help: adding a limit only to shrink the pools; it adds throttling.
Disproof: the pools were given their size on purpose (command line).`,
	URL: "https://docs.oracle.com/en/java/javase/17/docs/specs/man/java.html",
	Needs: []metric.Metric{
		metric.TargetInfo, metric.CgroupQuota, metric.CgroupShares, metric.ThreadPools,
		metric.CPUsOnline,
	},
	Uses:   []metric.Metric{metric.CgroupCpuset, metric.TargetCPUs},
	Params: []*check.Param{paramRequestShare, paramHostCPUs, evidence.ParamPoolFloor},
	Beyond: "the intent of whoever set its sizes",
	Run:    runNoLimitHostSized,
}

func runNoLimitHostSized(p *check.Pass) error {
	host, ok := evidence.OnlineCPUs(p)
	if !ok {
		return check.NotAssessed("", "the host's CPUs were not counted")
	}
	p.Read(host)
	cpus, _ := evidence.EffectiveCPUs(p)
	shares := p.Gauge(metric.CgroupShares, "level", "0")
	limited := cpus.Below(host) || len(p.Gauge(metric.CgroupQuota)) > 0
	if !inContainer(p) || limited || len(shares) == 0 || host.Below(p.Param(paramHostCPUs)) {
		return nil
	}
	request := quantity.Of("CPU request", shares[0].Last(), quantity.CPUs)
	share := request.Per(host).Named("request / host")
	p.Read(share)
	pools := evidence.HostSizedPools(p, host.As(quantity.Threads))
	if share.Above(p.Param(paramRequestShare)) || len(pools) == 0 {
		return nil
	}
	p.Report(hostSizedFinding(p, host, request, share, pools))
	return nil
}

func inContainer(p *check.Pass) bool {
	for _, s := range p.Info(metric.TargetInfo) {
		if s.Label("container") != "" {
			return true
		}
	}
	return false
}

func hostSizedFinding(p *check.Pass, host, request, share quantity.Value, pools []quantity.Value) check.Finding {
	want := math.Max(2, math.Ceil(request.Number()))
	f := check.Finding{
		Subject:  check.Subject{Kind: "pool", ID: pools[0].Label()},
		Severity: check.Info,
		Summary: fmt.Sprintf("No CPU limit, a request of %s: pool %s has %s, sized to the host's %s.",
			request.Text(), pools[0].Label(), pools[0].Text(), host.Text()),
		Evidence: append([]quantity.Value{share}, pools...),
		Remedies: []check.Remedy{{
			Action: fmt.Sprintf("Keep it without a limit, but tell the runtime how many CPUs to assume (%s).",
				evidence.TellCPUs(p, want)),
			Risk:   "less parallel work, GC included, on a host that is otherwise idle; needs a restart",
			Effect: fmt.Sprintf("pool %s %s -> about %.0f threads", pools[0].Label(), pools[0].Text(), want),
		}},
		Placebos: []string{"A CPU limit, only to shrink the pools: it adds throttling."},
		Disproof: "The pools were given this size on purpose: look at the command line.",
	}
	return f
}
