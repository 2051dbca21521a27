package signature

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// halfSamples is how many samples the second half of a profile needs to show that a share is over. With fewer, its
// interval is too wide to tell.
const halfSamples = 50

// A measure is how much of one event a clause covers.
type measure struct {
	clause  clause
	profile *stacks.Profile
	owners  hotcode.Owners
	cpu     *hotcode.CPU   // of a CPU profile
	cpus    quantity.Value // of a CPU profile
	hits    []evidence.Hit
	matched stacks.Weight
	share   quantity.Value
	// the share, or the share in the second half of the window if it is less: what is over is no fault now
	steady   float64
	low      float64 // the bounds of the share, with 95 % certainty
	high     float64
	of       int64 // samples in the total
	severity check.Severity
	doubts   []string
	limit    quantity.Value   // the threshold it passed
	beside   []quantity.Value // what else was measured of it
	filling  quantity.Value   // of allocations: the share of the CPU time that goes into what they cost
}

// weigh computes the share; ok is false if the total is zero.
func (m *measure) weigh() (ok bool) {
	e := stacks.Event(m.clause.Event)
	if isCPU(e) {
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
	m.share = quantity.Of("", float64(m.matched.Value)/scale, unit).Per(quantity.Of("", value/scale, unit)).
		Named("%s", what)
	m.of = count
	if e == stacks.Wall || e == stacks.Alloc {
		m.low, m.high = hotcode.Interval(m.matched.Count, count)
	} else { // each wait is an event of its own: the error lies in their number
		spread := 1.96 / math.Sqrt(float64(max(1, m.matched.Count)))
		m.low, m.high = m.share.Number()*(1-min(1, spread)), m.share.Number()*(1+spread)
	}
	m.steady = m.share.Number()
	return true
}

// whole returns the total of an event other than CPU time, in nanoseconds or bytes, its number of samples, and what
// to call a share of it.
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
		return float64(m.profile.Duration) * float64(n), m.matched.Count,
			fmt.Sprintf("share of the time of the %d threads that waited", n)
	}
}

// threads returns the threads that have a matching sample.
func (m *measure) threads() map[int]bool {
	out := map[int]bool{}
	for _, h := range m.hits {
		out[h.Sample.Thread] = true
	}
	return out
}

// weighCPU computes the share of the process's CPU time, and the share in the second half of the window: by then,
// what a program does once at its start is over.
func (m *measure) weighCPU() {
	all := m.profile.Total()
	m.of = all.Count
	m.share = quantity.Of("", float64(m.matched.Value)/1e9, quantity.Seconds).
		Per(quantity.Of("CPU time", m.cpu.Total(), quantity.Seconds)).Named("share of the process's CPU time")
	if stacks.Event(m.clause.Event) == stacks.Script {
		m.share = m.share.Named("share of the interpreters' CPU time, in functions of scripts")
	}
	covered := m.cpu.Sampled() / m.cpu.Total()
	low, high := hotcode.Interval(m.matched.Count, all.Count)
	m.low, m.high = low*covered, high*covered
	m.steady = m.share.Number()
	late := func(s stacks.Sample) bool { return s.At >= m.profile.Duration/2 }
	var part, whole stacks.Weight
	for _, h := range m.hits {
		if late(h.Sample) {
			part.Value += h.Sample.Value
		}
	}
	for _, s := range m.profile.Samples {
		if late(s) {
			whole.Add(s)
		}
	}
	if whole.Count >= halfSamples && whole.Value > 0 {
		m.steady = min(m.steady, float64(part.Value)/float64(whole.Value)*covered)
	}
}

// judge sets the severity, and what makes it less sure.
func (m *measure) judge(p *check.Pass, l limits) {
	steady := quantity.Of("share", m.steady, quantity.Ratio)
	m.limit = p.Param(l.info)
	if steady.Below(m.limit) {
		return
	}
	m.severity = check.Info
	if warn := p.Param(l.warn); steady.AtLeast(warn) && m.matters(p, l) {
		m.severity, m.limit = evidence.SampledSeverity(m.matched.Count, m.low < warn.Number()), warn
	}
	if m.low < m.limit.Number() {
		m.doubts = append(m.doubts, fmt.Sprintf("by chance alone it could be below %s", m.limit.Text()))
	}
	if m.cpu != nil {
		m.doubts = append(m.doubts, evidence.CPUDoubts(m.cpu)...)
	}
}

