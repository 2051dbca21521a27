package hotcode

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/evidence/usage"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// CPU says where the CPU time of the recording's process went: what the kernel counted, and what samples show of it.
type CPU struct {
	*stacks.Profile
	Owners Owners
	Kernel float64 // seconds that the kernel counted, scaled to the profile's window; 0 if not recorded
	System float64 // the part of Kernel in kernel mode
	Window float64 // seconds the profile covers
}

// CPUOf returns the CPU time of the recording's target, as functions of its scripts if it mostly runs scripts; ok is
// false without a CPU profile.
func CPUOf(rec *recording.Recording) (c *CPU, ok bool) {
	if c, ok := ScriptsOf(rec); ok {
		t, counted := usage.OfTarget(rec)
		if !counted || c.inScripts() >= mostly*t.Used.Sum()*c.Window/t.Window {
			return c, true
		}
	}
	return CodeOf(rec)
}

// CodeOf is [CPUOf] by machine code, also for an interpreter. A runtime's own profiler knows more about its frames
// than the samples of all CPUs, which serve if there is no such profile; these samples are set against what all
// processes of the target used, including those that came and went. A profile of a whole host is set against its own
// samples only: the kernel's counters of single processes do not add up to it. The result is computed once and must
// not be changed.
func CodeOf(rec *recording.Recording) (c *CPU, ok bool) {
	c = recording.Once(rec, "CPU time of code", func() *CPU { return codeOf(rec) })
	return c, c != nil
}

// codeOf computes [CodeOf]; it returns nil without a profile.
func codeOf(rec *recording.Recording) *CPU {
	p, ok := rec.Ranked(stacks.CPU)
	pids := map[string]bool{strconv.Itoa(rec.Meta.Target.PID): true}
	all := !ok
	if all {
		pids = targetPIDs(rec)
		p, ok = ofTarget(rec, pids)
	}
	if !ok {
		return nil
	}
	c := cpuOf(rec, p, pids)
	if t, counted := usage.OfTarget(rec); all && counted {
		used := t.Used.Times(c.Window / t.Window)
		c.Kernel, c.System = used.Sum(), used.System
	}
	return c
}

// mostly is the share of its CPU time from which on a target mostly runs scripts: half.
const mostly = 0.5

// ScriptsOf returns the CPU time of the target's interpreters as functions of their scripts; ok is false without
// samples of them.
func ScriptsOf(rec *recording.Recording) (c *CPU, ok bool) {
	p, ok := rec.Ranked(stacks.Script)
	if !ok || len(p.Samples) == 0 {
		return nil, false
	}
	pids := map[string]bool{}
	for _, s := range rec.Info(metric.ScriptRuntime) {
		pids[s.Label("pid")] = true
	}
	return cpuOf(rec, p, pids), true
}

// inScripts returns the time in functions of scripts. Threads of an interpreter that run no script, such as libuv's,
// are in its profile without a stack.
func (c *CPU) inScripts() float64 {
	return seconds(c.Filter(func(s stacks.Sample) bool { return len(s.Stack) > 0 }).Total())
}

// BusiestOf returns the CPU time of the process with the most samples of all CPUs; ok is false without such samples,
// and if none belongs to a process.
func BusiestOf(rec *recording.Recording) (c *CPU, pid int, ok bool) {
	p, ok := rec.Ranked(stacks.HostCPU)
	if !ok {
		return nil, 0, false
	}
	for _, g := range stacks.Group(p, func(s stacks.Sample) int { return p.ThreadOf(s).ID }) { // the most first
		if g.Key == 0 {
			continue // the idle task, and what has no process
		}
		pid = g.Key
		own := p.Filter(func(s stacks.Sample) bool { return p.ThreadOf(s).ID == pid })
		return cpuOf(rec, own, map[string]bool{strconv.Itoa(pid): true}), pid, true
	}
	return nil, 0, false
}

