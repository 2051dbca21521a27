package limits

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

var (
	paramSingleFull = &check.Param{
		Name: "full", Default: 0.9, Unit: quantity.CPUs,
		Why: "a thread cannot use more than one CPU, or wait for more; what is left of it are gaps between requests",
	}
	paramSingleLine = &check.Param{
		Name: "line", Default: 10, Unit: "requests",
		Why: "in progress for each CPU used: a server that is busy 0.9 of its time has so many (M/M/1; " +
			"L. Kleinrock, Queueing Systems I, 3.2), and each takes ten times what it computes",
	}
	paramSingleRequest = &check.Param{
		Name: "request", Default: 0.02, Unit: quantity.Seconds,
		Why: "a request takes: five in turn are a tenth of a second, which a person notices (J. Nielsen, Response " +
			"Times: The 3 Important Limits); a store that is asked by as many clients as it can serve is faster",
	}
	paramSingleHeld = &check.Param{
		Name: "held", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the requests: when most of them wait for another server, more threads ask it no faster",
	}
	paramSinglePart = &check.Param{
		Name: "part", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the target's CPU time: a thread with less is not the one that does its work",
	}
	paramSingleIdle = &check.Param{
		Name: "idle", Default: 0.3, Unit: quantity.CPUs,
		Why: "of those that it may use: a third more work is a gain that shows; below, the CPUs are full rather than " +
			"the thread",
	}
)

var singleThreadBound = &check.Check{
	Name:  "single-thread-bound",
	Stage: check.Limits,
	Doc: `One thread is full, requests wait for it, and CPUs idle

A thread uses one CPU at most. Where one does all of the work, as the event loop
of Node.js or the threads of CPython and Ruby together, which run one at a time,
the program is as fast as that CPU, however many others idle. The same holds
for a program in Go with a low GOMAXPROCS. Requests queue up inside.

Measured: the CPU time of each thread, and of an interpreter's threads
together; requests in progress by the sockets of clients without an answer;
what the target asks others meanwhile, and which of its requests sleep; and the
idle CPUs. For Go: a goroutine that runs at every look. It is a warning where
ten requests are in progress for each CPU used, and each takes 20 ms and more.
Where one function fills the thread, that is the root cause and this is a
consequence; here the work is in many places, and the heaviest are listed.

Fix: more processes, or threads where the runtime lets them run side by side.
Won't help: more CPUs, more threads of an interpreter, more connections.
Disproof: top -H shows no thread near 100 %, or with two processes the same
requests are answered no faster.`,
	URL:   "https://www.brendangregg.com/usemethod.html",
	Needs: []metric.Metric{metric.ThreadCPU, metric.ListenerOwes},
	Uses: append([]metric.Metric{
		metric.ThreadRunDelay, metric.ScriptRuntime, metric.TargetInfo, metric.CPUsOnline, metric.CPUSeconds,
		metric.TargetCPUs, metric.CgroupQuota, metric.CgroupCpuset, metric.CPUProfileSamples,
		metric.ScriptProfileSamples, metric.HostCPUProfileSamples, metric.DestinationAsked, metric.DestinationOwner,
		metric.WallProfileSamples, metric.ScriptWallProfileSamples, metric.GoroutineProfileSamples, metric.GoRuntime,
		metric.JVMInfo,
	}, evidence.RequestMetrics()...),
	Params: []*check.Param{
		paramSingleFull, paramSingleLine, paramSingleRequest, paramSingleHeld, paramSinglePart, paramSingleIdle,
	},
	Run: runSingleThreadBound,
}

// A narrow is what lets the target use no more than one CPU, or a few.
type narrow struct {
	evidence.BusyThread
	text  string         // says that it is full
	more  string         // what to run more of
	wants quantity.Value // CPUs that each thread that runs at a time uses or waits for
	part  quantity.Value // of the target's CPU time
}

