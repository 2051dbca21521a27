package kernel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/usage"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	saturatedLevel = &check.Param{
		Name: "level", Default: 2, Unit: evidence.ThreadsPerCPU,
		Why: "a closed-loop benchmark with its server on the same host has about 2 and is healthy",
	}
	saturatedWarn = &check.Param{
		Name: "warn", Default: 4, Unit: evidence.ThreadsPerCPU,
		Why: "each thread then waits three times as long as it runs",
	}
	saturatedTarget = &check.Param{
		Name: "warn-target", Default: 3, Unit: evidence.ThreadsPerCPU,
		Why: "with the target's own wait measured, less of a queue is needed to be sure",
	}
	saturatedPressure = &check.Param{
		Name: "pressure", Default: 0.2, Unit: quantity.Ratio,
		Why: "someone waited for a CPU in a fifth of the time: a queue that lasts",
	}
	saturatedBusy = &check.Param{
		Name: "busiest-cpu", Default: 0.9, Unit: quantity.Ratio,
		Why: "a lasting queue leaves a CPU no pause; below it the sampler only met threads that woke together with it",
	}
	saturatedWait = &check.Param{
		Name: "wait-per-run", Default: 1, Unit: quantity.Ratio,
		Why: "the target's threads wait longer than they run: its work takes twice the time it needs",
	}
	saturatedLoss = &check.Param{
		Name: "loss", Default: 0.05, Unit: quantity.Ratio,
		Why: "of the time of the target's threads that work: response times vary by a twentieth anyway, and less is " +
			"noise",
	}
	saturatedWaiting = &check.Param{
		Name: "waiting", Default: 0.1, Unit: quantity.Threads,
		Why: "mean number of the target's threads that wait for a CPU: a tenth of a thread means that a tenth of a " +
			"CPU was missing all the time",
	}
	saturatedFiller = &check.Param{
		Name: "filler", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the CPU time in use: half of it fills the CPUs, whatever the others do",
	}
	saturatedThrottled = &check.Param{
		Name: "throttled", Default: 0.1, Unit: quantity.Seconds,
		Why: "one enforcement period: a thread's run-queue wait includes the time a quota stopped it, which is no " +
			"lack of CPUs",
	}
)

var cpuSaturated = &check.Check{
	Name:  "cpu-saturated",
	Stage: check.Kernel,
	Doc: `More threads want a CPU than there are CPUs

Threads that could run wait in a run queue. The check takes the mean number of runnable threads (procs_running, less
the one that reads it) per CPU and the share of time in which someone waited (PSI cpu some). Both must agree, and the
busiest CPU must have had hardly a pause. The samples alone are biased, because timers wake other threads together with
the sampler.

Two runnable threads per CPU are a fact: a benchmark and its server on one host look like that. Four are a warning, and
so are three when the target's own threads waited longer than they ran. That wait includes the time for which a cgroup
quota stopped them (measured: 3.9 of 4.0 s). So where a quota throttles, this check ignores the wait, and cpu-throttled
reports it.

The loss has to matter. If the target's threads hardly wait for a CPU (less than a twentieth of the time of those that
work, or a tenth of a thread on average), a full host does not harm the target and is a fact. If the target itself has
half of the CPU time in use, the queue is its own. That is a fact too: look at what it runs. If another program has
that much, the finding is about that program's process.

Fixes: fewer runnable threads (pool sizes), less work, other tenants elsewhere or with a limit, more CPUs. Won't help:
more threads.
Disproof: vmstat 1 shows r near the number of CPUs.`,
	URL:   "https://docs.kernel.org/accounting/psi.html",
	Needs: []metric.Metric{metric.ProcsRunning, metric.CPUsOnline},
	Uses: []metric.Metric{
		metric.CPUSeconds, metric.Pressure, metric.ThreadRunDelay, metric.ThreadCPU, metric.ProcessCPU,
		metric.ProcessChildrenCPU, metric.ProcessStart, metric.CgroupThrottledTime,
		metric.ThreadCPUWait, metric.OffCPUProfileSamples, metric.CgroupCPUWait, metric.CgroupCPURun, // with --deep
	},
	Params: []*check.Param{
		saturatedLevel, saturatedWarn, saturatedTarget, saturatedBusy, saturatedPressure, saturatedWait,
		saturatedLoss, saturatedWaiting, saturatedFiller, saturatedThrottled,
	},
	Run: runCPUSaturated,
}