// cpuOf sets a profile against what the kernel counted of its processes.
func cpuOf(rec *recording.Recording, p *stacks.Profile, pids map[string]bool) *CPU {
	c := &CPU{Profile: p, Owners: OwnersOf(rec), Window: p.Duration.Seconds()}
	if c.Window <= 0 {
		c.Window = rec.Meta.Duration
	}
	for _, s := range rec.Counter(metric.ProcessCPU) {
		rate, counted := s.Rate()
		if !counted || !pids[s.Label("pid")] {
			continue
		}
		c.Kernel += rate * c.Window
		if s.Label("mode") == "system" {
			c.System += rate * c.Window
		}
	}
	return c
}

// targetPIDs returns the pids of the target's processes; none for a whole host.
func targetPIDs(rec *recording.Recording) map[string]bool {
	out := map[string]bool{}
	for _, s := range rec.Counter(metric.ProcessCPU, "member", "target") {
		out[s.Label("pid")] = true
	}
	return out
}

// ofTarget returns the target's samples of all CPUs; for a whole host all of them.
func ofTarget(rec *recording.Recording, pids map[string]bool) (p *stacks.Profile, ok bool) {
	if p, ok = rec.Ranked(stacks.HostCPU); !ok {
		return nil, false
	}
	if len(pids) == 0 {
		return p, rec.Meta.Target.PID == 0
	}
	return p.Filter(func(s stacks.Sample) bool { return pids[strconv.Itoa(p.ThreadOf(s).ID)] }), true
}

// The least number of samples of compiled code for which a share is reported, and the shares from which on it is: a
// tenth of the stacks misleads, a fiftieth does not.
const (
	enoughCompiled = 20
	worthTelling   = 0.1
)

// Notes says what the samples of all CPUs cannot show of the target: unread processes, callers of code without frame
// pointers, and code without symbols. It also says which count of CPU time is believed.
func Notes(rec *recording.Recording) []string {
	p, ok := ofTarget(rec, targetPIDs(rec))
	if !ok {
		return nil
	}
	var out []string
	if t, counted := usage.OfTarget(rec); counted {
		out = append(out, t.Notes(seconds(p.Total()))...)
	}
	pic := stacks.PictureOf(p)
	share := func(n, of int64) float64 { return float64(n) / float64(max(of, 1)) }
	if s := share(pic.Shallow, pic.Managed); pic.Managed >= enoughCompiled && s >= worthTelling {
		out = append(out, fmt.Sprintf("%.0f %% of the stacks of code compiled at run time are one frame deep in the "+
			"samples of the CPUs "+
			"(%d of %d): it keeps no frame pointers, and its callers are not known. A JVM keeps them "+
			"with -XX:+PreserveFramePointer, for a register.",
			100*s, pic.Shallow, pic.Managed))
	}
	inFiles := pic.Unnamed - pic.Made
	if s := share(inFiles, pic.Frames); pic.Samples >= enoughCompiled && s >= worthTelling {
		out = append(out, fmt.Sprintf("%.0f %% of the frames in the CPU samples have no symbols (%d of %d): "+
			"stripped or deleted binary%s", 100*s, inFiles, pic.Frames, ofPlaced(pic)))
	}
	if s := share(pic.Made, pic.Frames); pic.Samples >= enoughCompiled && s >= worthTelling {
		out = append(out, fmt.Sprintf("%.0f %% of the frames in the samples of the CPUs are of code that was compiled "+
			"at run time, and have no name (%d of %d): node --perf-basic-prof, python -X perf, ruby --yjit-perf and "+
			"DOTNET_PerfMapEnabled=1 (.NET) write the names down",
			100*s, pic.Made, pic.Frames))
	}
	return out
}

// ofPlaced says what would name the functions known only by address; it says nothing if they are few.
func ofPlaced(pic stacks.Picture) string {
	const few = 0.1 // of the frames without a symbol
	if float64(pic.Placed) < few*float64(pic.Unnamed) {
		return ""
	}
	return "; debug symbols (packages -dbgsym, -debuginfo) would name them"
}

// Sampled returns the seconds that the samples stand for.
func (c *CPU) Sampled() float64 { return seconds(c.Profile.Total()) }

