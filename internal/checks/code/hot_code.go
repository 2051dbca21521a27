package code

import (
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

var (
	hotShare = &check.Param{
		Name: "share", Default: 0.5, Unit: quantity.Ratio,
		Why: "from half of the CPU time on, no other code of the program can be worth more",
	}
	hotLeast = &check.Param{
		Name: "cpus", Default: 0.5, Unit: quantity.CPUs,
		Why: "below half of a CPU no thread is full, and the CPU is not what work waits for",
	}
	hotOfLimit = &check.Param{
		Name: "of-limit", Default: 0.8, Unit: quantity.Ratio,
		Why: "of what it may use: less than half of a CPU nearly uses up a small quota",
	}
	hotThread = &check.Param{
		Name: "thread", Default: 0.9, Unit: quantity.CPUs,
		Why: "a thread cannot use more than one CPU, or wait for more; with a tenth of it left it still takes what " +
			"comes next at once",
	}
	hotQueued = &check.Param{
		Name: "queued", Default: 0.75, Unit: quantity.CPUs,
		Why: "of a thread, where requests wait inside the program: a server that is busy three quarters of the time " +
			"has three requests in its queue (M/M/1; L. Kleinrock, Queueing Systems I, 3.2)",
	}
	hotRequest = evidence.RequestSeconds()
	hotFull    = &check.Param{
		Name: "full", Default: 0.9, Unit: quantity.Ratio,
		Why: "of the CPUs: what is left is in pieces too short for more work",
	}
	hotPart = &check.Param{
		Name: "part", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the CPUs: a program that uses less than half of full CPUs does not fill them",
	}
	hotWaiting = &check.Param{
		Name: "waiting", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the time in which its threads run or could: from half on, CPUs are short, even if some of their " +
			"time is idle or the hypervisor's",
	}
	hotTraffic = &check.Param{
		Name: "traffic", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the function's time, for answers, and in the kernel for sockets, waits and wake-ups: a server at " +
			"full load spends half of its time there, whatever its code",
	}
	hotAll = &check.Param{
		Name: "all", Default: 0.9, Unit: quantity.Ratio,
		Why: "of the time in the program's functions: a function that nearly all of it goes through is the program's " +
			"work, not a place in it",
	}
	hotSpread = &check.Param{
		Name: "spread", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the function's time, for itself or for one call that it makes: a healthy server's handler spreads " +
			"its time over many calls",
	}
	hotDark = &check.Param{
		Name: "dark", Default: 0.2, Unit: quantity.Ratio,
		Why: "of the CPU time: a fifth without a name could hold a function as large as what a reader would fix next",
	}
)

var hotCode = &check.Check{
	Name:  "hot-code",
	Stage: check.Code,
	Doc: `One function owns the CPU time

One function, with all that it calls, has half or more of the CPU time that the
target uses. No rule knows this function. Look at its name, its line, its
callers and callees, and where a library spends the time.

Measured: samples of the target's stacks, each with the CPU time that it stands
for, as a share of the CPU time that the kernel counted. The function is the
innermost one that has the share: none of its callees has it. This finds a
function with a thousand callees, which lists of innermost functions do not
show. The check names the application's function, in Java and Go as well as in
machine code. Where the application's functions are in less than that share of
the samples, it names one of a library, the JDK or the interpreter, and then
one of a stripped program, by where it begins in its file. Mains, event loops,
servers and executors count by what they take themselves. The check never names
the kernel, libraries without symbols, the entry of a thread or the loop of an
interpreter. It says how much the samples do not name at all; where that is as
much as a function would need, the check cannot be assessed.

It is a warning where something waits for that code. There are five cases: a
thread that does hardly anything else uses a CPU of its own, or waits for one
behind others; a goroutine runs, or waits for the collector or a file, at every
look; the program fills the CPUs that it may use, or most of the CPUs of a host
whose CPUs are full; its threads wait for a CPU for longer than they run; or
requests wait while no more than the same few threads run at a time, as with
GOMAXPROCS. Where requests wait inside the program, a thread counts as full
when it is busy for three quarters of the time.

It is also a warning where nothing is full, but a piece of a server's work
computes for long in that code: the client waits that long, however idle the
machine is. This time is at least the CPU time of the threads divided by their
waits, and at least the CPU time divided by the segments with data that came on
the server's ports. For a child for which its parent waits, it is the CPU time
of the children that ended, divided by the most that there can be. Below that
it is a fact.

It is a fact, too, for programs that compress, compile, encode or compute
checksums while nobody waits: such a job uses what it is given. It is a fact
for a function that nearly all of the program's work goes through and that
spreads its time over many calls, as the handler of a server does at full load.
Where most of the time goes into writing answers, and into the kernel's work on
sockets, waits and wake-ups, it is what any server does. Other work that a
function asks of the kernel, such as files, memory or new processes, is its
own.

Fix: do less of it: another algorithm, a cached answer, work that is left out.
Where one thread is full, more threads for it. Won't help: more CPUs for one
thread; more threads on full CPUs.
Disproof: another profile (perf record -g, async-profiler) has other code on top,
or the work done in a second stays the same when the function is made cheaper.`,
	URL:   "https://www.brendangregg.com/FlameGraphs/cpuflamegraphs.html",
	Needs: []metric.Metric{metric.ProcessCPU},
	Uses: []metric.Metric{
		metric.CPUProfileSamples, metric.ScriptProfileSamples, metric.ScriptRuntime, metric.HostCPUProfileSamples,
		metric.TargetInfo, metric.ThreadCPU, metric.CPUsOnline,
		metric.CgroupQuota, metric.CgroupCpuset, metric.TargetCPUs, metric.CPUSeconds, metric.TargetListenPorts,
		metric.ThreadSwitches,
		metric.ThreadStateTime, metric.ThreadStatePasses, metric.ThreadRunDelay, metric.ListenerSegments,
		metric.TCPPassiveOpens, metric.ConnectionTurns, metric.ProcessChildrenCPU, metric.ProcessStart, metric.Forks,
		metric.ListenerOwes, metric.DatabaseStatementTime, metric.DatabaseFunctionTime, metric.DatabaseSessionTime,
		metric.GoroutineProfileSamples,
		metric.GoRuntime, metric.WallProfileSamples, metric.ScriptWallProfileSamples,
	},
	Params: []*check.Param{
		hotShare, hotLeast, hotOfLimit, hotThread, hotFull, hotPart, hotWaiting, hotTraffic, hotAll, hotSpread, hotDark,
		hotPiece, hotQueued, hotRequest, evidence.ParamServed, evidence.ParamAsked, hotComputes,
		evidence.ParamCPUTaken,
	},
	Facts: []check.Fact{evidence.FillsCPUs},
	Run:   runHotCode,
}

// A hotTarget is the program whose code is examined, with the CPUs that it uses and their share of those it may use.
type hotTarget struct {
	cpu     *hotcode.CPU
	subject check.Subject
	name    string         // of the program, as the kernel has it
	used    quantity.Value // CPUs
	ofLimit quantity.Value // share of the CPUs that it may use
	limited bool           // ofLimit is known
}

func runHotCode(p *check.Pass) error {
	t, err := hotTargetOf(p)
	if err != nil {
		return err
	}
	p.Read(t.used)
	if t.used.Below(p.Param(hotLeast)) && (!t.limited || !t.ofLimit.AtLeast(p.Param(hotOfLimit))) {
		if _, works := hotWorkOf(p, t, hotBusiest(t)); !works {
			return nil
		}
	}
	if len(t.cpu.Samples) == 0 {
		return check.NotAssessed("look at what the profiler says of itself (-v)",
			"the process used %s, but no sample of it was taken", t.used.Text())
	}
	h, ok := t.cpu.Hottest(p.Param(hotShare).Number() * t.cpu.Total())
	if ok {
		share := t.share(h)
		p.Read(share)
		if share.AtLeast(p.Param(hotShare)) {
			f := hotFinding(p, t, h, share)
			evidence.NameStatement(p, &f)
			p.Report(f)
		}
		return nil
	}
	return hotUnknown(p, t)
}

// hotTargetOf finds the target's CPU time. On a whole host it takes the process that used the most.
func hotTargetOf(p *check.Pass) (*hotTarget, error) {
	t := &hotTarget{subject: evidence.TargetSubject(p), name: p.Meta.Target.Name}
	for _, s := range p.Info(metric.TargetInfo) {
		t.name = s.Label("comm")
	}
	var ok bool
	if p.Meta.Target.Kind == "host" {
		var pid int
		if t.cpu, pid, ok = hotcode.BusiestOf(p.Recording); ok {
			t.name = hotName(p, strconv.Itoa(pid), t.cpu)
			t.subject = evidence.PIDSubject(strconv.Itoa(pid), t.name)
		}
	} else {
		t.cpu, ok = hotcode.CPUOf(p.Recording)
	}
	if !ok {
		return nil, hotNoProfile(p)
	}
	if t.cpu.Window <= 0 {
		return nil, check.NotAssessed("", "the CPU profile covers no time")
	}
	t.used = quantity.Of("CPU time", t.cpu.Total(), quantity.Seconds).
		Per(quantity.Of("window", t.cpu.Window, quantity.Seconds)).As(quantity.CPUs).Named("CPUs used by the process")
	if limit, known := evidence.EffectiveCPUs(p); known {
		t.limited = true
		t.ofLimit = t.used.Per(limit).Named("CPUs used / %s", limit.Label())
	}
	return t, nil
}

// hotNoProfile says why there are no samples. It quotes the sampler of all CPUs, unless only a runtime's own profiler
// names a remedy.
func hotNoProfile(p *check.Pass) error {
	reason, remedy := p.Why(metric.HostCPUProfileSamples)
	if other, fix := p.Why(metric.CPUProfileSamples); remedy == "" && fix != "" {
		reason, remedy = other, fix
	}
	return check.NotAssessed(remedy, "there is no CPU profile: %s", reason)
}

// hotName returns the name of a process of the host, or else the name of its busiest thread.
func hotName(p *check.Pass, pid string, c *hotcode.CPU) string {
	for _, s := range p.Counter(metric.ProcessCPU, "pid", pid) {
		return s.Label("comm")
	}
	for _, g := range stacks.Group(c.Profile, func(s stacks.Sample) string { return c.ThreadOf(s).Name }) {
		return g.Key
	}
	return ""
}

// share is the share of the process's CPU time in the function and everything that it calls.
func (t *hotTarget) share(h *hotcode.Hot) quantity.Value {
	return hotSeconds(h.Inclusive).Per(t.total()).
		Named("share of the process's CPU time in %s and what it calls", hotcode.Function(h.Name))
}

func (t *hotTarget) total() quantity.Value {
	return quantity.Of("CPU time", t.cpu.Total(), quantity.Seconds)
}

// cpus is how many CPUs the function uses.
func (t *hotTarget) cpus(h *hotcode.Hot) quantity.Value {
	return hotSeconds(h.Inclusive).Per(quantity.Of("window", t.cpu.Window, quantity.Seconds)).As(quantity.CPUs)
}

func hotSeconds(w stacks.Weight) quantity.Value {
	return quantity.Of("", float64(w.Value)/1e9, quantity.Seconds)
}

// hotUnknown is the outcome if no function has the share: nothing, unless the time without a name could hide one.
func hotUnknown(p *check.Pass, t *hotTarget) error {
	d := t.cpu.Dark()
	dark := quantity.Of("", d.Total(), quantity.Seconds).Per(t.total()).Named("share of the CPU time without a name")
	p.Read(dark)
	remedy := "keep symbols and frame pointers in the program (-g -fno-omit-frame-pointer), or profile it with its " +
		"own tools"
	if dark.Below(p.Param(hotShare)) {
		return hotCut(p, t, remedy)
	}
	if d.Interpreted > max(d.Unnamed, d.Unsampled) {
		remedy = "name the functions: " + hotNamers(d.Interpreter)
	}
	if full := hotFullOf(p, t); full != "" && hotJob(p, t, &hotcode.Hot{}) == "" {
		return check.Unexplained(remedy, "%s, and the samples do not say which code %s of the CPU time is: %s",
			full, dark.Text(), hotDarkText(d))
	}
	return check.NotAssessed(remedy, "the process used %s, and the samples do not say which code %s of it is: %s",
		t.used.Text(), dark.Text(), hotDarkText(d))
}

// hotNamers says which tool names the functions that an interpreter runs. For versions that perfdoctor does not know,
// rbspy (https://rbspy.github.io) reads Ruby from outside, and phpspy (https://github.com/adsr/phpspy) reads PHP.
func hotNamers(interpreter string) string {
	switch interpreter {
	case "ruby":
		return "perfdoctor reads those of Ruby 3.0 to 3.4, as root; rbspy record --pid PID knows others"
	case "php", "php-fpm", "php-cgi":
		return "perfdoctor reads those of PHP 7.3 to 8.4 without threads, as root; phpspy -p PID knows others"
	case "perl":
		return "perl -d:NYTProf, at the start of the program"
	case "beam", "beam.smp":
		return "erl +JPperf true (Erlang/OTP 25 or newer), at the start of the program"
	}
	return "python -X perf (3.12 or newer), node --perf-basic-prof, or py-spy and the inspector of the runtime"
}

// hotCut is the outcome if the innermost functions have names. A function that has the share with all that it calls
// may be among their callers, so the callers must be known.
func hotCut(p *check.Pass, t *hotTarget, remedy string) error {
	cut := quantity.Of("", t.cpu.Cut(), quantity.Seconds).Per(t.total()).
		Named("share of the CPU time without its callers")
	p.Read(cut)
	full := hotFullOf(p, t)
	if full == "" || cut.Below(p.Param(hotShare)) || hotJob(p, t, &hotcode.Hot{}) != "" {
		return nil
	}
	return check.Unexplained(remedy, "%s, and what called the innermost functions is not known for %s of the CPU time",
		full, cut.Text())
}

// hotFullOf says what is full, whatever code fills it: all that the program may use, or one thread. It returns "" if
// nothing is full.
func hotFullOf(p *check.Pass, t *hotTarget) string {
	if t.hasUsedUp(p) {
		return hotUsedUp
	}
	if full := hotFullThreads(p); len(full) > 0 {
		return full[0].FullText() + " (" + full[0].Use.Text() + ")"
	}
	if w, works := hotWorkOf(p, t, hotBusiest(t)); works {
		return w.text()
	}
	_, part, known := evidence.OfHost(p, t.used)
	if _, short := hotShort(p); short && known && part.AtLeast(p.Param(hotPart)) {
		return hotShortText
	}
	return ""
}

// hotDarkText says what kinds of code have no name.
func hotDarkText(d hotcode.Dark) string {
	text := ""
	add := func(what string, n float64) {
		if n < 1e-3 { // seconds: less is a rounding error of the sums
			return
		}
		if text != "" {
			text += ", "
		}
		text += what + " " + quantity.Of("", n, quantity.Seconds).Text()
	}
	add("functions that an interpreter runs", d.Interpreted)
	add("code without symbols", d.Unnamed)
	add("not sampled", d.Unsampled)
	return text
}