func runSingleThreadBound(p *check.Pass) error {
	if err := evidence.EnoughLooks(p); err != nil {
		return err
	}
	ran, _, ok := evidence.Rise("the target's threads ran", p.Counter(metric.ThreadCPU))
	if !ok {
		return evidence.OneSample()
	}
	used := ran.Per(p.Window()).As(quantity.CPUs).Named("CPUs used by the target")
	n := narrowest(p, used)
	p.Read(n.wants)
	if n.wants.Below(p.Param(paramSingleFull)) || n.part.Below(p.Param(paramSinglePart)) {
		return nil
	}
	idle, err := idleCPUs(p, used)
	if err != nil {
		return err
	}
	p.Read(idle)
	r, ok := evidence.RequestsOf(p)
	if !ok || idle.Below(p.Param(paramSingleIdle)) {
		return nil
	}
	held, err := heldShare(p, r)
	if err != nil {
		return err
	}
	line := r.InProgress.Per(used).As("requests").Named("requests in progress for each CPU used")
	for _, v := range []quantity.Value{held, line, r.Each} {
		p.Read(v)
	}
	if held.Below(p.Param(paramSingleHeld)) || line.Below(p.Param(paramSingleLine)) ||
		r.Each.Below(p.Param(paramSingleRequest)) {
		return nil
	}
	f := singleFinding(p, n, r, idle)
	f.Evidence = []quantity.Value{n.wants, n.part, idle, r.InProgress, r.Each, line, held}
	evidence.WithQuota(p, &f, used.Number(), used.Number()+idle.Number())
	p.Report(f)
	return nil
}

// heldShare returns the share of the requests that may wait for what is full.
func heldShare(p *check.Pass, r evidence.Requests) (share quantity.Value, err error) {
	sleeping, err := waitingElsewhere(p)
	elsewhere := evidence.AskingConnections(p).Number() + sleeping
	return quantity.Of("not elsewhere", max(0, r.InProgress.Number()-elsewhere), r.InProgress.Unit()).
		Per(r.InProgress).Named("share of the requests that sleep nowhere and wait for no other server, at least"), err
}

// waitingElsewhere returns the mean number of requests whose threads sleep, or wait for a permit or a child: none of
// these waits ends sooner if the full thread has less to do. To the kernel a sleep of Go or of Java is a futex like
// any other, so their own profile is used for these.
func waitingElsewhere(p *check.Pass) (requests float64, err error) {
	w, err := evidence.WaitingOf(p)
	if err == nil {
		sum := w.Filter(func(s stacks.Sample) bool {
			wait, _ := w.Waits.Of(s)
			return wait == hotcode.ForSleep || wait == hotcode.ForPermit || wait == hotcode.ForChild
		}).Total()
		return w.Threads("", sum.Value).Number(), nil
	}
	l, ok := evidence.LedgerOf(p)
	if !ok || l.Window <= 0 || evidence.TargetIsGo(p) || len(p.Info(metric.JVMInfo)) > 0 {
		return 0, err
	}
	sum := 0.0
	for _, pool := range l.Pools {
		for _, at := range pool.Places {
			if at.Part == ledger.Sleep || at.Part == ledger.Child {
				sum += at.Seconds
			}
		}
	}
	return sum / l.Window, nil
}

// narrowest returns what is fullest. In Go, whose scheduler moves the work from thread to thread, that is the
// goroutine that always runs, or the threads that it lets run at a time, if their number is always the same; else it
// is the thread or the interpreter that uses most.
func narrowest(p *check.Pass, used quantity.Value) (n narrow) {
	if n, ok := fullGoroutine(p, used); ok {
		return n
	}
	if threads, flat := evidence.AtOnce(p); flat && evidence.TargetIsGo(p) {
		n.PID = p.Meta.Target.PID
		n.text = fmt.Sprintf("the program runs no more than %s at a time", threads.Text())
		n.wants = used.Per(threads).As(quantity.CPUs).Named("CPUs used by each of the threads that run at a time")
		n.part = used.Per(used).As(quantity.Ratio).Named("of the target's CPU time, theirs")
		return n
	}
	n.wants = quantity.Of("CPUs used or waited for by a thread", 0, quantity.CPUs)
	for _, t := range evidence.BusyThreads(p) {
		if t.Wants.Number() > n.wants.Number() {
			n.BusyThread, n.text, n.wants = t, t.FullText(), t.Wants
			n.part = t.Use.Per(used).As(quantity.Ratio).Named("of the target's CPU time, that thread's")
		}
	}
	return n
}