// Total returns the seconds that shares refer to: the kernel's count, unless the samples hold more, as they can by
// chance or if the kernel counts by ticks.
func (c *CPU) Total() float64 { return max(c.Kernel, c.Sampled()) }

func seconds(w stacks.Weight) float64 { return float64(w.Value) / 1e9 }

// A Part is a kind of work that CPU time goes into. Each sample belongs to one part, so the parts add up.
type Part string

// The parts. JVM is the runtime's own machine code apart from collector and compiler; Unsampled is what the kernel
// counted and no sample shows.
const (
	PartApplication Part = "application"
	PartLibraries   Part = "libraries"
	PartJDK         Part = "JDK"
	PartGC          Part = "GC"
	PartJIT         Part = "JIT"
	PartJVM         Part = "JVM"
	PartNative      Part = "native"
	PartKernel      Part = "kernel"
	PartUnsampled   Part = "not sampled"
)

// parts is the order in which they are shown.
var parts = []Part{
	PartApplication, PartLibraries, PartJDK, PartGC, PartJIT, PartJVM, PartNative, PartKernel, PartUnsampled,
}

// Frames and threads of the collectors (src/hotspot/share/gc) and of the compilers (compiler/compileBroker.cpp). Names
// of threads are from JDK 11 to 25; before 14 Parallel's were "GC task thread#0".
var (
	gcFrames = ParsePatterns("GangWorker::*", "WorkerThread::run", "VM_GenCollect*", "VM_G1*", "VM_ParallelGC*",
		"VM_GC_*",
		"VM_CollectFor*", "VM_SerialGC*", "PSPromotionManager::*", "PSParallelCompact*", "G1*", "ConcurrentG1*",
		"ShenandoahControlThread*",
		"XDriver*", "ZDriver*", "XWorkers::*", "ZWorkers::*", "ZDirector::*", "GCTaskThread::*")
	gcThreads = ParsePatterns("GC Thread*", "GC task*", "G1 *", "ParGC Thread*", "ZWorker*", "ZDriver*", "ZDirector*",
		"ZStat*",
		"ZUncommitter*", "XWorker*", "XDriver*", "Shenandoah*", "Gang worker*", "ParallelGC*", "Concurrent Mark*")
	jitFrames  = ParsePatterns("CompileBroker::*")
	jitThreads = ParsePatterns("C1 Compiler*", "C2 Compiler*", "JVMCI*", "Graal Compiler*", "Sweeper thread*")
)

// A PartTime is the CPU time of one part.
type PartTime struct {
	Part    Part
	Seconds float64
}

// Parts divides the total among the parts, in the order shown and without parts that took no time. Their sum is
// [CPU.Total].
func (c *CPU) Parts() []PartTime {
	gc, _ := Frames(c.Profile, gcFrames)
	jit, _ := Frames(c.Profile, jitFrames)
	sum := map[Part]stacks.Weight{}
	for _, s := range c.Samples {
		part := c.partOf(s, gc, jit)
		w := sum[part]
		sum[part] = stacks.Weight{Count: w.Count + s.Count, Value: w.Value + s.Value}
	}
	var out []PartTime
	for _, part := range parts {
		if t := seconds(sum[part]); t > 0 {
			out = append(out, PartTime{part, t})
		}
	}
	if rest := c.Total() - c.Sampled(); rest > 0 {
		out = append(out, PartTime{PartUnsampled, rest})
	}
	return out
}

// Part returns the seconds of one part, such as what the collector's threads used.
func (c *CPU) Part(part Part) float64 {
	for _, t := range c.Parts() {
		if t.Part == part {
			return t.Seconds
		}
	}
	return 0
}

func (c *CPU) partOf(s stacks.Sample, gc, jit stacks.Set) Part {
	thread := c.ThreadOf(s).Name
	switch {
	case anyText(gcThreads, thread) || s.Innermost(gc) >= 0:
		return PartGC
	case anyText(jitThreads, thread) || s.Innermost(jit) >= 0:
		return PartJIT
	case len(s.Stack) == 0:
		return PartNative
	}
	return c.partOfLeaf(s)
}

