package code

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A hotHarm is what waits for the function.
type hotHarm struct {
	text     string           // "thread worker-1 is full"; empty where nothing is shown
	capacity float64          // share of the limit that the program, or the thread, uses
	evidence []quantity.Value //
	thread   bool             // it is one thread, or an interpreter
	// The runtime, if it lets one of its threads run at a time, such as CPython 3.11: one or several may be busy.
	runtime string
	few     bool // it limits how many threads run at a time
	late    bool // nothing is full, but whoever asked waits for the code
}

func hotFinding(p *check.Pass, t *hotTarget, h *hotcode.Hot, share quantity.Value) check.Finding {
	harm := hotHarmOf(p, t, h)
	f := check.Finding{
		Subject:  t.subject,
		Severity: check.Info,
		Weight:   min(1, share.Number()) * min(1, harm.capacity),
		Summary: fmt.Sprintf("%s takes %s of the CPU time with what it calls: %s of %s", hotPlace(h), share.Text(),
			hotNumber(t.cpus(h)), t.used.Text()),
		Evidence: slices.Concat([]quantity.Value{share}, hotParts(h), []quantity.Value{t.used}, harm.evidence),
		Notes:    hotNotes(p, t, h),
		Remedies: hotRemedies(h, harm, share),
		Placebos: hotPlacebos(harm),
		Disproof: "another profile has other code on top (perf record -g, async-profiler), or the work done in a " +
			"second stays the same when " + hotcode.Function(h.Name) + " is made cheaper.",
		Marks: evidence.MarksOf(t.cpu.Event, hotHits(h)),
	}
	if inside := hotInside(p, t, h); inside != "" {
		f.Summary += "; most of that is in " + inside
	}
	if harm.text != "" {
		f.Summary += "; " + harm.text
	}
	excuse := hotExcuse(p, t, h)
	if excuse == "" {
		low, high := t.bounds(h)
		evidence.WithoutCode(p, &f, evidence.Part{Share: share.Number(), Low: low, High: high})
	}
	switch {
	case excuse != "":
		f.Notes = append(f.Notes, excuse)
	case harm.text != "" && t.cpu.Kernel > 0: // else the total of the share is not known
		f.Severity = check.Warning
		hotFills(p, t, h, &f)
	}
	if harm.text != "" && !harm.late {
		f.Lead = check.Lead{
			Heading: "busy", State: harm.text, Why: hotPlace(h) + " takes " + share.Text() + " of the CPU time",
		}
	}
	hotConfidence(p, t, h, harm.late, &f)
	return f
}

// hotExcuse says why the function is no fault, even if the program is short of CPU time. It returns "" without such a
// reason.
func hotExcuse(p *check.Pass, t *hotTarget, h *hotcode.Hot) string {
	whole := hotSeconds(h.Inclusive)
	traffic := hotSeconds(h.Traffic).Per(whole)
	if traffic.AtLeast(p.Param(hotTraffic)) {
		return traffic.Text() + " of it goes into answers, sockets, waits and wake-ups, as with any server at full load"
	}
	if kernel := hotKernel(p, t); kernel.AtLeast(p.Param(hotTraffic)) {
		return kernel.Text() + " of the CPU time is the kernel's, for sockets, waits and wake-ups, as with any " +
			"server at full load"
	}
	all := whole.Per(hotSeconds(h.Covered))
	spread := p.Param(hotSpread)
	if all.AtLeast(p.Param(hotAll)) && hotSeconds(h.Own).Per(whole).Below(spread) &&
		hotSeconds(h.CalleeTime).Per(whole).Below(spread) {
		return "nearly all that the program does goes through it, and its time is in many calls: it is the work " +
			"itself, not a place in it"
	}
	return hotJob(p, t, h)
}

// hotKernel is the share of a script's CPU time that the kernel spends on sockets, waits and wake-ups. The script's
// own samples do not show what the kernel does. Without other samples, all of its time in the kernel counts.
func hotKernel(p *check.Pass, t *hotTarget) quantity.Value {
	if t.cpu.Event != stacks.Script || t.cpu.Kernel <= 0 {
		return quantity.Of("", 0, quantity.Ratio)
	}
	if code, ok := hotcode.CodeOf(p.Recording); ok && code.Sampled() > 0 {
		return quantity.Of("", code.Traffic()/code.Sampled(), quantity.Ratio)
	}
	return quantity.Of("", t.cpu.System/t.cpu.Kernel, quantity.Ratio)
}

// hotNumber returns a number of CPUs without its unit.
func hotNumber(v quantity.Value) string { return evidence.WithoutUnit(v) }

