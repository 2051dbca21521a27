package kernel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var governorBusy = &check.Param{
	Name: "busy", Default: 0.5, Unit: quantity.Ratio,
	Why: "an idle CPU may be slow; at half load every request already takes longer than it has to",
}

// governorOwnScaling lists the drivers whose "powersave" is only a preference and scales with the load by itself
// (Documentation/admin-guide/pm/intel_pstate.rst active mode, amd-pstate.rst active mode).
var governorOwnScaling = []string{"intel_pstate", "amd-pstate-epp", "amd_pstate_epp"}

var governor = &check.Check{
	Name:  "governor",
	Stage: check.Kernel,
	Doc: `The CPUs are held at a low frequency while they are busy

With the governor "powersave" most cpufreq drivers keep a CPU at its lowest frequency whatever the load, and
"conservative" raises it slowly. All CPU times are then longer than they have to be.

The drivers intel_pstate and amd-pstate-epp in active mode have a "powersave" of their own that follows the load. That
is normal and not reported. The check needs the CPUs to be busy. Without the driver's name it only mentions the
governor. In most virtual machines the host decides and there is no cpufreq driver: then there is nothing to read.

Fix: schedutil or performance. Risk: power and heat. Disproof: turbostat or scaling_cur_freq shows the CPUs near
their highest frequency.`,
	URL:    "https://docs.kernel.org/admin-guide/pm/cpufreq.html",
	Needs:  []metric.Metric{metric.Governor, metric.CPUSeconds},
	Params: []*check.Param{governorBusy},
	Run:    runGovernor,
}

func runGovernor(p *check.Pass) error {
	_, all, err := evidence.CPUTimes(p)
	if err != nil {
		return err
	}
	p.Read(all.Load())
	if all.Load().Below(p.Param(governorBusy)) {
		return nil
	}
	for _, name := range []string{"powersave", "conservative"} {
		slow := p.Info(metric.Governor, "governor", name)
		slow = slices.DeleteFunc(slow, func(s *recording.Series) bool {
			return slices.Contains(governorOwnScaling,
				s.Label("driver"))
		})
		if len(slow) > 0 {
			reportGovernor(p, name, slow, all)
		}
	}
	return nil
}

func reportGovernor(p *check.Pass, name string, slow []*recording.Series, all evidence.CPUTime) {
	drivers := evidence.LabelValues(slow, "driver")
	f := check.Finding{
		Subject:  check.Host,
		Severity: check.Warning,
		Summary: fmt.Sprintf("%d CPUs use the frequency governor %s while the CPUs are %s busy", len(slow), name,
			all.Load().Text()),
		Evidence: []quantity.Value{
			quantity.Of("CPUs with governor "+name, float64(len(slow)), quantity.CPUs),
			all.Load(),
		},
		Notes: []string{"cpufreq driver: " + strings.Join(drivers, ", ")},
		Remedies: []check.Remedy{{
			Action:  "Use a governor that follows the load.",
			Command: "cpupower frequency-set -g schedutil (or performance)",
			Risk:    "More power and heat.",
			Effect: "CPU time per request falls by the ratio of the frequencies (see scaling_min_freq and " +
				"scaling_max_freq)",
		}},
		Disproof: "grep . /sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq: near scaling_max_freq under load.",
	}
	if name != "powersave" {
		f.Severity = check.Info // it reaches the highest frequency, but late
	}
	if slices.Contains(drivers, "") {
		f.Severity, f.Confidence, f.Notes = check.Info, check.Low, nil
		f.Doubts = []string{"the cpufreq driver is not known; with intel_pstate or amd-pstate in active mode this " +
			"governor is normal"}
	}
	p.Report(f)
}
