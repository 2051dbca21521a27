package kernel

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	irqHot = &check.Param{
		Name: "hot", Default: 0.5, Unit: quantity.Ratio,
		Why: "a CPU less than half busy with interrupts and softirq serves all queues well",
	}
	irqFull = &check.Param{
		Name: "full", Default: 0.8, Unit: quantity.Ratio,
		Why: "busy this much, the CPU has no room for the next burst, while the other queues' CPUs rest",
	}
	irqOneCPU = &check.Param{
		Name: "on-one-cpu", Default: 0.95, Unit: quantity.Ratio,
		Why: "all but the interrupts from before a move of an affinity",
	}
	irqRate = &check.Param{
		Name: "rate", Default: 100, Unit: evidence.Hz,
		Why: "a device with fewer interrupts has no load to spread",
	}
)

var irqAffinity = &check.Check{
	Name:  "irq-affinity",
	Stage: check.Kernel,
	Doc: `All queues of a device interrupt one CPU

A device with several queues has an interrupt line for each, so that several CPUs can serve it. When all lines
interrupt one CPU, the queues are useless and that CPU is the limit.

The check groups interrupt lines by their device's name without the queue's number (virtio3-input.0 and .1), and takes
the interrupts of the window. It reports a device when two or more lines were active, nearly all their interrupts went
to one CPU, and that CPU is busy with interrupts and softirq.

Fixes: irqbalance, or smp_affinity_list by hand, one CPU for each queue. A driver with managed interrupts refuses to
be moved. Won't help: RPS on top of it costs an interrupt between CPUs for what the device could do by itself. Disproof:
/proc/interrupts rises in more than one column.`,
	URL:    "https://docs.kernel.org/core-api/irq/irq-affinity.html",
	Needs:  []metric.Metric{metric.Interrupts, metric.CPUSeconds},
	Uses:   []metric.Metric{metric.IRQAffinity},
	Params: []*check.Param{irqHot, irqFull, irqOneCPU, irqRate},
	Run:    runIRQAffinity,
}

// deviceLines is what the active interrupt lines of one device did.
type deviceLines struct {
	device string
	irqs   []string
	byCPU  map[string]float64
	total  float64
	span   float64
}

func runIRQAffinity(p *check.Pass) error {
	each, _, err := evidence.CPUTimes(p)
	if err != nil {
		return err
	}
	devices := interruptsByDevice(p)
	multi := 0
	for _, d := range devices {
		if len(d.irqs) >= 2 && d.span > 0 {
			multi++
			assessLines(p, d, each)
		}
	}
	p.Read(quantity.Of("devices with several active interrupt lines", float64(multi), "devices"))
	return nil
}

func assessLines(p *check.Pass, d deviceLines, each []evidence.CPUTime) {
	id, most := d.busiest()
	total := quantity.Of("interrupts", d.total, quantity.Events)
	rate := total.Per(quantity.Of("window", d.span, quantity.Seconds)).Named("interrupts of %s", d.device)
	share := quantity.Of("", most, quantity.Events).Per(total).Named("interrupts of %s that CPU %s takes", d.device, id)
	t, ok := evidence.CPUOf(each, id)
	if !ok || len(each) < 2 || rate.Below(p.Param(irqRate)) || share.Below(p.Param(irqOneCPU)) {
		return
	}
	busy := t.OfWall("interrupts and softirq", "irq", "softirq")
	if busy.Below(p.Param(irqHot)) {
		return
	}
	f := check.Finding{
		Subject:  check.Subject{Kind: "device", ID: d.device},
		Severity: check.Info,
		Summary: fmt.Sprintf("all %d interrupt lines of %s go to CPU %s, which spends %s of its time on them and "+
			"softirq",
			len(d.irqs), d.device, id, busy.Text()),
		Evidence: []quantity.Value{share, rate, busy, t.Load()},
		Remedies: []check.Remedy{{
			Action:  "Deliver each line to a CPU of its own, by irqbalance or by hand.",
			Command: moveLines(d, each),
			Risk:    "irqbalance moves them back if it runs; drivers with managed interrupts refuse (EIO).",
			Effect: fmt.Sprintf("CPU %s from %s towards %s of its time", id, busy.Text(),
				busy.Per(fewest(len(d.irqs), len(each))).Text()),
		}},
		Disproof: "/proc/interrupts: the lines of " + d.device + " rise in more than one CPU's column.",
	}
	if t.Load().AtLeast(p.Param(irqFull)) {
		f.Severity = check.Warning
	}
	p.Report(f)
}

// fewest returns the number of CPUs over which the lines can spread.
func fewest(lines, cpus int) quantity.Value {
	return quantity.Of("CPUs", float64(min(lines, cpus)), quantity.None)
}

func moveLines(d deviceLines, each []evidence.CPUTime) check.Command {
	const shown = 4 // the pattern is plain by then
	var out check.Command
	for i, irq := range d.irqs[:min(len(d.irqs), shown)] {
		if i > 0 {
			out += "; "
		}
		out += check.Commandf("echo %s > /proc/irq/%s/smp_affinity_list", each[i%len(each)].ID, irq)
	}
	if len(d.irqs) > shown {
		out += "; and so on"
	}
	return out
}

func (d deviceLines) busiest() (cpu string, n float64) {
	for c, v := range d.byCPU {
		if v > n || v == n && c < cpu {
			cpu, n = c, v
		}
	}
	return cpu, n
}

// interruptsByDevice groups the lines that fired in the window by device, in order of name.
func interruptsByDevice(p *check.Pass) []deviceLines {
	byDevice := map[string]*deviceLines{}
	for _, s := range p.Counter(metric.Interrupts) {
		n, ok := s.Increase()
		name := deviceOfLine(s.Label("device"))
		if !ok || n == 0 || name == "" {
			continue
		}
		d := byDevice[name]
		if d == nil {
			d = &deviceLines{device: name, byCPU: map[string]float64{}}
			byDevice[name] = d
		}
		d.byCPU[s.Label("cpu")] += n
		d.total += n
		d.span = max(d.span, s.Span().Seconds())
		if !slices.Contains(d.irqs, s.Label("irq")) {
			d.irqs = append(d.irqs, s.Label("irq"))
		}
	}
	var out []deviceLines
	for _, d := range byDevice {
		slices.SortFunc(d.irqs, compareNumbers)
		out = append(out, *d)
	}
	slices.SortFunc(out, func(a, b deviceLines) int { return strings.Compare(a.device, b.device) })
	return out
}

func compareNumbers(a, b string) int {
	x, errX := strconv.Atoi(a)
	y, errY := strconv.Atoi(b)
	if errX != nil || errY != nil {
		return strings.Compare(a, b)
	}
	return cmp.Compare(x, y)
}

// deviceOfLine returns a line's device without the number of the queue: "virtio3-input.0" and "eth0-TxRx-3" lose it,
// and so does "mlx5_comp12@pci:0000:3b:00.0". It is empty for a line without a number at the end, which has no
// siblings.
func deviceOfLine(line string) string {
	if i := strings.LastIndexByte(line, ' '); i >= 0 {
		line = line[i+1:]
	}
	name, where, _ := strings.Cut(line, "@")
	base := strings.TrimRight(name, "0123456789")
	if base == name {
		return ""
	}
	base = strings.TrimRight(base, "-_.:")
	if where != "" {
		base += "@" + where
	}
	return base
}