// hotPlace names the function with its line.
func hotPlace(h *hotcode.Hot) string { return hotcode.At(h.Name, h.Line) }

// hotInside names what libraries do for the function. It returns "" if they do little.
func hotInside(p *check.Pass, t *hotTarget, h *hotcode.Hot) string {
	if h.Inner != "" {
		return hotcode.Function(h.Inner)
	}
	inside := h.Callees
	if len(inside) == 0 {
		inside = h.Builtins(p.Recording, t.cpu.Total())
	}
	return strings.Join(inside, " and ")
}

// hotParts are the function's own part, and the part of the call that takes most of its time.
func hotParts(h *hotcode.Hot) []quantity.Value {
	whole := hotSeconds(h.Inclusive)
	further := "without further functions of the program"
	switch {
	case h.Inlines:
		further = "with functions that V8 compiled into it"
	case h.Owner != hotcode.Application:
		further = "without further functions of libraries"
	}
	out := []quantity.Value{
		hotSeconds(h.Own).Per(whole).Named("of it in %s itself, %s", hotcode.Function(h.Name), further),
	}
	if h.Callee != "" && h.CalleeTime.Value > 0 {
		out = append(out, hotSeconds(h.CalleeTime).Per(whole).Named("of it in %s, which it calls", h.Callee))
	}
	if h.Inner != "" && h.Inner != h.Callee {
		out = append(out, hotSeconds(h.InnerTime).Per(whole).
			Named("of it in %s, further in", hotcode.At(h.Inner, h.InnerLine)))
	}
	return out
}

func hotHits(h *hotcode.Hot) []evidence.Hit {
	out := make([]evidence.Hit, 0, len(h.Places))
	for _, at := range h.Places {
		out = append(out, evidence.Hit{Sample: at.Sample, At: at.At})
	}
	return out
}

// hotHarmOf returns what is full, or if nothing is, whether somebody waits for the code.
func hotHarmOf(p *check.Pass, t *hotTarget, h *hotcode.Hot) hotHarm {
	harm := hotFullHarm(p, t, h)
	if harm.text != "" {
		return harm
	}
	if w, ok := hotWorkOf(p, t, hotByThread(t.cpu, nil, h.Places)); ok {
		return hotHarm{text: w.text(), capacity: w.computes.Number(), late: true, evidence: w.evidence}
	}
	return harm
}

// hotFullHarm looks for what is full: first all that the program may use, then a thread that does nothing but the
// function, then the host.
func hotFullHarm(p *check.Pass, t *hotTarget, h *hotcode.Hot) (harm hotHarm) {
	if t.limited {
		harm.capacity = t.ofLimit.Number()
	}
	if t.hasUsedUp(p) {
		harm.text = hotUsedUp
		harm.evidence = []quantity.Value{t.ofLimit}
		return harm
	}
	few, isFew := hotAtOnce(p, t)
	if isFew && evidence.TargetIsGo(p) { // its scheduler moves the work from thread to thread, and one may look full
		return few
	}
	if thread, ok := hotInThread(p, t, h); ok {
		return thread
	}
	if isFew {
		return few
	}
	if goroutine, ok := hotInGoroutine(p); ok {
		return goroutine
	}
	busy, part, known := evidence.OfHost(p, t.used)
	if !known {
		return harm
	}
	harm.capacity = max(harm.capacity, part.Number())
	if part = part.Named("of the host's CPUs, what the process uses"); busy.AtLeast(p.Param(hotFull)) &&
		part.AtLeast(p.Param(hotPart)) {
		harm.text = "the CPUs of the host are full"
		harm.evidence = []quantity.Value{busy, part}
		return harm
	}
	if waits, short := hotShort(p); short && part.AtLeast(p.Param(hotPart)) {
		harm.text = hotShortText
		harm.evidence = []quantity.Value{waits, part}
	}
	return harm
}

// hotShort reports whether CPUs are short, though not full: the target's threads wait for one longer than they run.
func hotShort(p *check.Pass) (waits quantity.Value, ok bool) {
	r, ok := evidence.RunnableOf(p)
	if !ok {
		return waits, false
	}
	return r.WaitShare(), r.WaitShare().AtLeast(p.Param(hotWaiting))
}

const hotShortText = "its threads wait for a CPU for longer than they run"

// hotUsedUp is the text for a program that uses all the CPU time that it may use.
const hotUsedUp = "the program has no more CPU time to use"

func (t *hotTarget) hasUsedUp(p *check.Pass) bool {
	return t.limited && t.ofLimit.AtLeast(p.Param(hotFull))
}