func runCPUSaturated(p *check.Pass) error {
	runnable, perCPU, ok := evidence.RunnablePerCPU(p)
	if !ok {
		return check.NotAssessed("", "the number of CPUs or of runnable threads is not in the recording")
	}
	p.Read(perCPU)
	if perCPU.Below(p.Param(saturatedLevel)) || everyCPUPauses(p) {
		return nil
	}
	f := check.Finding{
		Subject:  check.Host,
		Severity: check.Info,
		Summary: fmt.Sprintf("%s threads are runnable on %.0f CPUs on average", evidence.WithoutUnit(runnable),
			runnable.Number()/perCPU.Number()),
		Evidence: []quantity.Value{perCPU},
		Remedies: []check.Remedy{{
			Action: "Have fewer threads runnable at once (size pools to the CPUs), move other tenants away, or add " +
				"CPUs.",
			Risk:   "A pool that is too small leaves CPUs idle while its threads wait for I/O.",
			Effect: fmt.Sprintf("from %s to below %s", perCPU.Text(), p.Param(saturatedLevel).Text()),
		}},
		Placebos: []string{"More threads or processes: they share the same CPUs."},
		Disproof: "vmstat 1: column r is near the number of CPUs while the load runs.",
	}
	if !waitsForCPU(p, &f) {
		p.Read(f.Evidence[len(f.Evidence)-1])
		return nil
	}
	long, harmless := targetWaitsForCPU(p, &f)
	if perCPU.AtLeast(p.Param(saturatedWarn)) || long && perCPU.AtLeast(p.Param(saturatedTarget)) {
		f.Severity = check.Warning
	}
	if harmless {
		f.Severity = check.Info
	}
	whoFillsCPUs(p, &f)
	queueByGroup(p, &f)
	p.Report(f)
	return nil
}

// everyCPUPauses reports whether no CPU was busy throughout; it is false when the CPUs' time is not known.
func everyCPUPauses(p *check.Pass) bool {
	each, _, err := evidence.CPUTimes(p)
	if err != nil {
		return false
	}
	busiest := each[0].Load()
	for _, c := range each[1:] {
		if c.Load().Above(busiest) {
			busiest = c.Load()
		}
	}
	p.Read(busiest)
	return busiest.Below(p.Param(saturatedBusy))
}

// waitsForCPU adds the pressure, or without it the load of the CPUs, and reports whether it agrees with the run
// queue.
func waitsForCPU(p *check.Pass, f *check.Finding) bool {
	if waiting, ok := evidence.Pressure(p, "cpu", "some"); ok {
		f.Evidence = append(f.Evidence, waiting)
		return waiting.AtLeast(p.Param(saturatedPressure))
	}
	f.Confidence = check.Medium
	f.Doubts = append(f.Doubts, "this kernel has no pressure stall information: the run queue was sampled once an "+
		"interval only")
	return true
}

// targetWaitsForCPU compares how long the target's threads waited for a CPU with how long they ran. long is true if
// they waited longer than they ran, harmless if their wait was recorded and shows no loss.
func targetWaitsForCPU(p *check.Pass, f *check.Finding) (long, harmless bool) {
	waited, _, ok := evidence.Rise("waited", p.Counter(metric.ThreadRunDelay))
	ran, _, ok2 := evidence.Rise("ran", p.Counter(metric.ThreadCPU))
	if !ok || !ok2 || ran.Number() == 0 {
		return false, len(p.Counter(metric.ThreadRunDelay)) > 0 // with a sample lost, no harm is shown
	}
	stopped, _, limited := evidence.Rise("stopped by a CPU quota", p.Counter(metric.CgroupThrottledTime))
	if waits := p.Gauge(metric.ThreadCPUWait); len(waits) > 0 { // waits for a quota are counted apart here
		sum := 0.0
		for _, s := range waits {
			sum += s.Last()
		}
		waited, limited = quantity.Of("waited", sum, quantity.Seconds), false
	}
	if limited && stopped.AtLeast(p.Param(saturatedThrottled)) {
		f.Notes = append(f.Notes, "a CPU quota stopped the target for "+stopped.Text()+
			" (summed over CPUs): its own wait is not counted here, see cpu-throttled")
		return false, false
	}
	share := waited.Per(ran).Named("the target's threads: time waited for a CPU over time run")
	f.Evidence = append(f.Evidence, share)
	if !isLoss(p, waited) {
		f.Notes = append(f.Notes, fmt.Sprintf("it does not harm the target, whose threads waited %s for a CPU in %s",
			waited.Text(), p.Window().Text()))
		return false, true
	}
	if share.Below(p.Param(saturatedWait)) {
		return false, false
	}
	f.Summary += fmt.Sprintf("; the target's waited %s and ran %s", waited.Text(), ran.Text())
	return true, false
}

