package kernel

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	ioSome = &check.Param{
		Name: "stalled", Default: 0.2, Unit: quantity.Ratio,
		Why: "someone waited for storage in a fifth of the time",
	}
	ioFull = &check.Param{
		Name: "all-stalled", Default: 0.2, Unit: quantity.Ratio,
		Why: "in a fifth of the time nothing productive ran at all: that is lost work, not overlapped I/O",
	}
	ioLatency = &check.Param{
		Name: "latency", Default: 0.01, Unit: quantity.Seconds,
		Why: "a disk that turns needs 5 to 10 ms for a seek and flash far below 1 ms: above it requests wait in a " +
			"queue",
	}
	ioTargetBlocked = &check.Param{
		Name: "target-blocked", Default: 0.1, Unit: quantity.Threads,
		Why: "with fewer threads of the target in uninterruptible sleep, on average, it is another program that waits",
	}
	ioWaitShare = &check.Param{
		Name: "iowait", Default: 0.2, Unit: quantity.Ratio,
		Why: "without PSI: idle time with I/O outstanding; a busy CPU hides it, so only a large share counts",
	}
	ioBlocked = &check.Param{
		Name: "blocked", Default: 1, Unit: quantity.Threads,
		Why: "without PSI: a thread or more blocked on I/O at all times",
	}
)

var ioWait = &check.Check{
	Name:  "io-wait",
	Stage: check.Kernel,
	Doc: `Work waits for storage

The kernel's pressure stall information counts the time in which some tasks, or all that had work (full), waited for
block I/O. The check takes both as a share of the window, and the device that was slow: the time its requests took,
divided by the requests completed.

A copy on an idle host stalls itself all the time and harms nobody. So a warning needs full stalls and a device whose
requests queue, and for a target its own threads in uninterruptible sleep. Without PSI the old iowait share and the
blocked threads stand in, at low confidence: iowait is idle time, and vanishes when another program uses the CPU.

Fixes: fewer or larger requests, batching of fsync, a faster device, the noisy neighbour elsewhere, more memory when it
reads the same data again. Disproof: iostat -x 1 shows await low.`,
	URL:   "https://docs.kernel.org/accounting/psi.html",
	Needs: []metric.Metric{metric.CPUSeconds},
	Uses: []metric.Metric{
		metric.Pressure, metric.ProcsBlocked, metric.ThreadStates, metric.DiskReads, metric.DiskWrites,
		metric.DiskReadSeconds,
		metric.DiskWriteSeconds, metric.DiskBusySeconds,
	},
	Params: []*check.Param{ioSome, ioFull, ioLatency, ioTargetBlocked, ioWaitShare, ioBlocked},
	Run:    runIOWait,
}

func runIOWait(p *check.Pass) error {
	_, all, err := evidence.CPUTimes(p)
	if err != nil {
		return err
	}
	some, ok := evidence.Pressure(p, "io", "some")
	if !ok {
		return ioWaitWithoutPressure(p, all)
	}
	p.Read(some)
	if some.Below(p.Param(ioSome)) {
		return nil
	}
	f := ioFinding(p, fmt.Sprintf("work waited for storage in %s of the time", some.Text()))
	f.Evidence = append([]quantity.Value{some}, f.Evidence...)
	full, ok := evidence.Pressure(p, "io", "full")
	slow, known := evidence.SlowestDisk(p)
	if ok {
		f.Evidence = append(f.Evidence, full)
	}
	if ok && known && full.AtLeast(p.Param(ioFull)) && slow.Latency.AtLeast(p.Param(ioLatency)) &&
		!targetSpared(p, &f) {
		f.Severity = check.Warning
	}
	p.Report(f)
	return nil
}

func ioWaitWithoutPressure(p *check.Pass, all evidence.CPUTime) error {
	share := all.OfWall("iowait", "iowait")
	p.Read(share)
	blocked := p.Gauge(metric.ProcsBlocked)
	if share.Below(p.Param(ioWaitShare)) || len(blocked) == 0 {
		return nil
	}
	mean := quantity.Of("threads blocked on I/O, mean", blocked[0].Mean(), quantity.Threads)
	f := ioFinding(p, fmt.Sprintf("%s of the CPU time is idle with I/O outstanding, %s blocked", share.Text(),
		mean.Text()))
	f.Evidence = append([]quantity.Value{share, mean}, f.Evidence...)
	f.Confidence = check.Low
	f.Doubts = append(f.Doubts, "this kernel has no pressure stall information: iowait is a kind of idle time and "+
		"misses "+
		"I/O behind a busy CPU")
	slow, known := evidence.SlowestDisk(p)
	suffers := known && mean.AtLeast(p.Param(ioBlocked)) && slow.Latency.AtLeast(p.Param(ioLatency))
	if suffers && !targetSpared(p, &f) {
		f.Severity = check.Warning
	}
	p.Report(f)
	return nil
}

func ioFinding(p *check.Pass, summary string) check.Finding {
	f := check.Finding{
		Subject:  check.Host,
		Severity: check.Info,
		Summary:  summary,
		Remedies: []check.Remedy{{
			Action:  "Find who reads or writes, then batch it, cache it, move it to another device or to another hour.",
			Command: "iostat -x 1; pidstat -d 1",
			Risk:    "Batching writes widens what a crash can lose.",
			Effect:  "stalled time below " + p.Param(ioSome).Text(),
		}},
		Disproof: "iostat -x 1: r_await and w_await are low, and no thread is in state D.",
	}
	if slow, ok := evidence.SlowestDisk(p); ok {
		f.Summary += fmt.Sprintf("; %s takes %s a request", slow.Device, slow.Latency.Text())
		f.Evidence = append(f.Evidence, slow.Latency)
		if slow.Busy.Unit() == quantity.Ratio {
			f.Evidence = append(f.Evidence, slow.Busy)
		}
	}
	return f
}

// targetSpared reports whether a target was named and none of its threads waits for I/O.
func targetSpared(p *check.Pass, f *check.Finding) bool {
	if p.Meta.Target.Kind == "host" || !p.Recorded(metric.ThreadStates) {
		return false
	}
	n := 0.0
	for _, s := range p.Gauge(metric.ThreadStates, "state", "D") {
		n += s.Mean()
	}
	mean := quantity.Of("threads of the target in uninterruptible sleep, mean", n, quantity.Threads)
	f.Evidence = append(f.Evidence, mean)
	if mean.AtLeast(p.Param(ioTargetBlocked)) {
		return false
	}
	f.Notes = append(f.Notes, "the target itself does not wait for storage")
	return true
}