// hotAtOnce reports whether the program limits how many threads run at a time while more requests wait.
func hotAtOnce(p *check.Pass, t *hotTarget) (harm hotHarm, ok bool) {
	threads, flat := evidence.AtOnce(p)
	requests, known := evidence.RequestsOf(p)
	limit, limited := evidence.EffectiveCPUs(p)
	if !flat || !known || !limited || threads.Number() >= limit.Number() ||
		requests.InProgress.Number() < leastWaiting*threads.Number() {
		return harm, false
	}
	return hotHarm{
		text: fmt.Sprintf("the program runs %s at a time, and %s wait or are worked on", threads.Text(),
			requests.InProgress.Text()),
		capacity: t.used.Number() / threads.Number(), few: true,
		evidence: []quantity.Value{threads, requests.InProgress, limit},
	}, true
}

// leastWaiting is the number of requests in progress for each thread that may run. With fewer, the wait is shorter
// than the work.
const leastWaiting = 2

// hotInThread finds a full thread that does hardly anything but the function. Among several it takes the fullest.
func hotInThread(p *check.Pass, t *hotTarget, h *hotcode.Hot) (harm hotHarm, ok bool) {
	all, inside := hotByThread(t.cpu, t.cpu.Samples, nil), hotByThread(t.cpu, nil, h.Places)
	var best quantity.Value
	for _, thread := range hotFullThreads(p) {
		keys := hotKeysOf(thread, t.cpu)
		if sumOf(all, keys) == 0 || thread.Use.Number() <= best.Number() {
			continue
		}
		of := quantity.Of("in the function", sumOf(inside, keys), quantity.Seconds).
			Per(quantity.Of("of the thread", sumOf(all, keys), quantity.Seconds)).
			Named("share of the %s's samples in %s", thread.Kind(), hotcode.Function(h.Name))
		if of.AtLeast(p.Param(hotShare)) {
			best = thread.Use
			harm = hotHarm{
				text: thread.FullText(), capacity: best.Number(), thread: true, evidence: []quantity.Value{best, of},
				runtime: hotRuntime(p, t, thread),
			}
			if strings.HasPrefix(harm.runtime, "Node") && thread.TID == thread.PID {
				harm.text = "the event loop, thread " + thread.Name() + ", is full"
			}
			if thread.Use.Below(p.Param(hotThread)) {
				harm.evidence = append(harm.evidence, thread.Wants)
			}
		}
	}
	return harm, harm.thread
}

// hotInGoroutine finds the goroutine that does the program's work and has no time left.
func hotInGoroutine(p *check.Pass) (harm hotHarm, ok bool) {
	g, ok := evidence.BusiestGoroutine(p)
	if !ok || g.Runs.Below(p.Param(hotLeast)) || g.Works.Number() < p.Param(hotThread).Number() {
		return harm, false
	}
	return hotHarm{
		text: "goroutine " + g.Name + " works all the time", capacity: g.Works.Number(), thread: true,
		evidence: []quantity.Value{g.Works, g.Runs},
	}, true
}

// hotRuntime names the script runtime that a thread belongs to. It returns "" if the code is not a script's.
func hotRuntime(p *check.Pass, t *hotTarget, thread evidence.BusyThread) string {
	if t.cpu.Event != stacks.Script {
		return ""
	}
	return evidence.ScriptRuntimeOf(p, thread.PID)
}

// A hotKey identifies a thread of a profile: by its id, or in samples of all CPUs by process and name.
type hotKey struct {
	id   int
	name string
}

func sumOf(sums map[hotKey]float64, keys []hotKey) (n float64) {
	for _, k := range keys {
		n += sums[k]
	}
	return n
}

// hotByThread sums samples, or the samples of places, by thread, in seconds.
func hotByThread(c *hotcode.CPU, samples []stacks.Sample, places []hotcode.HotPlace) map[hotKey]float64 {
	out := map[hotKey]float64{}
	add := func(s stacks.Sample) {
		thread := c.ThreadOf(s)
		key := hotKey{id: thread.ID}
		if c.Event == stacks.HostCPU {
			key.name = thread.Name
		}
		out[key] += float64(s.Value) / 1e9
	}
	for _, s := range samples {
		add(s)
	}
	for _, at := range places {
		add(at.Sample)
	}
	return out
}

// hotKeysOf returns the keys of the thread's samples.
func hotKeysOf(t evidence.BusyThread, c *hotcode.CPU) (out []hotKey) {
	if c.Event == stacks.HostCPU { // its threads have their process's id
		return []hotKey{{id: t.PID, name: t.Comm}}
	}
	for _, tid := range t.Threads {
		out = append(out, hotKey{id: tid})
	}
	return out
}