// partOfLeaf goes by the innermost frame. Stubs that the runtime generates, such as jbyte_disjoint_arraycopy, belong
// to their caller, not to a library.
func (c *CPU) partOfLeaf(s stacks.Sample) Part {
	leaf := c.Frames[s.Stack[0]]
	if !leaf.Managed() && leaf.Kind != stacks.Kernel && leaf.Module == "" {
		for _, f := range s.Stack {
			if c.Frames[f].Managed() {
				leaf = c.Frames[f]
				break
			}
		}
	}
	switch c.Owners.Of(leaf) {
	case Kernel:
		return PartKernel
	case Application:
		return PartApplication
	case Library:
		return PartLibraries
	case JDK:
		return PartJDK
	}
	if leaf.Module == "libjvm.so" {
		return PartJVM
	}
	return PartNative
}

func anyText(patterns []Pattern, name string) bool {
	return slices.ContainsFunc(patterns, func(p Pattern) bool { return p.Text(name) })
}

// MethodTime is the CPU time of one method of the application.
type MethodTime struct {
	Name string // com.example.Shop.cart
	Line int    // where most of its time is spent; 0 if unknown
	// Own is the seconds in it and in the JDK, libraries and kernel that it calls, up to the next method of the
	// application.
	Own       float64
	Inclusive float64 // seconds in it and all that it calls
	Calls     string  // what it spends most of Own in; empty when that is itself
	// Callers are the functions through which most of Own is reached, the nearest first and at most two: in a managed
	// program functions of the application, else those on the stack.
	Callers []string
}

// Methods returns the application's methods with the most own time, at most n. Own times are disjoint. If nothing
// belongs to the application, or the program is machine code, it returns functions, including the kernel's, by the
// time in each alone.
func (c *CPU) Methods(n int) []MethodTime {
	if !slices.ContainsFunc(c.Frames, func(f stacks.Frame) bool {
		return f.Managed() &&
			c.Owners.Of(f) == Application
	}) {
		return c.functions(n)
	}
	own, total := map[string]*methodSum{}, map[string]float64{}
	for _, s := range c.Samples {
		t := float64(s.Value) / 1e9
		seen := map[string]bool{}
		for _, f := range s.Stack {
			frame := c.Frames[f]
			if c.Owners.Of(frame) == Application && !seen[frame.Name] {
				seen[frame.Name] = true
				total[frame.Name] += t
			}
		}
		if len(seen) > 0 {
			c.addOwn(own, s, t)
		}
	}
	var out []MethodTime
	for name, m := range own {
		out = append(out, MethodTime{
			Name: ReadableName(stacks.Frame{Name: name}), Line: most(m.lines), Own: m.own, Inclusive: total[name],
			Calls: ReadableName(stacks.Frame{Name: most(m.calls)}), Callers: mostCallers(m.callers),
		})
	}
	return topMethods(out, n)
}

// constructorsOfExceptions are where the time of an exception is spent, but never why: the reason is the code that
// throws it.
var constructorsOfExceptions = ParsePatterns("*Exception.<init>", "*Error.<init>")

// methodSum is what is known of a method while samples are added.
type methodSum struct {
	own   float64
	lines map[int]float64
	calls map[string]float64
	// seconds by callers, joined by a character that no name has
	callers map[string]float64
}

func (c *CPU) addOwn(sums map[string]*methodSum, s stacks.Sample, t float64) {
	place := c.Owners.Nearest(c.Profile, s.Stack, 0, constructorsOfExceptions)
	at := place.At
	if place.Owner != Application { // synthetic frames only
		return
	}
	frame := c.Frames[s.Stack[at]]
	m := sums[frame.Name]
	if m == nil {
		m = &methodSum{lines: map[int]float64{}, calls: map[string]float64{}, callers: map[string]float64{}}
		sums[frame.Name] = m
	}
	m.own += t
	m.lines[frame.Line] += t
	callee := ""
	if at > 0 {
		callee = c.Frames[s.Stack[at-1]].Name
	}
	m.calls[callee] += t
	m.callers[c.callers(s.Stack, at, func(f stacks.Frame) bool { return c.Owners.Of(f) == Application })] += t
}

