package checks

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

const (
	// fewSamples is how many samples of the bottleneck are too few to believe in it: of nine the true share is, with 95 %
	// certainty, between a half and twice what they say.
	fewSamples = 10
	// halfSamples is how many samples the second half of a profile needs to be asked whether a share is over: below, its
	// interval is as wide as the question.
	halfSamples = 50
)

// A measure is how much of one event a clause holds for.
type measure struct {
	clause   clause
	profile  *stacks.Profile
	owners   hotcode.Owners
	cpu      *hotcode.CPU   // of a CPU profile
	cpus     quantity.Value // of a CPU profile
	hits     []hit
	matched  stacks.Weight
	share    quantity.Value
	steady   float64 // the share, or that of the second half of the window when it is less: what was over is no fault now
	low      float64 // the bounds of the share, with 95 % certainty
	high     float64
	of       int64 // samples that the share is of
	severity check.Severity
	doubts   []string
	limit    quantity.Value   // the threshold it passed
	beside   []quantity.Value // what else was measured of it
}

// weigh computes the share; ok is false when there is nothing that it could be of.
func (m *measure) weigh() (ok bool) {
	e := stacks.Event(m.clause.Event)
	if e == stacks.CPU {
		m.weighCPU()
		return true
	}
	value, count, what := m.whole()
	if value <= 0 {
		return false
	}
	unit := quantity.Seconds
	scale := 1e9
	if e == stacks.Alloc {
		unit, scale = quantity.Bytes, 1
	}
	m.share = quantity.Of("", float64(m.matched.Value)/scale, unit).Per(quantity.Of("", value/scale, unit)).Named("%s", what)
	m.of = count
	if e == stacks.Wall || e == stacks.Alloc {
		m.low, m.high = hotcode.Interval(m.matched.Count, count)
	} else { // each wait is an event of its own: their number is what is known by chance
		spread := 1.96 / math.Sqrt(float64(max(1, m.matched.Count)))
		m.low, m.high = m.share.Number()*(1-min(1, spread)), m.share.Number()*(1+spread)
	}
	m.steady = m.share.Number()
	return true
}

// whole gives what the share of an event other than CPU time is of, in nanoseconds or bytes, and how many samples that is.
func (m *measure) whole() (value float64, count int64, what string) {
	switch e := stacks.Event(m.clause.Event); e {
	case stacks.Alloc:
		all := m.profile.Total()
		return float64(all.Value), all.Count, "share of the allocated bytes"
	case stacks.Wall:
		all := m.profile.Filter(func(s stacks.Sample) bool { return m.threads()[s.Thread] }).Total()
		return float64(all.Value), all.Count, fmt.Sprintf("share of the time of %d threads", len(m.threads()))
	default:
		n := len(m.threads())
		return float64(m.profile.Duration) * float64(n), m.matched.Count, fmt.Sprintf("share of the time of the %d threads that waited", n)
	}
}

// threads gives the threads that have a matching sample.
func (m *measure) threads() map[int]bool {
	out := map[int]bool{}
	for _, h := range m.hits {
		out[h.sample.Thread] = true
	}
	return out
}

// weighCPU computes the share of the process's CPU time, and that of the second half of the window: what a program does once, as
// it starts, is over by then.
func (m *measure) weighCPU() {
	all := m.profile.Total()
	m.of = all.Count
	m.share = quantity.Of("", float64(m.matched.Value)/1e9, quantity.Seconds).
		Per(quantity.Of("CPU time", m.cpu.Total(), quantity.Seconds)).Named("share of the process's CPU time")
	covered := m.cpu.Sampled() / m.cpu.Total()
	low, high := hotcode.Interval(m.matched.Count, all.Count)
	m.low, m.high = low*covered, high*covered
	m.steady = m.share.Number()
	late := func(s stacks.Sample) bool { return s.At >= m.profile.Duration/2 }
	var part, whole stacks.Weight
	for _, h := range m.hits {
		if late(h.sample) {
			part.Value += h.sample.Value
		}
	}
	for _, s := range m.profile.Samples {
		if late(s) {
			whole.Count += s.Count
			whole.Value += s.Value
		}
	}
	if whole.Count >= halfSamples && whole.Value > 0 {
		m.steady = min(m.steady, float64(part.Value)/float64(whole.Value)*covered)
	}
}