// hotFullThreads returns the threads that use a CPU of their own or wait for it, whatever they run, and the
// interpreters whose threads do so together.
func hotFullThreads(p *check.Pass) []evidence.BusyThread {
	least := p.Param(hotThread)
	if h, ok := evidence.HeldOf(p); ok && h.Each.AtLeast(p.Param(hotRequest)) && h.Share.Number() >= leastHeld {
		least = p.Param(hotQueued)
	}
	return evidence.FullThreads(p, p.Param(hotLeast), least)
}

// leastHeld is a share of the requests in progress: half of them or more wait inside the program, for nobody else.
const leastHeld = 0.5

// hotJobs are programs that compute while nobody waits: compressors, compilers and what starts them, encoders and
// checksums. If one fills a CPU, it does its job.
var hotJobs = []string{
	"gzip", "pigz", "bzip2", "pbzip2", "lbzip2", "xz", "pxz", "zstd", "lz4", "lzma", "7z", "7za", "7zr", "zip", "unzip",
	"tar", "rar", "brotli",
	"cc1", "cc1plus", "lto1", "gcc", "g++", "clang", "clang++", "as", "ld", "ld.lld", "lld", "mold", "rustc", "javac",
	"compile", "link", "make", "ninja", "cargo", "go",
	"ffmpeg", "x264", "x265", "HandBrakeCLI", "convert", "magick",
	"md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum", "cksum", "xxhsum",
}

// hotJobModules are prefixes of the names of libraries whose work grows with their input.
var hotJobModules = []string{
	"libz.so", "libzstd.so", "liblzma.so", "libbz2.so", "liblz4.so", "libbrotli", "libx264", "libx265", "libavcodec",
}

// hotJob says why the function is the proper work of a job. It returns "" if the program is not known to be a job.
func hotJob(p *check.Pass, t *hotTarget, h *hotcode.Hot) string {
	if serves, known := evidence.Serves(p); known && serves {
		return ""
	}
	inModule := func(module string) bool {
		return slices.ContainsFunc(hotJobModules, func(m string) bool { return strings.HasPrefix(module, m) })
	}
	for _, name := range []string{t.name, h.Module} { // the program, or a child
		if slices.Contains(hotJobs, name) {
			return name + " is a job that uses the CPUs it is given: a healthy one looks like this"
		}
	}
	if inModule(h.Module) || inModule(h.CalleeModule) && 2*h.CalleeTime.Value > h.Inclusive.Value {
		return "it compresses or encodes, and listens on no port: a healthy job looks like this"
	}
	return ""
}

// hotFills makes the queue for the CPUs a consequence if the function is the reason that less than a fifth of the
// CPUs is idle.
func hotFills(p *check.Pass, t *hotTarget, h *hotcode.Hot, f *check.Finding) {
	busy, part, known := evidence.OfHost(p, t.cpus(h))
	if !known || busy.Below(p.Param(evidence.ParamCPUTaken)) {
		return
	}
	if rest := busy.Minus(part).
		Named("CPUs in use without the function"); rest.Below(p.Param(evidence.ParamCPUTaken)) {
		f.Evidence = append(f.Evidence, rest)
		f.Facts = append(f.Facts, evidence.FillsCPUs)
	}
}

// hotConfidence sets how sure the finding is.
func hotConfidence(p *check.Pass, t *hotTarget, h *hotcode.Hot, late bool, f *check.Finding) {
	low, _ := t.bounds(h)
	if limit := p.Param(hotShare); low < limit.Number() {
		f.Doubts = append(f.Doubts, "by chance alone it could be below "+limit.Text())
	}
	f.Doubts = append(f.Doubts, evidence.CPUDoubts(t.cpu)...)
	if serves, known := evidence.Serves(p); known && !serves && f.Severity >= check.Warning {
		f.Doubts = append(f.Doubts, "it listens on no port: for a job that nobody waits for, full CPUs are no fault")
	}
	if late {
		f.Doubts = append(f.Doubts, "a timed job that nobody waits for looks the same")
	}
	f.Confidence = check.High
	switch {
	case h.Inclusive.Count < evidence.FewSamples:
		f.Confidence = check.Low
	case len(f.Doubts) > 0:
		f.Confidence = check.Medium
	}
}

// bounds returns the interval that holds the true share with 95 % certainty.
func (t *hotTarget) bounds(h *hotcode.Hot) (low, high float64) {
	covered := t.cpu.Sampled() / t.cpu.Total()
	low, high = hotcode.Interval(h.Inclusive.Count, t.cpu.Profile.Total().Count)
	return low * covered, high * covered
}

