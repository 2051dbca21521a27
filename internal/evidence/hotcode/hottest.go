package hotcode

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A Hot is one function or method that owns much of the CPU time, with all that it calls.
type Hot struct {
	Name   string // as a reader knows it: com.example.Shop.cart, sort_rows, fib (/app/fib.py), 0x4f20 of prog
	Module string // for machine code
	Line   int    // where most of its time is spent; 0 if unknown
	Owner  Owner  // Application, or another owner if the application explains little

	// Inclusive is the time in it and all that it calls; a recursive call counts once. For a loop it is its own time.
	Inclusive stacks.Weight
	// Own is the part of Inclusive without other functions of the application that it calls, but with libraries and
	// kernel.
	Own stacks.Weight
	// Inlines is set for a function of JavaScript: V8 compiles functions into their callers
	// (src/compiler/js-inlining.cc), and then the frames do not show them.
	Inlines bool
	Traffic stacks.Weight // the part of Inclusive that goes into answers, sockets, waits and wake-ups
	// Covered is the time in any function of the application, or in any that stands in for them.
	Covered stacks.Weight

	Callee       string // the function that it calls for most of its time; empty if that is itself
	CalleeModule string
	CalleeTime   stacks.Weight
	// Stripped is set where the function has no symbol. Callees are then the functions with half of its time, the one
	// with the most first: they show what it does.
	Stripped  bool
	Callees   []string
	Inner     string // the innermost library function below it with half of its time; empty if none has
	InnerLine int
	InnerTime stacks.Weight
	Caller    string // the caller of most of its time; empty if the stacks do not show it

	Places []HotPlace
}

// A HotPlace is where the function stands in a sample's stack: its innermost call.
type HotPlace struct {
	Sample stacks.Sample
	At     int
}

// Hottest returns the innermost function that takes at least so many seconds with all that it calls: none of its
// callees takes as many below it. This finds a function with a thousand callees, which lists of innermost functions
// do not show. The application's functions come first. If they explain less than that, functions of libraries and of
// a runtime stand in; then those of a stripped program, by their start address; then the C library's, if its callers
// are unknown. It never names the kernel, libraries without symbols, the entry of a thread or the loop of an
// interpreter; a loop that calls everybody else's work counts by its own time. ok is false if no function takes as
// many.
func (c *CPU) Hottest(least float64) (h *Hot, ok bool) {
	r := c.newRanking()
	for _, level := range []role{ofApplication, standIn, byAddress, ofSystem} {
		r.choose(level)
		if g, found := r.innermost(least); found {
			h = r.describe(g)
			if level == ofApplication || level == byAddress {
				r.lookInside(h)
			}
			return h, true
		}
		if level == ofApplication && seconds(r.covered) >= least { // by several functions, but none owns it
			return nil, false
		}
	}
	return nil, false
}

// HottestOf returns the function of the recording's target that owns at least half of its CPU time; nil if none does.
func HottestOf(rec *recording.Recording) *Hot {
	return recording.Once(rec, "function with half of the CPU time", func() *Hot {
		c, ok := CPUOf(rec)
		if !ok {
			return nil
		}
		h, _ := c.Hottest(c.Total() / 2)
		return h
	})
}

// Share returns the share of the function's inclusive time that is in samples of the same profile.
func (h *Hot) Share(samples []stacks.Sample) float64 {
	within := map[*int]bool{} // samples share their stacks
	for _, at := range h.Places {
		within[&at.Sample.Stack[0]] = true
	}
	in := 0.0
	for _, s := range samples {
		if within[&s.Stack[0]] {
			in += float64(s.Value)
		}
	}
	return in / float64(h.Inclusive.Value)
}

// A ranking sums up the functions of a CPU profile, one level at a time.
type ranking struct {
	*CPU
	roles []role // of each frame
	mute  []bool // frames that say nothing about callers and callees
	steps []bool // frames of an interpreter that works on the functions of a script
	hosts []bool // frames of an interpreter's file
	group []int  // the function of each frame
	n     int    // functions

	level     role
	inside    bool            // of another function
	covered   stacks.Weight   // of the samples with a function of the level
	inclusive []stacks.Weight // of each function
	nearest   []stacks.Weight // of each function, where it is the innermost of the level
	isLoop    []bool          // functions that count by their own time
	seen      []int           // the sample, from 1, that counted into the function last
	count     int             // samples that were looked at
}