// matters reports whether somebody loses time by it.
func (m *measure) matters(p *check.Pass, l limits) bool {
	if m.clause.Background {
		return m.harms(p) && m.crowded(p)
	}
	return m.holdsRequests(p, l) || m.holdsJob(p, l) || m.harms(p) && m.isLong(p, l)
}

// crowded reports whether the host's CPUs are full, so that requests and this work take them from each other.
func (m *measure) crowded(p *check.Pass) bool {
	_, all, err := evidence.CPUTimes(p)
	if err != nil {
		return false
	}
	load := all.Load().Named("load of the host's CPUs")
	m.beside = append(m.beside, load)
	return load.AtLeast(p.Param(codeCrowded))
}

// harms reports whether the level costs anything: a share of a busy CPU, memory that the collector works for, or time
// in which threads stand still.
func (m *measure) harms(p *check.Pass) bool {
	switch stacks.Event(m.clause.Event) {
	case stacks.CPU, stacks.Script:
		return m.cpus.AtLeast(p.Param(evidence.ParamBusy)) && m.lost().AtLeast(p.Param(codeLost))
	case stacks.Alloc:
		gc, ok := partShare(p, hotcode.PartGC)
		return m.fills(p) || ok && gc.AtLeast(p.Param(allocGC))
	}
	return true
}

// holdsRequests reports whether a request to a server computes in it for long enough. Whoever asked waits for that,
// however little CPU time the server uses in all.
func (m *measure) holdsRequests(p *check.Pass, l limits) bool {
	requests := evidence.RequestsAtMost(p)
	if !m.clause.ofCPU() || requests.Number() < p.Param(evidence.ParamAsked).Number()*p.Meta.Duration {
		return false
	}
	least := cmp.Or(l.perRequest, codeRequest)
	each := quantity.Of("CPU time in it", float64(m.matched.Value)/1e9, quantity.Seconds).Per(requests).
		As(quantity.Seconds).Named("CPU time of a request in it, at least")
	if l.perRequest != nil || each.AtLeast(p.Param(least)) {
		m.beside = append(m.beside, each)
	}
	return each.AtLeast(p.Param(least)) && m.cpus.AtLeast(p.Param(evidence.ParamServed))
}

// holdsJob reports whether a program that nobody asks over the network does nearly nothing else, and for long enough
// before it waits again: that delays the next piece of its work.
func (m *measure) holdsJob(p *check.Pass, l limits) bool {
	serves, known := evidence.Serves(p)
	if l.perWait == nil || !known || serves || m.share.Below(p.Param(codeMost)) {
		return false
	}
	waits := waitsOfBusy(p)
	if waits <= 0 {
		return false
	}
	each := quantity.Of("CPU time in it", float64(m.matched.Value)/1e9, quantity.Seconds).
		Per(quantity.Of("waits", waits, quantity.Unit("waits"))).As(quantity.Seconds).
		Named("CPU time in it from one wait to the next, at least")
	m.beside = append(m.beside, each)
	if each.Below(p.Param(l.perWait)) || m.lost().Below(p.Param(codeLost)) {
		return false
	}
	m.doubts = append(m.doubts, "it serves no clients: it is not known whether anybody waits for its work")
	return true
}

// waitsOfBusy counts the waits of the threads that do the program's work.
func waitsOfBusy(p *check.Pass) (n float64) {
	const busy = 0.1 // of the CPU time: others come and go beside the work
	threads, waits, whole := evidence.BusyThreads(p), evidence.BeganWaits(p), 0.0
	for _, t := range threads {
		whole += t.Seconds
	}
	for _, t := range threads {
		if t.TID != 0 && t.Seconds >= busy*whole { // an interpreter has no id: its threads are in the list
			n += waits[t.TID]
		}
	}
	return n
}

// isLong reports whether the code takes long enough. If requests to a server are counted and each is short, it must
// take nearly all of a full CPU. If nobody asks over the network, or that is not known, the program must fill a CPU,
// and the work must not be what some programs are for.
func (m *measure) isLong(p *check.Pass, l limits) bool {
	if l.perRequest == nil {
		return true
	}
	if serves, known := evidence.Serves(p); m.clause.Served && (!known || !serves) {
		return false
	}
	return m.fillsCPU(p) &&
		(evidence.RequestsAtMost(p).Number() <= 0 || m.share.AtLeast(p.Param(codeMost)))
}

// fillsCPU reports whether the program uses a CPU, or one of its threads, or an interpreter, uses most of one and
// waits for the rest behind others.
func (m *measure) fillsCPU(p *check.Pass) bool {
	full := p.Param(codeFull)
	return m.cpus.AtLeast(full) || len(evidence.FullThreads(p, p.Param(codeMost).As(quantity.CPUs), full)) > 0
}