// judge sets the severity, and what makes it less sure.
func (m *measure) judge(p *check.Pass, thresholds [2]*check.Param) {
	steady := quantity.Of("share", m.steady, quantity.Ratio)
	m.limit = p.Param(thresholds[0])
	if steady.Below(m.limit) {
		return
	}
	m.severity = check.Info
	if warn := p.Param(thresholds[1]); steady.AtLeast(warn) && m.harms(p) {
		m.severity, m.limit = check.Warning, warn
	}
	if m.low < m.limit.Number() {
		m.doubts = append(m.doubts, fmt.Sprintf("by chance alone it could be below %s", m.limit.Text()))
	}
	if m.cpu != nil {
		m.doubts = append(m.doubts, cpuDoubts(m.cpu)...)
	}
}

// coverage is how far samples and the kernel's count may lie apart: a kernel that counts by ticks is off by some per cent
// for threads that run for parts of one.
const coverage = 0.2

func cpuDoubts(c *hotcode.CPU) []string {
	switch {
	case c.Kernel == 0:
		return []string{"the kernel's count of the process's CPU time was not recorded: shares are of the samples"}
	case c.Sampled() < c.Kernel*(1-coverage) || c.Sampled() > c.Kernel*(1+coverage):
		return []string{fmt.Sprintf("the samples stand for %s, the kernel counted %s",
			quantity.Of("", c.Sampled(), quantity.Seconds).Text(), quantity.Of("", c.Kernel, quantity.Seconds).Text())}
	}
	return nil
}

// harms reports whether the level costs anything: a share of a busy CPU, memory that the collector works for, or time in
// which threads stand still.
func (m *measure) harms(p *check.Pass) bool {
	switch stacks.Event(m.clause.Event) {
	case stacks.CPU:
		return m.cpus.AtLeast(p.Param(codeBusy))
	case stacks.Alloc:
		gc, ok := partShare(p, hotcode.PartGC)
		return ok && gc.AtLeast(p.Param(allocGC)) || m.fills(p)
	}
	return true
}

// fills reports whether filling what is allocated takes enough CPU time to be worth a change.
func (m *measure) fills(p *check.Pass) bool {
	c, ok := hotcode.CPUOf(p.Recording)
	if !ok || len(m.clause.Costs) == 0 || c.Total() <= 0 {
		return false
	}
	filling, _ := hotcode.Frames(c.Profile, patternsOf(m.clause.Costs))
	var t stacks.Weight
	for _, s := range c.Samples {
		if s.Innermost(filling) >= 0 {
			t.Value += s.Value
		}
	}
	share := quantity.Of("", float64(t.Value)/1e9, quantity.Seconds).
		Per(quantity.Of("CPU time", c.Total(), quantity.Seconds)).Named("share of the process's CPU time in %s",
		strings.Join(m.clause.Costs, ", "))
	m.beside = append(m.beside, share)
	return share.AtLeast(p.Param(allocCost))
}

// partShare gives the share of the process's CPU time that goes into one part of it, such as the collector or the compiler;
// ok is false without a CPU profile in which the process used any.
func partShare(p *check.Pass, part hotcode.Part) (share quantity.Value, ok bool) {
	c, ok := hotcode.CPUOf(p.Recording)
	if !ok || c.Total() <= 0 {
		return quantity.Value{}, false
	}
	return quantity.Of(string(part), c.Part(part), quantity.Seconds).
		Per(quantity.Of("CPU time", c.Total(), quantity.Seconds)).Named("%s, share of the process's CPU time", part), true
}

// A culprit is a method that matching samples lead to.
type culprit struct {
	method, through string
	line            int
	owner           hotcode.Owner
	value           int64
	path            []string // of its heaviest sample, from the bottleneck outwards
	heaviest        int64
	lines           map[int]int64
	class           string // of the heaviest sample: of a lock or of what was allocated
	entry           string // of the heaviest sample: the application's method that others' code calls first, with its line
}

// name gives com.example.Shop.cart:42.
func (c *culprit) name() string {
	if c.line == 0 {
		return c.method
	}
	return fmt.Sprintf("%s:%d", c.method, c.line)
}