func (c *CPU) newRanking() *ranking {
	r := &ranking{
		CPU: c, roles: c.roles(), mute: make([]bool, len(c.Frames)), group: make([]int, len(c.Frames)),
		steps: c.Set(isInterpreter), hosts: c.Set(OfInterpreter),
	}
	numbers := map[stacks.Frame]int{}
	for i, f := range c.Frames {
		r.mute[i] = nameless(f) || isEntry(f) || isInterpreter(f) || Synthetic(f)
		m := stacks.Method(f)
		g, known := numbers[m]
		if !known {
			g = len(numbers)
			numbers[m] = g
			r.isLoop = append(r.isLoop, isLoop(f))
		}
		r.group[i] = g
	}
	r.n = len(numbers)
	r.seen = make([]int, r.n)
	return r
}

// lookInside finds where the libraries that the function calls spend its time. From then on the ranking covers what
// is below the function.
func (r *ranking) lookInside(h *Hot) {
	below, inside := *r.Profile, *r.CPU
	below.Samples = make([]stacks.Sample, len(h.Places))
	for i, at := range h.Places {
		below.Samples[i] = at.Sample
		below.Samples[i].Stack = at.Sample.Stack[:at.At]
	}
	inside.Profile, r.CPU, r.inside = &below, &inside, true
	r.choose(standIn)
	if g, found := r.innermost(seconds(h.Inclusive) / 2); found {
		inner := r.describe(g)
		h.Inner, h.InnerLine, h.InnerTime = inner.Name, inner.Line, inner.Inclusive
	}
}

// choose sums up the functions of a level.
func (r *ranking) choose(level role) {
	r.level = level
	r.covered = stacks.Weight{}
	r.inclusive, r.nearest = make([]stacks.Weight, r.n), make([]stacks.Weight, r.n)
	for _, s := range r.Samples {
		list := r.functions(s)
		if len(list) == 0 {
			continue
		}
		r.covered.Add(s)
		if g := r.nearestOf(s, list); g >= 0 {
			r.nearest[g].Add(s)
		}
		r.count++
		for _, g := range list {
			if r.seen[g] != r.count {
				r.seen[g] = r.count
				r.inclusive[g].Add(s)
			}
		}
	}
}

// nearestOf returns the innermost function of the level, -1 if there is none. The loop of a library that a main
// function starts, such as asyncio.run, does not work for that main function.
func (r *ranking) nearestOf(s stacks.Sample, list []int) int {
	if len(list) == 0 {
		return -1
	}
	g := list[len(list)-1]
	for _, f := range s.Stack {
		switch {
		case !r.isLoop[g] || r.group[f] == g:
			return g
		case r.isLoop[r.group[f]]:
			return -1
		}
	}
	return g
}

// functions returns the functions of the level on a sample's stack, the outermost first. Inside another function it
// falls back to functions of the C library.
func (r *ranking) functions(s stacks.Sample) (list []int) {
	list = r.functionsOf(s, r.level)
	if len(list) == 0 && r.inside {
		return r.functionsOf(s, ofSystem)
	}
	return list
}

// functionsOf leaves out what an interpreter's own functions call through a script: that belongs to the script.
func (r *ranking) functionsOf(s stacks.Sample, what role) (list []int) {
	script := s.Innermost(r.steps)
	for i := len(s.Stack) - 1; i >= 0; i-- {
		f := s.Stack[i]
		if script >= 0 && i > script && r.hosts[f] {
			continue
		}
		if r.roles[f] == what {
			list = append(list, r.group[f])
		}
	}
	return list
}

// time returns the seconds by which a function is ranked.
func (r *ranking) time(g int) float64 {
	if r.isLoop[g] {
		return seconds(r.nearest[g])
	}
	return seconds(r.inclusive[g])
}

// innermost walks inwards from the function with the most time, as long as a callee takes enough below it.
func (r *ranking) innermost(least float64) (g int, ok bool) {
	g = -1
	for i := range r.n {
		if t := r.time(i); t > 0 && t >= least && (g < 0 || t > r.time(g)) {
			g = i
		}
	}
	if g < 0 {
		return 0, false
	}
	been := map[int]bool{g: true}
	for {
		next := r.below(g, least, been)
		if next < 0 {
			return g, true
		}
		g = next
		been[g] = true
	}
}