// shownCallers is how many callers of a method are shown: the nearest, and its caller.
const shownCallers = 2

// callers returns the nearest wanted callers of a stack's frame, joined by zero bytes, which no name contains.
func (c *CPU) callers(stack []int, at int, wanted func(stacks.Frame) bool) string {
	var names []string
	last := c.Frames[stack[at]].Name
	for _, f := range stack[at+1:] {
		frame := c.Frames[f]
		if frame.Name == last || Synthetic(frame) || !wanted(frame) {
			continue
		}
		last = frame.Name
		if last == stacks.Unnamed { // its callers are unknown
			break
		}
		if stacks.IsUnnamed(last) { // the walk went by unwind tables: the next frame is its caller
			continue
		}
		if names = append(names, ReadableName(stacks.Frame{Name: last})); len(names) == shownCallers {
			break
		}
	}
	return strings.Join(names, "\x00")
}

// mostCallers returns the callers with the most time.
func mostCallers(sums map[string]float64) []string {
	best := most(sums)
	if best == "" {
		return nil
	}
	return strings.Split(best, "\x00")
}

// most returns the key with the greatest sum; the least of equals.
func most[K cmp.Ordered](sums map[K]float64) (best K) {
	greatest := math.Inf(-1)
	for k, t := range sums {
		if t > greatest || t == greatest && k < best {
			best, greatest = k, t
		}
	}
	return best
}

func topMethods(list []MethodTime, n int) []MethodTime {
	slices.SortFunc(list, func(a, b MethodTime) int {
		return cmp.Or(cmp.Compare(b.Own, a.Own), cmp.Compare(a.Name, b.Name))
	})
	return list[:min(n, len(list))]
}

func (c *CPU) functions(n int) []MethodTime {
	var out []MethodTime
	for _, r := range c.Top(stacks.Method) {
		if r.Self.Value > 0 {
			out = append(out, MethodTime{Name: nameOrFile(r.Frame), Own: seconds(r.Self), Inclusive: seconds(r.Total)})
		}
	}
	out = topMethods(out, n)
	c.addCallers(out)
	return out
}

// nameOrFile returns the name of a function; for code without a symbol, with the file it is in.
func nameOrFile(f stacks.Frame) string {
	if stacks.IsUnnamed(f.Name) && f.Module != "" {
		return f.Name + " in " + path.Base(f.Module)
	}
	return f.Name
}

// addCallers sets the callers of functions.
func (c *CPU) addCallers(list []MethodTime) {
	sums := map[string]map[string]float64{}
	for _, m := range list {
		sums[m.Name] = map[string]float64{}
	}
	for _, s := range c.Samples {
		if len(s.Stack) == 0 {
			continue
		}
		if sum := sums[nameOrFile(c.Frames[s.Stack[0]])]; sum != nil {
			sum[c.callers(s.Stack, 0, func(stacks.Frame) bool { return true })] += float64(s.Value) / 1e9
		}
	}
	for i := range list {
		list[i].Callers = mostCallers(sums[list[i].Name])
	}
}

// Interval returns the 95 % confidence bounds of a share that k of n samples show (Wilson's interval: it stays
// between 0 and 1 and is good for small counts too).
func Interval(k, n int64) (low, high float64) {
	if n <= 0 {
		return 0, 1
	}
	const z = 1.96 // of the normal distribution, for 95 %
	share, m := float64(k)/float64(n), float64(n)
	middle := (share + z*z/(2*m)) / (1 + z*z/m)
	half := z / (1 + z*z/m) * math.Sqrt(share*(1-share)/m+z*z/(4*m*m))
	return max(0, middle-half), min(1, middle+half)
}

// An Attribution says whose time a sample is.
type Attribution struct {
	Name string
	// Inlined reports that a JIT compiler merged the method and others of the application into one piece of code, and
	// that the sample is in it. The compiler only half knows which of them an instruction there belongs to: the
	// optimised code of a loop can stand under the name of the method that calls it, and under its own after the next
	// start.
	Inlined bool
	// Callers are the application's methods on the stack, from the innermost outwards and each once. The list is
	// overwritten by the next sample: 100,000 stacks of 40 frames would be 100 MiB.
	Callers []Caller
}