// lost is the CPU time that goes into it.
func (m *measure) lost() quantity.Value {
	return quantity.Of("lost", m.share.Number()*m.cpus.Number(), quantity.CPUs)
}

// ownsCPU reports whether this code takes much of the time of the hottest function, or else much of all CPU time, in
// a profile in which that function may be found.
func (m *measure) ownsCPU(p *check.Pass) bool {
	if m.cpu == nil {
		return m.fillsHottest(p)
	}
	c, ok := hotcode.CPUOf(p.Recording)
	h := hotcode.HottestOf(p.Recording)
	if h != nil && c.Profile == m.profile && h.Share(m.samples()) >= p.Param(codeOwns).Number() {
		return true
	}
	return m.share.AtLeast(p.Param(codeOwns)) &&
		(stacks.Event(m.clause.Event) == stacks.CPU || ok && c.Event == stacks.Script)
}

func (m *measure) samples() []stacks.Sample {
	out := make([]stacks.Sample, 0, len(m.hits))
	for _, h := range m.hits {
		out = append(out, h.Sample)
	}
	return out
}

// fills reports whether filling what is allocated takes enough CPU time to be worth a change.
func (m *measure) fills(p *check.Pass) bool {
	c, ok := hotcode.CodeOf(p.Recording)
	if !ok || len(m.clause.Costs) == 0 || c.Total() <= 0 {
		return false
	}
	filling, _ := hotcode.Frames(c.Profile, hotcode.ParsePatterns(m.clause.Costs...))
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
	m.filling = share
	return share.AtLeast(p.Param(allocCost))
}

// fillsHottest reports whether filling what the hottest function allocates takes much of the CPU time.
func (m *measure) fillsHottest(p *check.Pass) bool {
	h := hotcode.HottestOf(p.Recording)
	if h == nil || m.filling.Label() == "" || m.filling.Below(p.Param(codeOwns)) {
		return false
	}
	list := evidence.Culprits(m.profile, m.owners, m.hits, nil)
	return len(list) > 0 && list[0].Method == h.Name
}

// partShare returns the share of the process's CPU time that goes into one part of it, such as the collector or the
// compiler. ok is false without a CPU profile in which the process used any.
func partShare(p *check.Pass, part hotcode.Part) (share quantity.Value, ok bool) {
	c, ok := hotcode.CodeOf(p.Recording)
	if !ok || c.Total() <= 0 {
		return quantity.Value{}, false
	}
	return quantity.Of(string(part), c.Part(part), quantity.Seconds).
			Per(quantity.Of("CPU time", c.Total(), quantity.Seconds)).
			Named("%s, share of the process's CPU time", part),
		true
}