// fullGoroutine finds the goroutine that runs at every look.
func fullGoroutine(p *check.Pass, used quantity.Value) (n narrow, ok bool) {
	g, ok := evidence.BusiestGoroutine(p)
	if !ok || used.Number() <= 0 {
		return n, false
	}
	n.PID, n.wants = p.Meta.Target.PID, g.Runs
	n.text = "goroutine " + g.Name + " runs all the time"
	n.more = "goroutines that do this, one for each CPU"
	n.part = g.Runs.Per(used).As(quantity.Ratio).Named("of the target's CPU time, at most")
	return n, n.wants.AtLeast(p.Param(paramSingleFull))
}

// idleCPUs returns how many CPUs the target may use that nobody uses.
func idleCPUs(p *check.Pass, used quantity.Value) (quantity.Value, error) {
	cpus, _, err := evidence.CPUTimes(p)
	if err != nil {
		return quantity.Value{}, err
	}
	idle := 0.0
	for _, c := range cpus {
		idle += c.OfWall("idle", "idle", "iowait").Number()
	}
	if most, known := evidence.EffectiveCPUs(p); known {
		idle = min(idle, most.Number()-used.Number())
	}
	return quantity.Of("CPUs that idle and that it may use, mean", max(0, idle), quantity.CPUs), nil
}

func singleFinding(p *check.Pass, n narrow, r evidence.Requests, idle quantity.Value) check.Finding {
	f := check.Finding{
		Subject:  evidence.TargetSubject(p),
		Severity: check.Warning, Confidence: check.High,
		Weight: min(1, n.wants.Number()),
		Summary: fmt.Sprintf("%s; %s are in progress at any moment, each takes %s and more, and %s idle", n.text,
			r.InProgress.Text(), r.Each.Text(), idle.Text()),
		Notes:    heaviestPlaces(p),
		Remedies: singleFixes(p, n),
		Placebos: []string{"More CPUs: it cannot use them.", "More connections or clients: they wait for the same."},
		Disproof: "top -H -p " + strconv.Itoa(n.PID) + " shows no thread near 100 %, or two processes for one answer " +
			"no sooner.",
	}
	switch {
	case n.more != "":
		f.Placebos = append(f.Placebos, "A higher GOMAXPROCS: a goroutine runs on one CPU at a time.")
		f.Disproof = "most of several dumps (/debug/pprof/goroutine?debug=2) show that goroutine waiting."
	case n.TID == 0:
		f.Placebos = append(f.Placebos, "More threads: its runtime lets no more of them run.")
		f.Disproof = "two processes instead of one answer no sooner."
	}
	return f
}

func singleFixes(p *check.Pass, n narrow) []check.Remedy {
	more := check.Remedy{
		Action: "Run more of it side by side: " + cmp.Or(n.more, moreOf(evidence.RuntimeOf(p, n.PID))) + ".",
		Risk:   "what they share, in memory, in files or as connections, has to be shared or made for each",
		Effect: "the same requests in the time that they compute, until the CPUs are full",
	}
	return []check.Remedy{more, {
		Action: "Make the work cheaper, beginning with the places below.",
		Risk:   "a change of the program, which has to be tested",
		Effect: "each tenth of CPU time that is saved is a tenth more requests",
	}}
}

func moreOf(runtime string) string {
	switch {
	case strings.HasPrefix(runtime, "CPython"):
		return "workers of gunicorn or uvicorn, or processes of multiprocessing behind one port"
	case strings.HasPrefix(runtime, "Node"):
		return "node:cluster or a process manager's instances, and worker_threads for what computes"
	case strings.HasPrefix(runtime, "PHP"):
		return "children of PHP-FPM (pm.max_children), or workers of the queue"
	case runtime == "go":
		return "a higher GOMAXPROCS, or none: Go takes it from the CPU limit by itself (from 1.25 on)"
	case strings.HasPrefix(runtime, "Ruby"), runtime == "ruby":
		return "workers of puma or unicorn (WEB_CONCURRENCY)"
	}
	return "more processes behind one port (SO_REUSEPORT, or a balancer), or more worker threads where it has a " +
		"setting"
}

// heaviestPlaces names where the CPU time goes, in code that a reader could change.
func heaviestPlaces(p *check.Pass) []string {
	c, ok := hotcode.CPUOf(p.Recording)
	if !ok {
		return nil
	}
	_, notes := evidence.HeaviestPlaces(c, "of the sampled CPU time")
	return notes
}