// isLoss reports whether the target's wait for a CPU matters: by the number of its threads that wait at any moment,
// or by its share of the time of those that work.
func isLoss(p *check.Pass, waited quantity.Value) bool {
	window := quantity.Of("window", p.Meta.Duration, quantity.Seconds)
	if window.Number() <= 0 {
		return true
	}
	if waited.Per(window).As(quantity.Threads).AtLeast(p.Param(saturatedWaiting)) {
		return true
	}
	workers := workingThreads(p)
	if workers == 0 {
		return false
	}
	time := quantity.Of("time of threads that work", workers*window.Number(), quantity.Seconds)
	return waited.Per(time).AtLeast(p.Param(saturatedLoss))
}

// worksFor is the least share of the window at which a thread counts as working: a timer's wake-ups take less.
const worksFor = 0.01

// workingThreads counts the target's threads that ran or wanted to for more than moments.
func workingThreads(p *check.Pass) float64 {
	wanted := map[string]float64{}
	for _, m := range []*metric.Counter{metric.ThreadCPU, metric.ThreadRunDelay} {
		for _, s := range p.Counter(m) {
			if n, ok := s.Increase(); ok {
				wanted[s.Label("pid")+" "+s.Label("tid")] += n
			}
		}
	}
	n := 0.0
	for _, seconds := range wanted {
		if seconds >= worksFor*p.Meta.Duration {
			n++
		}
	}
	return n
}

// A cpuUser is a program with the CPU time of its processes.
type cpuUser struct {
	comm    string
	target  bool
	pid     string  // of the process with the most
	most    float64 // of that process
	seconds float64
	pids    map[string]bool
}

// who names the program: "4055 (stress)", or with several processes "4055 (make) and 7 more".
func (u *cpuUser) who() string {
	who := evidence.PIDName(u.pid, u.comm)
	if n := len(u.pids); n > 1 {
		who += fmt.Sprintf(" and %d more", n-1)
	}
	return who
}

// secondsByPID returns the CPU time of each process in the window. The target's processes and the others are read at
// different times, so each is scaled to the whole window: a missing sample then changes no share.
func secondsByPID(p *check.Pass) map[string]float64 {
	span := map[string]float64{}
	for _, s := range p.Counter(metric.ProcessCPU) {
		span[s.Label("member")] = max(span[s.Label("member")], s.Span().Seconds())
	}
	byPID := map[string]float64{}
	for _, s := range p.Counter(metric.ProcessCPU) {
		if n, ok := s.Increase(); ok && span[s.Label("member")] > 0 {
			byPID[s.Label("pid")] += n * p.Meta.Duration / span[s.Label("member")]
		}
	}
	return byPID
}

// cpuUsers sums the processes by program, most CPU time first.
func cpuUsers(p *check.Pass) (list []*cpuUser, total float64) {
	byPID := secondsByPID(p)
	byProgram := map[string]*cpuUser{}
	done := map[string]bool{} // a process that changed its name counts for its first
	for _, s := range p.Counter(metric.ProcessCPU) {
		pid, target := s.Label("pid"), s.Label("member") == "target"
		key := fmt.Sprint(target, " ", s.Label("comm"))
		u := byProgram[key]
		if u == nil {
			u = &cpuUser{comm: s.Label("comm"), target: target, pids: map[string]bool{}}
			byProgram[key] = u
			list = append(list, u)
		}
		if n := byPID[pid]; n > 0 && !done[pid] {
			done[pid], u.pids[pid] = true, true
			u.seconds += n
			total += n
			if n > u.most {
				u.pid, u.most = pid, n
			}
		}
	}
	slices.SortFunc(list, func(a, b *cpuUser) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), strings.Compare(a.comm, b.comm))
	})
	return list, total
}

// leastNamed is the least share of the CPU time in use at which a program is named.
const leastNamed = 0.1

