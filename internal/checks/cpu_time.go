package checks

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
)

// busyEnough is shared by the checks that speak of shares of busy time.
var busyEnough = &check.Param{
	Name: "min-busy", Default: 1, Unit: quantity.Seconds,
	Why: "CPU time is sampled by the tick: at 250 ticks a second 1 s is 250 samples, and a share of 20 % is known to 2.5 points",
}

// cpuTime is what one CPU, or all together, did in the window: seconds by the mode names of /proc/stat.
//
// Busy is everything but idle, iowait and steal. guest is inside user already (kernel/sched/cputime.c account_guest_time) and not
// counted twice. steal is time the hypervisor gave to others: part of the wall time, but not work done here.
type cpuTime struct {
	id    string // "1"; empty for all CPUs
	modes map[string]float64
}

// cpuTimes gives every CPU that was read at least twice, in order of number, and their sum.
func cpuTimes(p *check.Pass) (each []cpuTime, all cpuTime, err error) {
	byID := map[string]cpuTime{}
	all = cpuTime{modes: map[string]float64{}}
	for _, s := range p.Counter(metric.CPUSeconds) {
		n, ok := s.Increase()
		if !ok {
			continue
		}
		id := s.Label("cpu")
		if byID[id].modes == nil {
			byID[id] = cpuTime{id: id, modes: map[string]float64{}}
		}
		byID[id].modes[s.Label("mode")] += n
		all.modes[s.Label("mode")] += n
	}
	for _, t := range byID {
		if t.wall().Number() > 0 {
			each = append(each, t)
		}
	}
	if len(each) == 0 {
		return nil, all, oneSample()
	}
	slices.SortFunc(each, func(a, b cpuTime) int {
		return cmp.Or(cmp.Compare(a.number(), b.number()), cmp.Compare(a.id, b.id))
	})
	return each, all, nil
}

// busyShares gives the CPUs, their sum and the share of its busy time spent in a mode; ok is false when there was too little
// busy time for a share. It notes what it read.
func busyShares(p *check.Pass, mode string) (each []cpuTime, all cpuTime, share quantity.Value, ok bool, err error) {
	each, all, err = cpuTimes(p)
	if err != nil {
		return nil, all, share, false, err
	}
	if all.busy().Below(p.Param(busyEnough)) {
		p.Read(all.busy())
		return each, all, share, false, nil
	}
	share = all.ofBusy(mode, mode)
	p.Read(share)
	return each, all, share, true, nil
}

func (t cpuTime) number() int {
	n, err := strconv.Atoi(t.id)
	if err != nil {
		return -1 // sorts first; the id is still shown as recorded
	}
	return n
}

func (t cpuTime) name() string {
	if t.id == "" {
		return "all CPUs"
	}
	return "CPU " + t.id
}

// time adds up modes.
func (t cpuTime) time(label string, modes ...string) quantity.Value {
	n := 0.0
	for _, m := range modes {
		n += t.modes[m]
	}
	return quantity.Of(label, n, quantity.Seconds)
}

func (t cpuTime) busy() quantity.Value {
	return t.time("busy time of "+t.name(), "user", "nice", "system", "irq", "softirq")
}

func (t cpuTime) wall() quantity.Value {
	return t.time("wall time of "+t.name(), "user", "nice", "system", "irq", "softirq", "idle", "iowait", "steal")
}

// ofWall gives the share of the wall time spent in modes; the wall time is never zero in what cpuTimes returns.
func (t cpuTime) ofWall(what string, modes ...string) quantity.Value {
	return t.time(what, modes...).Per(t.wall()).Named("%s, share of the time of %s", what, t.name())
}

// ofBusy gives the share of the busy time spent in modes. Test that there was busy time first.
func (t cpuTime) ofBusy(what string, modes ...string) quantity.Value {
	return t.time(what, modes...).Per(t.busy()).Named("%s, share of the busy time of %s", what, t.name())
}

// load gives the busy share of the wall time.
func (t cpuTime) load() quantity.Value {
	return t.busy().Per(t.wall()).Named("%s busy", t.name())
}

func (t cpuTime) softirq() quantity.Value { return t.ofWall("softirq", "softirq") }

// hottestSoftirq splits off the CPU with the largest softirq share of its time.
func hottestSoftirq(each []cpuTime) (hot cpuTime, others []cpuTime) {
	i := 0
	for j := range each {
		if each[j].softirq().Above(each[i].softirq()) {
			i = j
		}
	}
	return each[i], slices.Concat(each[:i], each[i+1:])
}

// medianSoftirq gives the median share of time that CPUs spend in softirq.
func medianSoftirq(cpus []cpuTime) quantity.Value {
	return medianShare("softirq, median share of the other CPUs", cpus, cpuTime.softirq)
}

// medianLoad gives the median share of time that CPUs are busy.
func medianLoad(cpus []cpuTime) quantity.Value {
	return medianShare("busy, median share of the other CPUs", cpus, cpuTime.load)
}

func medianShare(label string, cpus []cpuTime, share func(cpuTime) quantity.Value) quantity.Value {
	shares := make([]float64, 0, len(cpus))
	for _, t := range cpus {
		shares = append(shares, share(t).Number())
	}
	return quantity.Of(label, median(shares), quantity.Ratio)
}

// cpuOf finds a CPU by its id.
func cpuOf(each []cpuTime, id string) (cpuTime, bool) {
	i := slices.IndexFunc(each, func(t cpuTime) bool { return t.id == id })
	if i < 0 {
		return cpuTime{}, false
	}
	return each[i], true
}

func cpuSubject(id string) check.Subject { return check.Subject{Kind: "cpu", ID: id} }
