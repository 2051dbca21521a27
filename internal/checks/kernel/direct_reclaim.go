package kernel

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var reclaimStalls = &check.Param{
	Name: "stalls", Default: 10, Unit: evidence.Hz,
	Why: "each stops an allocating thread for 0.1 to 100 ms; kswapd alone should keep up, so a few a second mean it " +
		"does not",
}

var directReclaim = &check.Check{
	Name:  "direct-reclaim",
	Stage: check.Kernel,
	Doc: `Programs stop to free memory themselves

When free memory falls below the low watermark kswapd frees some in the background. When that is not enough, the thread
that allocates must reclaim pages itself before it goes on (allocstall). That delays any program, at any allocation,
and shows as sy time.

The check takes the host's rate of such stalls and the pages scanned for them. Reclaim within a memory cgroup is not
included (mm/vmscan.c counts it apart). It is a warning when PSI says that work waited for memory: copying large files
through a full page cache gives stalls without harm.

Fixes: less memory in use; a higher vm.watermark_scale_factor or vm.min_free_kbytes wakes kswapd earlier. Won't help:
dropping caches by hand. Disproof: allocstall_* in /proc/vmstat does not rise.`,
	URL:   "https://docs.kernel.org/admin-guide/mm/concepts.html",
	Needs: []metric.Metric{metric.AllocStalls},
	Uses: []metric.Metric{
		metric.DirectScan, metric.DirectReclaimed, metric.Pressure, metric.MemoryAvailable, metric.MemoryTotal,
	},
	Params: []*check.Param{reclaimStalls, evidence.ParamMemoryStalled},
	Run:    runDirectReclaim,
}

func runDirectReclaim(p *check.Pass) error {
	stalls, ok := evidence.RateOf("allocations that had to reclaim first", p.Counter(metric.AllocStalls))
	if !ok {
		return evidence.OneSample()
	}
	p.Read(stalls)
	if stalls.Below(p.Param(reclaimStalls)) {
		return nil
	}
	f := check.Finding{
		Subject:  check.Host,
		Severity: check.Info,
		Summary: fmt.Sprintf("programs stopped %s times a second to free memory themselves",
			evidence.WithoutUnit(stalls)),
		Evidence: []quantity.Value{stalls},
		Remedies: []check.Remedy{
			evidence.MoreMemory("stalls from " + stalls.Text() + " to 0"),
			{
				Action:  "Let kswapd start earlier.",
				Command: "sysctl -w vm.watermark_scale_factor=100",
				Risk:    "Keeps 1 % of memory free between the watermarks, where the default of 10 keeps 0.1 %.",
				Effect:  "fewer stalls when allocations come in bursts; none when memory is simply short",
			},
		},
		Placebos: []string{"echo 3 > /proc/sys/vm/drop_caches: the cache is read again from disk at once."},
		Disproof: "grep allocstall /proc/vmstat: the numbers do not rise while the load runs.",
	}
	if scanned, ok := evidence.RateOf("pages scanned by those allocations", p.Counter(metric.DirectScan)); ok {
		f.Evidence = append(f.Evidence, scanned)
	}
	evidence.AddMemoryLeft(p, &f)
	if evidence.AddMemoryStalls(p, &f) {
		f.Severity = check.Warning
		f.Summary += "; work waited for memory"
	}
	p.Report(f)
	return nil
}