// culprits groups samples by the method to blame, the heaviest first.
func culprits(prof *stacks.Profile, owners hotcode.Owners, hits []hit, skip []hotcode.Pattern) []*culprit {
	byMethod := map[string]*culprit{}
	for _, h := range hits {
		place := owners.Nearest(prof, h.sample.Stack, h.at, skip)
		f := prof.Frames[h.sample.Stack[place.At]]
		c := byMethod[f.Name]
		if c == nil {
			c = &culprit{method: f.Name, owner: place.Owner, lines: map[int]int64{}}
			byMethod[f.Name] = c
		}
		c.value += h.sample.Value
		c.lines[f.Line] += h.sample.Value
		if h.sample.Value > c.heaviest || c.path == nil {
			c.heaviest = h.sample.Value
			c.class = h.sample.Class
			c.entry = entryOf(prof, owners, h.sample.Stack)
			c.path = pathOf(prof, h.sample.Stack[min(h.at, place.At):max(h.at, place.At)+1])
			c.through = ""
			if place.Through >= 0 {
				c.through = prof.Frames[h.sample.Stack[place.Through]].Name
			}
		}
	}
	var out []*culprit
	for _, c := range byMethod {
		c.line = heaviestLine(c.lines)
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *culprit) int {
		return cmp.Or(cmp.Compare(b.value, a.value), cmp.Compare(a.method, b.method))
	})
	return out
}

// entryOf names the outermost method of the application: the handler that a server calls. It is empty where there is none.
func entryOf(prof *stacks.Profile, owners hotcode.Owners, stack []int) string {
	for i := len(stack) - 1; i >= 0; i-- {
		f := prof.Frames[stack[i]]
		if !f.Managed() || owners.Of(f) != hotcode.Application || hotcode.Synthetic(f) {
			continue
		}
		return (&culprit{method: f.Name, line: f.Line}).name()
	}
	return ""
}

func heaviestLine(lines map[int]int64) (line int) {
	most := int64(-1)
	for l, v := range lines {
		if v > most || v == most && l < line {
			line, most = l, v
		}
	}
	return line
}

// longestPath is how many calls of a path are shown: both ends, which say most.
const longestPath = 6

// pathOf gives the calls from the bottleneck outwards, without packages and with repeated ones once.
func pathOf(prof *stacks.Profile, stack []int) []string {
	var out []string
	for _, f := range stack {
		if name := shortName(prof.Frames[f]); len(out) == 0 || out[len(out)-1] != name {
			out = append(out, name)
		}
	}
	if n := len(out); n > longestPath {
		out = slices.Concat(out[:longestPath/2], []string{"…"}, out[n-longestPath/2:])
	}
	return out
}

// shortName gives Pattern.compile of java.util.regex.Pattern.compile; of machine code the whole name.
func shortName(f stacks.Frame) string {
	if !f.Managed() {
		return f.Name
	}
	parts := strings.Split(f.Name, ".")
	return strings.Join(parts[max(0, len(parts)-2):], ".")
}

// namedCulprits is how many a finding names: past the third they rarely change what to do.
const namedCulprits = 3

func (m *measure) finding(p *check.Pass, s *signature) check.Finding {
	list := culprits(m.profile, m.owners, m.hits, patternsOf(s.NotNamed))
	f := check.Finding{
		Subject:    targetSubject(p),
		Severity:   m.severity,
		Confidence: m.confidence(),
		Weight:     m.share.Number(),
		Summary:    m.summary(list),
		Evidence:   append([]quantity.Value{m.share}, m.beside...),
		Notes:      m.notes(list),
		Remedies: []check.Remedy{{
			Action: s.Cure, Command: s.Command, Risk: s.Risk, Effect: m.effect(s), Before: s.Before, After: s.After,
		}},
		Placebos: s.NoHelp,
		Disproof: s.WrongIf,
		Doubts:   m.doubts,
	}
	if known := m.known(); known != "" {
		f.Summary += "; " + known
	}
	if m.cpu != nil {
		f.Evidence = append(f.Evidence, m.cpus)
		if !slices.Contains(s.Explains, cpuInSystem.Name) { // else the kernel's share is a part of it
			f.Notes = append(f.Notes, kernelFirst(p, m.cpu)...)
		}
	}
	return f
}

