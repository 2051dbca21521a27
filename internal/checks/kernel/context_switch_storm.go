package kernel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

const perCPUSecond = quantity.Unit("switches/CPU-s")

var (
	switchLevel = &check.Param{
		Name: "level", Default: 5000, Unit: perCPUSecond,
		Why: "slices of 3 ms end in 350 switches a second and nginx under wrk measured 1,400; at 2 to 5 µs each " +
			"this is 1 to 2.5 %",
	}
	switchWarn = &check.Param{
		Name: "warn", Default: 60000, Unit: perCPUSecond,
		Why: "at 2 to 5 µs each, caches not counted, this is 12 to 30 % of the CPU; a healthy client that hands each " +
			"request to a server on the same CPUs measured 35,000",
	}
	switchSystem = &check.Param{
		Name: "system", Default: 0.3, Unit: quantity.Ratio,
		Why: "the scheduler's work is system time: without it the switches are cheap",
	}
	switchQueue = &check.Param{
		Name: "queue", Default: 3, Unit: evidence.ThreadsPerCPU,
		Why: "a thread is pushed off a CPU only for another that waits; a server under a benchmark on its own host " +
			"has 2 for each CPU",
	}
	switchCPU = &check.Param{
		Name: "min-cpu", Default: 0.5, Unit: quantity.Seconds,
		Why: "125 ticks at 250 Hz: over less, a rate per CPU-second is noise",
	}
)

var contextSwitchStorm = &check.Check{
	Name:  "context-switch-storm",
	Stage: check.Kernel,
	Doc: `Threads push each other off the CPU

An involuntary switch takes the CPU from a thread that could go on. In a voluntary one a thread begins to wait for
something; 100,000 of those a second are normal in a healthy server.

The check takes the involuntary switches of the target's threads per second of CPU time they used, by pool (the
thread's name without its number), and reports the pool with most. The rate is a fact. It is a warning when it is large
enough to cost several percent of the CPU, the pool's system time shows that cost, and many more threads are runnable
than there are CPUs.

Fixes: fewer runnable threads in that pool, work handed over in batches, a lock that is handed over less often.
Won't help: a higher priority; it pushes others off more often. Disproof: pidstat -wt 1 shows nvcswch/s low for these
threads.`,
	URL:    "https://man7.org/linux/man-pages/man2/getrusage.2.html",
	Needs:  []metric.Metric{metric.ThreadSwitches, metric.ThreadCPU},
	Uses:   []metric.Metric{metric.ProcsRunning, metric.CPUsOnline},
	Params: []*check.Param{switchLevel, switchWarn, switchSystem, switchQueue, switchCPU},
	Run:    runContextSwitchStorm,
}

// poolUse is what the threads of one pool did in the window.
type poolUse struct {
	name                           string
	threads                        int
	involuntary, cpu, system, rate quantity.Value
}

func runContextSwitchStorm(p *check.Pass) error {
	pools, ok := switchesByPool(p)
	if _, _, twice := evidence.Rise("CPU time of the target", p.Counter(metric.ThreadCPU)); !ok && !twice {
		return evidence.OneSample()
	}
	var worst *poolUse
	for i := range pools {
		u := &pools[i]
		if u.cpu.Below(p.Param(switchCPU)) {
			continue
		}
		u.rate = u.involuntary.Per(u.cpu).As(perCPUSecond).Named("involuntary switches of pool %q per CPU-second",
			u.name)
		if worst == nil || u.rate.Above(worst.rate) {
			worst = u
		}
	}
	if worst == nil {
		p.Read(quantity.Of("pools that used the CPU enough to tell", 0, "pools"))
		return nil
	}
	p.Read(worst.rate)
	if worst.rate.AtLeast(p.Param(switchLevel)) {
		reportSwitches(p, worst)
	}
	return nil
}

func reportSwitches(p *check.Pass, u *poolUse) {
	system := u.system.Per(u.cpu).Named("system time, share of the pool's CPU time")
	f := check.Finding{
		Subject:  check.Subject{Kind: "pool", ID: u.name},
		Severity: check.Info,
		Summary: fmt.Sprintf("threads of pool %q are pushed off the CPU %s times per second of CPU time", u.name,
			evidence.WithoutUnit(u.rate)),
		Evidence: []quantity.Value{u.rate, system, quantity.Of("threads of the pool", float64(u.threads),
			quantity.Threads)},
		Remedies: []check.Remedy{{
			Action: "Have fewer threads of this pool runnable at once, or hand them work in batches.",
			Risk:   "A pool that is too small leaves CPUs idle while its threads wait for I/O.",
			Effect: fmt.Sprintf("involuntary switches from %s to below %s", u.rate.Text(), p.Param(switchLevel).Text()),
		}},
		Placebos: []string{"A higher priority: the threads then push others off instead."},
		Disproof: "pidstat -wt 1: nvcswch/s of these threads is low.",
	}
	_, queue, ok := evidence.RunnablePerCPU(p)
	if ok {
		f.Evidence = append(f.Evidence, queue)
	}
	if ok && u.rate.AtLeast(p.Param(switchWarn)) && system.AtLeast(p.Param(switchSystem)) &&
		queue.AtLeast(p.Param(switchQueue)) {
		f.Severity = check.Warning
	}
	p.Report(f)
}

// switchesByPool sums the target's threads by pool, sorted by name.
func switchesByPool(p *check.Pass) (pools []poolUse, ok bool) {
	byName := map[string]*poolUse{}
	use := func(comm string) *poolUse {
		name := metric.PoolOf(comm)
		if byName[name] == nil {
			byName[name] = &poolUse{
				name:        name,
				involuntary: quantity.Of("", 0, quantity.Switches),
				cpu:         quantity.Of("", 0, quantity.Seconds),
				system:      quantity.Of("", 0, quantity.Seconds),
			}
		}
		return byName[name]
	}
	for _, s := range p.Counter(metric.ThreadSwitches, "kind", "involuntary") {
		if n, twice := s.Increase(); twice {
			u := use(s.Label("comm"))
			u.involuntary = quantity.Of("", u.involuntary.Number()+n, quantity.Switches)
			u.threads++
			ok = true
		}
	}
	for _, s := range p.Counter(metric.ThreadCPU) {
		n, _ := s.Increase()
		u := use(s.Label("comm"))
		u.cpu = quantity.Of("", u.cpu.Number()+n, quantity.Seconds)
		if s.Label("mode") == "system" {
			u.system = quantity.Of("", u.system.Number()+n, quantity.Seconds)
		}
	}
	for _, u := range byName {
		pools = append(pools, *u)
	}
	slices.SortFunc(pools, func(a, b poolUse) int { return strings.Compare(a.name, b.name) })
	return pools, ok
}