// A Caller is a method on a sample's stack; Inlined is as in [Attribution].
type Caller struct {
	Name    string
	Inlined bool
}

// Attributed calls each for every sample in turn, with whose time it is: the application's method nearest to what
// ran, with the JDK, libraries and kernel that it calls, as [CPU.Methods] counts a method's own time; "[GC]" and
// "[JIT]" for the work of the collector and the compilers; and the innermost function if no caller belongs to the
// application. Unlike [CPU.Methods] it also attributes the time of machine code, and of Go's standard library, to
// callers.
func (c *CPU) Attributed(each func(stacks.Sample, Attribution)) {
	callers := c.callersOf()
	for i, a := range c.attributions() {
		s := c.Samples[i]
		a.Callers = callers(s.Stack, c.compiled(s.Stack))
		each(s, a)
	}
}

// attributions returns the attributions without the callers.
func (c *CPU) attributions() []Attribution {
	gc, _ := Frames(c.Profile, gcFrames)
	jit, _ := Frames(c.Profile, jitFrames)
	modules := goModules(c.Profile)
	out := make([]Attribution, len(c.Samples))
	joined := map[string]bool{} // the compiled methods that others are inlined into
	roots := make([]string, len(c.Samples))
	for i, s := range c.Samples {
		root := c.compiled(s.Stack)
		var a Attribution
		part := c.partOf(s, gc, jit)
		name, inGo := goMethod(c.Profile, modules, s.Stack)
		switch {
		case inGo:
			a.Name = name
		case part == PartGC || part == PartJIT:
			a.Name = "[" + string(part) + "]"
		case len(s.Stack) == 0:
			a.Name = stacks.Unnamed
		default:
			at := 0
			if place := c.Owners.Nearest(c.Profile, s.Stack, 0, constructorsOfExceptions); place.Owner == Application {
				at = place.At
			}
			a.Name = c.Frames[s.Stack[at]].Name
			if at < root {
				a.Inlined = true
				joined[c.Frames[s.Stack[root]].Name] = true
			} else if at == root {
				roots[i] = a.Name
			}
		}
		out[i] = a
	}
	for i := range out {
		out[i].Inlined = out[i].Inlined || joined[roots[i]]
	}
	return out
}

// compiled returns the index of the method whose machine code ran: those before it are inlined into it. It is 0 for
// code that no JIT compiler made.
func (c *CPU) compiled(stack []int) int {
	for i, f := range stack {
		if c.Frames[f].Kind != stacks.Inlined {
			return i
		}
	}
	return max(len(stack)-1, 0)
}

// application reports which frames are methods of the application. In a Go program the standard library's are not.
func (c *CPU) application(goModules map[string]bool) []bool {
	own := make([]bool, len(c.Frames))
	for i, f := range c.Frames {
		own[i] = c.Owners.Of(f) == Application && !Synthetic(f) && (f.Managed() || !goModules[f.Module] ||
			!goStandard(f))
	}
	return own
}

// callersOf returns a function that lists the callers of a stack whose machine code ran in the method at root.
func (c *CPU) callersOf() func(stack []int, root int) []Caller {
	own := c.application(goModules(c.Profile))
	number := make([]int, len(c.Frames)) // of the frame's name: frames differ by their lines too
	byName := map[string]int{}
	for i, f := range c.Frames {
		n, known := byName[f.Name]
		if !known {
			n = len(byName)
			byName[f.Name] = n
		}
		number[i] = n
	}
	seen := make([]int, len(byName)) // the last stack that had the name
	stack := 0
	var out []Caller
	return func(frames []int, root int) []Caller {
		stack++
		out = out[:0]
		for i, f := range frames {
			if own[f] && seen[number[f]] != stack {
				seen[number[f]] = stack
				out = append(out, Caller{c.Frames[f].Name, i < root})
			}
		}
		return out
	}
}