// known says what is known of the frame that most of it is in, with the line; empty when nothing is.
func (m *measure) known() string {
	type frame struct{ name, says string }
	sums, lines := map[frame]int64{}, map[frame]map[int]int64{}
	for _, h := range m.hits {
		f := m.profile.Frames[h.sample.Stack[h.at]]
		key := frame{shortName(f), h.says}
		if lines[key] == nil {
			lines[key] = map[int]int64{}
		}
		sums[key] += h.sample.Value
		lines[key][f.Line] += h.sample.Value
	}
	for key, sum := range sums {
		if key.says != "" && 2*sum > m.matched.Value { // more than half: it is one at most
			return fmt.Sprintf("%s %s", (&culprit{method: key.name, line: heaviestLine(lines[key])}).name(), key.says)
		}
	}
	return ""
}

func (m *measure) confidence() check.Confidence {
	switch {
	case m.matched.Count < fewSamples:
		return check.Low
	case len(m.doubts) > 0:
		return check.Medium
	}
	return check.High
}

func (m *measure) effect(s *signature) string {
	to := "towards zero"
	if s.Expect > 0 {
		to = "to below " + quantity.Of("", float64(s.Expect), quantity.Ratio).Text()
	}
	return fmt.Sprintf("%s: from %s %s", m.share.Label(), m.share.Text(), to)
}

func (m *measure) summary(list []*culprit) string {
	words := map[stacks.Event]string{
		stacks.CPU: "%s of the CPU time %s", stacks.Alloc: "%s of the bytes allocated %s", stacks.Lock: "threads wait %s of their time %s",
		stacks.Wall: "threads spend %s of their time %s", stacks.OffCPU: "threads spend %s of their time %s",
	}
	at := map[stacks.Event]string{
		stacks.CPU: ", for ", stacks.Alloc: ", for ", stacks.Lock: ", at ", stacks.Wall: ", at ", stacks.OffCPU: ", at ",
	}
	text := fmt.Sprintf(words[stacks.Event(m.clause.Event)], m.share.Text(), m.clause.Does)
	if len(list) > 0 {
		text += at[stacks.Event(m.clause.Event)] + list[0].name()
	}
	return text
}

// partText gives a part of a whole as a reader sees it: "40 %".
func partText(part, whole int64) string {
	return quantity.Of("", float64(part)/float64(max(1, whole)), quantity.Ratio).Text()
}

// notes name the culprits and how the bottleneck is reached from the first, and state the sampling error.
func (m *measure) notes(list []*culprit) []string {
	var out []string
	for i, c := range list[:min(len(list), namedCulprits)] {
		text := fmt.Sprintf("%s of it for %s", partText(c.value, m.matched.Value), c.name())
		if c.owner != hotcode.Application {
			text += fmt.Sprintf(" (%s: no frame of the application is in these stacks)", c.owner)
		}
		if c.through != "" {
			text += " through " + c.through
		}
		if i == 0 && len(c.path) > 1 {
			text += ": " + strings.Join(c.path, " ← ")
		}
		out = append(out, text)
	}
	if m.of > 0 {
		bounds := fmt.Sprintf("95 %% sure to lie between %s and %s: ", quantity.Of("", m.low, quantity.Ratio).Text(),
			quantity.Of("", m.high, quantity.Ratio).Text())
		out = append(out, bounds+m.sampled())
	}
	return out
}

// sampled says what the numbers rest on.
func (m *measure) sampled() string {
	what := "samples"
	if m.profile.Interval == 0 {
		what = "events"
	}
	text := fmt.Sprintf("%d of %d %s", m.matched.Count, m.of, what)
	if m.matched.Count == m.of {
		text = fmt.Sprintf("%d %s", m.of, what)
	}
	return text + " in " + quantity.Of("", m.profile.Duration.Seconds(), quantity.Seconds).Text()
}

// kernelFirst says that the kernel's share is mended before any code.
func kernelFirst(p *check.Pass, c *hotcode.CPU) []string {
	if c.Kernel <= 0 {
		return nil
	}
	system := quantity.Of("", c.System/c.Kernel, quantity.Ratio)
	if system.Below(p.Param(codeKernel)) {
		return nil
	}
	return []string{fmt.Sprintf("%s of the process's CPU time is the kernel's (sy): mend that first, shares of code change with it",
		system.Text())}
}