// below returns the function that takes the most time below another, among those that take enough there; -1 if there
// is none. A function is below another if its outermost call is inside the other's.
func (r *ranking) below(g int, least float64, been map[int]bool) (best int) {
	sums := make([]stacks.Weight, r.n)
	for _, s := range r.Samples {
		list := r.functions(s)
		nearest := r.nearestOf(s, list)
		r.count++
		inside := false
		for _, f := range list {
			if inside && r.seen[f] != r.count && (!r.isLoop[f] || f == nearest) {
				sums[f].Add(s)
			}
			r.seen[f] = r.count
			inside = inside || f == g
		}
	}
	best = -1
	for f := range sums {
		if t := seconds(sums[f]); !been[f] && t > 0 && t >= least && (best < 0 || t > seconds(sums[best])) {
			best = f
		}
	}
	return best
}

// describe returns what the profile says about a function.
func (r *ranking) describe(g int) *Hot {
	h := &Hot{Covered: r.covered}
	lines, callees, callers := map[int]float64{}, map[string]float64{}, map[string]float64{}
	answered, _ := Frames(r.Profile, answers)
	calleeSum, modules := map[string]stacks.Weight{}, map[string]string{}
	for _, s := range r.Samples {
		inner, outer := r.calls(s, g)
		list := r.functions(s)
		own := inner >= 0 && r.nearestOf(s, list) == g
		if inner < 0 || r.isLoop[g] && !own { // what a loop calls is not its own time
			continue
		}
		f := r.Frames[s.Stack[inner]]
		h.Name, h.Module, h.Owner = ReadableName(f), f.Module, r.ownerOf(f)
		h.Inlines = strings.HasPrefix(f.Name, "JS:")
		h.Places = append(h.Places, HotPlace{s, inner})
		h.Inclusive.Add(s)
		below := stacks.Sample{Stack: s.Stack[:inner]}
		if below.Innermost(answered) >= 0 || kernelTraffic(r.Profile, below) {
			h.Traffic.Add(s)
		}
		if own {
			h.Own.Add(s)
		}
		t := float64(s.Value)
		lines[f.Line] += t
		callee := r.callee(s.Stack[:inner])
		name := ReadableName(callee)
		callees[name] += t
		sum := calleeSum[name]
		sum.Add(s)
		calleeSum[name], modules[name] = sum, callee.Module
		callers[ReadableName(r.caller(s.Stack[outer+1:]))] += t
	}
	h.Line = most(lines)
	h.Callee = most(callees)
	if h.Callee != "" {
		h.CalleeTime, h.CalleeModule = calleeSum[h.Callee], modules[h.Callee]
	}
	h.Caller = most(callers)
	if h.Stripped = r.level == byAddress; h.Stripped {
		h.Callees = halfOf(callees, float64(h.Inclusive.Value))
	}
	return h
}

// halfOf returns the fewest names that together have half of a sum, the one with the most first; none if all have
// less.
func halfOf(sums map[string]float64, whole float64) (out []string) {
	left, sum := maps.Clone(sums), 0.0
	delete(left, "")
	for len(left) > 0 && 2*sum < whole {
		name := most(left)
		out, sum = append(out, name), sum+left[name]
		delete(left, name)
	}
	if 2*sum < whole {
		return nil
	}
	return out
}

// calls returns the indexes of the innermost and the outermost call of a function; -1 if the sample has none.
func (r *ranking) calls(s stacks.Sample, g int) (inner, outer int) {
	inner = -1
	if !slices.Contains(r.functions(s), g) {
		return inner, 0
	}
	for i, f := range s.Stack {
		if r.group[f] != g {
			continue
		}
		if inner < 0 {
			inner = i
		}
		outer = i
	}
	return inner, outer
}

// callee returns the nearest call of a function that has a name; the zero frame if none has.
func (r *ranking) callee(calls []int) stacks.Frame {
	for i := len(calls) - 1; i >= 0; i-- {
		if !r.mute[calls[i]] {
			return r.Frames[calls[i]]
		}
	}
	return stacks.Frame{}
}

// caller returns the nearest caller that has a name; the zero frame if none has.
func (r *ranking) caller(calls []int) stacks.Frame {
	for _, f := range calls {
		if !r.mute[f] {
			return r.Frames[f]
		}
	}
	return stacks.Frame{}
}

func (r *ranking) ownerOf(f stacks.Frame) Owner {
	owner := r.Owners.Of(f)
	switch {
	case r.level == ofApplication || r.level == byAddress:
		return Application
	case owner == Application: // of a standard library or of an interpreter, in the program's own file
		return Library
	}
	return owner
}