// whoFillsCPUs names the programs that have the CPUs. If it is the target itself, the queue is a symptom; if it is
// another program, the finding is about that program's process.
func whoFillsCPUs(p *check.Pass, f *check.Finding) {
	list, total := cpuUsers(p)
	if total <= 0 {
		return
	}
	inUse := quantity.Of("CPU time in use", max(total, busySeconds(p)), quantity.Seconds)
	own := quantity.Of("", 0, quantity.Seconds)
	for i, u := range list {
		used := quantity.Of("", u.seconds, quantity.Seconds)
		share := used.Per(inUse).Named("of the CPU time in use, that of %s", u.who())
		if i < evidence.NamedProcesses && share.Number() >= leastNamed {
			f.Evidence = append(f.Evidence, share)
		}
		if u.target {
			own = own.Plus(used)
		}
	}
	if p.Meta.Target.Kind == "host" {
		hostIsFilled(list[0], inUse, f)
		return
	}
	if t, ok := usage.OfTarget(p.Recording); ok { // its processes that began and ended between two readings
		own = own.Plus(quantity.Of("", t.Unread, quantity.Seconds))
	}
	filler := p.Param(saturatedFiller)
	if own.Number() == 0 { // with a sample lost, no stranger is shown
		f.Severity = check.Info
		f.Doubts = append(f.Doubts, "the target's own CPU time was not counted: it may fill the CPUs itself")
		return
	}
	if share := own.Per(inUse); share.AtLeast(filler) {
		f.Severity = check.Info
		f.Notes = append(f.Notes, fmt.Sprintf("the target itself fills the CPUs, with %s of the CPU time in use: the "+
			"queue is a symptom; look at what it runs", share.Text()))
		return
	}
	stranger := slices.IndexFunc(list, func(u *cpuUser) bool { return !u.target })
	if stranger < 0 {
		return
	}
	u := list[stranger]
	share := quantity.Of("", u.seconds, quantity.Seconds).Per(inUse)
	all := inUse.Minus(own).Per(inUse).Named("of the CPU time in use, that of other programs")
	switch {
	case share.AtLeast(filler):
		strangerFills(u, share, f)
	case share.Number() >= leastNamed && all.AtLeast(filler):
		strangersFill(u, all, f)
	}
}

// busySeconds returns the CPU time that the kernel counted on all CPUs, including processes that began and ended
// between two samples; it is 0 where that is not known.
func busySeconds(p *check.Pass) float64 {
	_, all, err := evidence.CPUTimes(p)
	cpus, known := evidence.OnlineCPUs(p)
	if err != nil || !known {
		return 0
	}
	return all.Load().Number() * cpus.Number() * p.Meta.Duration
}

// strangerFills makes the finding about a process outside of the target.
func strangerFills(u *cpuUser, share quantity.Value, f *check.Finding) {
	f.Subject = evidence.PIDSubject(u.pid, u.comm)
	f.Summary = fmt.Sprintf("%s, not the target, has %s of the CPU time in use; %s", u.who(), share.Text(), f.Summary)
	f.Remedies = append([]check.Remedy{u.moveAway("the target's threads wait less for a CPU")}, f.Remedies...)
}

// strangersFill says that other programs together have the CPUs, u the most of them.
func strangersFill(u *cpuUser, share quantity.Value, f *check.Finding) {
	f.Summary = fmt.Sprintf("other programs have %s of the CPU time in use, above all %s; %s", share.Text(), u.who(),
		f.Summary)
	f.Evidence = append(f.Evidence, share)
	f.Remedies = append([]check.Remedy{u.moveAway("the target's threads wait less for a CPU")}, f.Remedies...)
}

// hostIsFilled names the program with the most CPU time of a whole host, which need not be half of it.
func hostIsFilled(u *cpuUser, inUse quantity.Value, f *check.Finding) {
	share := quantity.Of("", u.seconds, quantity.Seconds).Per(inUse)
	if share.Number() < leastNamed {
		return
	}
	f.Summary += fmt.Sprintf("; most CPU time: %s, %s of it", u.who(), share.Text())
	f.Remedies = append([]check.Remedy{u.moveAway("the other threads wait less for a CPU")}, f.Remedies...)
}

func (u *cpuUser) moveAway(effect string) check.Remedy {
	return check.Remedy{
		Action: fmt.Sprintf("Look at %s: move it to other CPUs or another host, or give it a limit or a "+
			"lower weight.", u.who()),
		Command: check.Commandf("perfdoctor diagnose --pid %s", u.pid),
		Risk:    "it takes longer for its own work",
		Effect:  effect,
	}
}

// namedGroups is how many control groups a finding names.
const namedGroups = 3

// queueByGroup says whose threads wait for the CPUs: the share of the cgroup that waits the most, and the first few.
func queueByGroup(p *check.Pass, f *check.Finding) {
	list := evidence.GroupWaits(p)
	total := 0.0
	for _, w := range list {
		total += w.Waited
	}
	if total <= 0 {
		return
	}
	f.Evidence = append(f.Evidence, quantity.Of("", list[0].Waited, quantity.Seconds).
		Per(quantity.Of("", total, quantity.Seconds)).Named("of all threads' waits for a CPU, those of cgroup %s",
		list[0].Path))
	var parts []string
	for _, w := range list[:min(len(list), namedGroups)] {
		if w.Waited > 0 {
			parts = append(parts, fmt.Sprintf("%s %s (ran %s)", w.Path, quantity.Of("", w.Waited, quantity.Seconds).
				Text(),
				quantity.Of("", w.Ran, quantity.Seconds).Text()))
		}
	}
	f.Notes = append(f.Notes, "waits for a CPU by control group, summed over threads, without those for a quota: "+
		strings.Join(parts, ", "))
}