// hotNotes say who calls it, how sure the share is, and what has no name.
func hotNotes(p *check.Pass, t *hotTarget, h *hotcode.Hot) []string {
	var out []string
	if h.Caller != "" {
		out = append(out, "called by "+h.Caller)
	}
	if h.Owner != hotcode.Application {
		out = append(out, fmt.Sprintf("it is %s: the program's own functions are in less than %s of the samples",
			hotOwner(h), p.Param(hotShare).Text()))
	}
	if h.Stripped {
		out = append(out,
			h.Module+" was stripped: debug symbols (packages -dbgsym, -debuginfo) would name the function")
	}
	low, high := t.bounds(h)
	out = append(out, fmt.Sprintf("95 %% sure to lie between %s and %s: %d of %d samples in %s",
		quantity.Of("", low, quantity.Ratio).Text(), quantity.Of("", high, quantity.Ratio).Text(), h.Inclusive.Count,
		t.cpu.Profile.Total().Count, quantity.Of("", t.cpu.Window, quantity.Seconds).Text()))
	d := t.cpu.Dark()
	dark := quantity.Of("", d.Total(), quantity.Seconds).Per(t.total())
	if dark.AtLeast(p.Param(hotDark)) {
		out = append(out, fmt.Sprintf("%s of the CPU time has no name: %s", dark.Text(), hotDarkText(d)))
	}
	return out
}

func hotOwner(h *hotcode.Hot) string {
	switch h.Owner {
	case hotcode.JDK:
		return "of the JDK"
	case hotcode.Library:
		return "a library's or the runtime's"
	}
	return "native code of " + h.Module
}

func hotRemedies(h *hotcode.Hot, harm hotHarm, share quantity.Value) []check.Remedy {
	rest := quantity.Of("", max(0, 1-share.Number()), quantity.Ratio)
	out := []check.Remedy{{
		Action: "Do less in " + hotcode.At(hotcode.Function(h.Name), h.Line) +
			": another algorithm, cached answers, work that is left out.",
		Risk: "a change of the program, which has to be tested",
		Effect: fmt.Sprintf("the share falls from %s; without this code the same work takes %s of the CPU time",
			share.Text(), rest.Text()),
	}}
	switch {
	case strings.HasPrefix(harm.runtime, "Node"):
		out = append(out, check.Remedy{
			Action: "Take the work out of the event loop (worker_threads), or run more processes (cluster).",
			Risk:   "each worker has a heap of its own, and its input is copied; full CPUs leave nothing to win",
			Effect: "the event loop falls below a full CPU, and answers come sooner",
		})
	case harm.runtime != "":
		out = append(out, check.Remedy{
			Action: "Let more processes do this work (workers of gunicorn, uvicorn or celery; multiprocessing; " +
				"puma -w of Ruby; pm.max_children of PHP-FPM).",
			Risk:   "each has memory and connections of its own; full CPUs leave nothing to win",
			Effect: "the interpreter falls below a full CPU, and the work is done sooner",
		})
	case harm.few:
		out = append(out, check.Remedy{
			Action: "Let it run more threads at a time: GOMAXPROCS of Go, more processes where a runtime has a lock " +
				"for all of its code.",
			Risk:   "other work on the host gets less of its CPUs",
			Effect: "requests are worked on side by side",
		})
	case harm.thread:
		out = append(out, check.Remedy{
			Action: "Let more than one thread do this work, where the others have none.",
			Risk:   "what the threads share needs locks; full CPUs leave nothing to win",
			Effect: "the thread falls below a full CPU, and the work is done sooner",
		})
	}
	return out
}

func hotPlacebos(harm hotHarm) []string {
	switch {
	case strings.HasPrefix(harm.runtime, "Node"):
		return []string{"More CPUs, or a larger UV_THREADPOOL_SIZE: scripts run in one thread, and this one is full."}
	case harm.runtime != "":
		return []string{"More threads, or more CPUs: an interpreter runs one thread at a time, on one CPU."}
	case harm.few:
		return []string{"More CPUs: the program would leave them idle, as it does with those that it has."}
	case harm.late:
		return []string{"More CPUs, threads or instances: a piece of work computes on one CPU, for as long as it does."}
	case harm.thread:
		return []string{"More CPUs, or faster disks: one thread runs on one CPU, and this one is full."}
	case harm.text != "":
		return []string{"More threads: the CPUs are full, and each thread runs the same code."}
	}
	return nil
}