func (m *measure) finding(p *check.Pass, s *signature) check.Finding {
	list, notes := m.blame(p, s, evidence.Culprits(m.profile, m.owners, m.hits,
		hotcode.ParsePatterns(s.NotNamed...)))
	f := check.Finding{
		Subject:    evidence.TargetSubject(p),
		Severity:   m.severity,
		Confidence: m.confidence(),
		Weight:     m.share.Number(),
		Summary:    m.summary(list),
		Evidence:   append([]quantity.Value{m.share}, m.beside...),
		Notes:      append(notes, m.bounds()...),
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
	if s.Statements {
		evidence.NameStatement(p, &f)
	}
	if m.cpu != nil {
		evidence.WithoutCode(p, &f, evidence.Part{Share: m.share.Number(), Low: m.low, High: m.high})
		f.Evidence = append(f.Evidence, m.cpus)
		if !s.KernelToo { // else the kernel's share is a part of it
			f.Notes = append(f.Notes, kernelFirst(p, m.cpu)...)
		}
	}
	return f
}

// blame says whose code it is. It names the callers in the samples of the CPUs. If these are functions of an
// interpreter, not of the application, it names what the scripts ran.
func (m *measure) blame(p *check.Pass, s *signature, list []*evidence.Culprit) ([]*evidence.Culprit, []string) {
	if slices.Contains(s.NotNamed, "*") {
		return nil, nil
	}
	notes := m.culpritNotes(list)
	onCPU := stacks.Event(m.clause.Event) == stacks.CPU
	scripts := onCPU && s.runsScripts()
	native := onCPU && s.Runs == "native" && len(list) > 0 && list[0].Owner != hotcode.Application
	if !native && !scripts {
		return list, notes
	}
	l, ok := m.placed(p, s)
	switch {
	case ok && (scripts || l.sure() != nil):
		return l.sure(), l.notes()
	case scripts: // no function of an interpreter is to blame
		return nil, notes
	}
	return list, notes
}

// known says what is known of the frame with most of the samples, and its line. It returns "" if nothing is known.
func (m *measure) known() string {
	type frame struct{ name, says string }
	sums, lines := map[frame]int64{}, map[frame]map[int]int64{}
	for _, h := range m.hits {
		f := m.profile.Frames[h.Sample.Stack[h.At]]
		key := frame{evidence.ShortName(f), h.Says}
		if nameless(f.Name) {
			key.name = f.Module
		}
		if lines[key] == nil {
			lines[key] = map[int]int64{}
		}
		sums[key] += h.Sample.Value
		lines[key][f.Line] += h.Sample.Value
	}
	for key, sum := range sums {
		if key.says != "" && 2*sum > m.matched.Value { // more than half: at most one has that
			return fmt.Sprintf("%s %s", (&evidence.Culprit{Method: key.name, Line: evidence.HeaviestLine(lines[key])}).
				Name(), key.says)
		}
	}
	return ""
}

// nameless reports whether a function has no symbol in its file.
func nameless(function string) bool { return stacks.IsUnnamed(function) }

func (m *measure) confidence() check.Confidence {
	switch {
	case m.matched.Count < evidence.FewSamples:
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

func (m *measure) summary(list []*evidence.Culprit) string {
	words := map[stacks.Event]string{
		stacks.CPU: "%s of the CPU time %s", stacks.Script: "%s of the CPU time %s",
		stacks.Alloc: "%s of the bytes allocated %s",
		stacks.Lock:  "threads wait %s of their time %s",
		stacks.Wall:  "threads spend %s of their time %s", stacks.OffCPU: "threads spend %s of their time %s",
	}
	at := map[stacks.Event]string{
		stacks.CPU: ", for ", stacks.Script: ", for ", stacks.Alloc: ", for ", stacks.Lock: ", at ",
		stacks.Wall:   ", at ",
		stacks.OffCPU: ", at ",
	}
	text := fmt.Sprintf(words[stacks.Event(m.clause.Event)], m.share.Text(), m.clause.Does)
	if len(list) > 0 && !nameless(list[0].Method) && !list[0].Innocent {
		text += at[stacks.Event(m.clause.Event)] + list[0].Name()
		if in := list[0].Inside; in != "" {
			text += ", in " + in
		}
	}
	return text
}

// culpritNotes name the culprits, and show how the first one reaches the bottleneck.
func (m *measure) culpritNotes(list []*evidence.Culprit) []string {
	var out []string
	for i, c := range list[:min(len(list), evidence.NamedCulprits)] {
		text := fmt.Sprintf("%s of it for %s", evidence.PartText(c.Value, m.matched.Value), c.Name())
		if c.Owner != hotcode.Application {
			text += fmt.Sprintf(" (%s: no frame of the application is in these stacks)", c.Owner)
		}
		if c.Through != "" {
			text += " through " + c.Through
		}
		if i == 0 && len(c.Path) > 1 {
			text += ": " + strings.Join(c.Path, " ← ")
		}
		out = append(out, text)
	}
	return out
}

// bounds state the sampling error.
func (m *measure) bounds() []string {
	if m.of == 0 {
		return nil
	}
	return []string{fmt.Sprintf("95 %% sure to lie between %s and %s: %s",
		quantity.Of("", m.low, quantity.Ratio).Text(), quantity.Of("", m.high, quantity.Ratio).Text(), m.sampled())}
}

// sampled says what the numbers rest on.
func (m *measure) sampled() string {
	what := "samples"
	if m.profile.Interval == 0 && !m.clause.ofCPU() {
		what = "events"
	}
	text := fmt.Sprintf("%d of %d %s", m.matched.Count, m.of, what)
	if m.matched.Count == m.of {
		text = fmt.Sprintf("%d %s", m.of, what)
	}
	return text + " in " + quantity.Of("", m.profile.Duration.Seconds(), quantity.Seconds).Text()
}

// kernelFirst says that the kernel's share should be fixed before any code.
func kernelFirst(p *check.Pass, c *hotcode.CPU) []string {
	if c.Kernel <= 0 {
		return nil
	}
	system := quantity.Of("", c.System/c.Kernel, quantity.Ratio)
	if system.Below(p.Param(codeKernel)) {
		return nil
	}
	return []string{fmt.Sprintf("%s of the process's CPU time is the kernel's (sy): fix that first, shares of code "+
		"change with it",
		system.Text())}
}
