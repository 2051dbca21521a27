package path

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	imbalanceHot = &check.Param{
		Name: "hot-softirq", Default: 0.5, Unit: quantity.Ratio,
		Why: "below half of one CPU an uneven share costs nobody anything; a healthy loopback server has 30 % on each",
	}
	imbalanceShare = &check.Param{
		Name: "over-fair", Default: 1.5, Unit: "times",
		Why: "with two CPUs it means 75 % against 25 %; nearer to the fair share there is little to move",
	}
	imbalanceFull = &check.Param{
		Name: "full-softirq", Default: 0.7, Unit: quantity.Ratio,
		Why: "ticks miss short bursts: a CPU at 70 % over seconds is at 100 % for many milliseconds, which is when " +
			"packets wait",
	}
	imbalanceBusy = &check.Param{
		Name: "full-busy", Default: 0.95, Unit: quantity.Ratio,
		Why: "a CPU that is busy all the time makes packets wait for the program or the program for packets",
	}
	imbalanceRoom = &check.Param{
		Name: "others-busy", Default: 0.8, Unit: quantity.Ratio,
		Why: "where the other CPUs are full too, as under a load generator on the same host, there is nowhere to " +
			"move softirqs to",
	}
)

var softirqImbalance = &check.Check{
	Name:  "softirq-imbalance",
	Stage: check.Path,
	Doc: `One CPU handles most packets

Packets, timers and block completions are finished in softirq. When most of that work lands on one CPU, that CPU is
the limit while the others rest. The check compares softirq *time*: the busiest CPU's share of all softirq time
against its fair share, one over the number of CPUs.

It looks only at a CPU that spends more than half its time in softirq. Counts of softirqs are useless here: two idle
CPUs differ by any factor, and a saturated CPU runs few, long softirqs. It is a warning when that CPU has hardly any
time left while others have some, else a fact. A host with one CPU has no imbalance.

Fixes: spread the device's interrupts (irqbalance, smp_affinity), use its hardware queues (RSS, ethtool -L), or steer
packets (RPS). Disproof: mpstat -P ALL 1 shows %soft evenly spread.`,
	URL:   "https://docs.kernel.org/networking/scaling.html",
	Needs: []metric.Metric{metric.CPUSeconds},
	Uses: append(evidence.VectorUses(), metric.SoftnetProcessed, metric.SoftnetDropped, metric.QueueRPS,
		metric.DevicePackets),
	Params: []*check.Param{
		imbalanceHot, imbalanceShare, imbalanceFull, imbalanceBusy, imbalanceRoom,
		evidence.ParamBusyEnough,
	},
	Run: runSoftirqImbalance,
}

func runSoftirqImbalance(p *check.Pass) error {
	each, all, err := evidence.CPUTimes(p)
	if err != nil {
		return err
	}
	hot, others := evidence.HottestSoftirq(each)
	p.Read(hot.Softirq())
	total := all.Time("softirq time of all CPUs", "softirq")
	if len(others) == 0 || total.Below(p.Param(evidence.ParamBusyEnough)) || !hot.Softirq().
		Above(p.Param(imbalanceHot)) {
		return nil
	}
	share := hot.Time("softirq", "softirq").Per(total).Named("share of all softirq time that %s has", hot.Name())
	fair := quantity.Of("", 1, quantity.CPUs).Per(quantity.Of("", float64(len(each)), quantity.CPUs)).
		Named("fair share")
	if share.Per(fair).As(imbalanceShare.Unit).Below(p.Param(imbalanceShare)) {
		return nil
	}
	f := check.Finding{
		Subject:  evidence.CPUSubject(hot.ID),
		Severity: check.Info,
		Summary: fmt.Sprintf("%s has %s of all softirq time (fair: %s) and spends %s of its time in it", hot.Name(),
			share.Text(),
			fair.Text(), hot.Softirq().Text()),
		Evidence: []quantity.Value{share, fair, hot.Softirq(), hot.Load(), evidence.MedianSoftirq(others)},
		Remedies: []check.Remedy{evidence.SpreadReceive(p, evidence.HostNetNS(p), hot, each, all)},
		Placebos: []string{evidence.BacklogPlacebo},
		Disproof: "mpstat -P ALL 1: if %soft is even over the CPUs, or the CPU is mostly idle, this is wrong.",
	}
	crowded := hot.Load().AtLeast(p.Param(imbalanceBusy)) && medianLoad(others).Below(p.Param(imbalanceRoom))
	if hot.Softirq().AtLeast(p.Param(imbalanceFull)) || crowded {
		f.Severity = check.Warning
	}
	vector, load, part, timed := evidence.TopVector(p, hot.ID)
	if timed {
		f.Evidence = append(f.Evidence, load, part)
	}
	if processed, _, ok := evidence.SoftnetOn(p, hot.ID); timed && !evidence.OfNetwork(vector) {
		f.Remedies = nil // steering packets moves nothing
		f.Notes = append(f.Notes, "most of it is "+vector+", not packets: see what raises it before anything is moved")
	} else if !timed && (!ok || processed.Number() == 0) {
		f.Confidence = check.Medium
		f.Doubts = append(f.Doubts, "no packet counts of this CPU were recorded: the softirqs may be timers or "+
			"block completions")
	}
	p.Report(f)
	return nil
}

// medianLoad returns the median share of time that CPUs are busy.
func medianLoad(cpus []evidence.CPUTime) quantity.Value {
	return evidence.MedianShare("busy, median share of the other CPUs", cpus, evidence.CPUTime.Load)
}