// Dark is the CPU time, in seconds, that the samples do not attribute to a function.
type Dark struct {
	Unnamed     float64 // no function of the program has a name
	Interpreted float64 // an interpreter works for functions that the samples do not show
	Unsampled   float64 // the kernel counted it and no sample shows it
	// Interpreter is the file name of the interpreter with most of Interpreted, such as ruby; "" if there is none.
	Interpreter string
}

// Total returns the sum.
func (d Dark) Total() float64 { return d.Unnamed + d.Interpreted + d.Unsampled }

// Dark returns the time that the samples do not name. It leaves out what the kernel does for a thread without a stack
// of its own.
func (c *CPU) Dark() Dark {
	roles := c.roles()
	interpreters := c.Set(OfInterpreter)
	functions := setOf(roles, ofApplication)
	user := c.Set(func(f stacks.Frame) bool { return f.Kind != stacks.Kernel })
	named := c.Set(func(f stacks.Frame) bool { return f.Kind != stacks.Kernel && !nameless(f) && !isEntry(f) })
	var unnamed, interpreted stacks.Weight
	of := map[string]float64{}
	for _, s := range c.Samples {
		switch at := s.Innermost(interpreters); {
		case s.Innermost(functions) >= 0:
		case at >= 0:
			interpreted.Add(s)
			of[interpreterFile.FindStringSubmatch(c.Frames[s.Stack[at]].Module)[2]] += float64(s.Value)
		case (len(s.Stack) == 0 || s.Innermost(user) >= 0) && s.Innermost(named) < 0:
			unnamed.Add(s)
		}
	}
	return Dark{seconds(unnamed), seconds(interpreted), max(0, c.Total()-c.Sampled()), most(of)}
}

// Cut returns the CPU time, in seconds, of samples that name the innermost function of the program but do not reach
// the thread's first function: a caller is in no file, as where a walk ended, or the outermost has no name. No
// function is then seen with all that it calls. A function in between without a name, such as a static one of a
// stripped program, hides nothing of the others.
func (c *CPU) Cut() float64 {
	user := c.Set(func(f stacks.Frame) bool { return f.Kind != stacks.Kernel })
	nowhere := c.Set(func(f stacks.Frame) bool { return f.Kind == stacks.Unknown })
	unnamed := c.Set(func(f stacks.Frame) bool { return f.Kind != stacks.Kernel && nameless(f) })
	var cut stacks.Weight
	for _, s := range c.Samples {
		i := s.Innermost(user)
		if i < 0 || unnamed[s.Stack[i]] {
			continue
		}
		outermost := c.Frames[s.Stack[s.Outermost(user)]]
		if s.Innermost(nowhere) >= 0 || nameless(outermost) && outermost.Name != stacks.ThreadStart {
			cut.Add(s)
		}
	}
	return seconds(cut)
}

// ReadableName returns the name of a frame as its author knows it. For scripts, the runtime's perf map and
// script-profile put a mark before the name and the place in the source behind it. A function without a symbol is
// named by its start address, 0x4f20 of prog.
func ReadableName(f stacks.Frame) string {
	if begin, ok := stacks.Place(f.Name); ok && f.Module != "" {
		return begin + " of " + f.Module
	}
	if rest, ok := strings.CutPrefix(f.Name, "py::"); ok { // Python/perf_trampoline.c, since 3.12
		if function, file, ok := strings.Cut(rest, ":"); ok {
			return function + " (" + file + ")"
		}
		return rest
	}
	if rest, ok := cutScript(f.Name); ok {
		function, file, _ := strings.Cut(strings.TrimLeft(rest, "*~^+"), " ")
		if function == "" {
			function = "(anonymous)"
		}
		if file == "" {
			return function
		}
		return function + " (" + file + ")"
	}
	return f.Name
}

// cutFile splits the name that [ReadableName] returns for a function of a script into function and file.
func cutFile(name string) (function, file string, ok bool) {
	function, file, ok = strings.Cut(name, " (")
	file, ends := strings.CutSuffix(file, ")")
	return function, file, ok && ends && function != ""
}

// Function removes the file from a name that [ReadableName] returned, for use where the file is known already.
func Function(name string) string {
	if function, _, ok := cutFile(name); ok {
		return function
	}
	return name
}

// At names a place in the source: cart (/app/shop.py:7) in a script, com.example.Shop.cart:7 otherwise. A line of 0
// is unknown.
func At(name string, line int) string {
	if line == 0 {
		return name
	}
	if function, file, ok := cutFile(name); ok {
		return function + " (" + file + ":" + strconv.Itoa(line) + ")"
	}
	return name + ":" + strconv.Itoa(line)
}
