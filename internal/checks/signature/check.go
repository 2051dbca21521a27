package signature

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

var (
	codeKernel = &check.Param{
		Name: "kernel", Default: 0.5, Unit: quantity.Ratio,
		Why: "when half of the process's CPU time is the kernel's, that is fixed first, and all shares of code " +
			"change with it",
	}
	codeGarbage = &check.Param{
		Name: "garbage", Default: 0.5, Unit: quantity.Ratio,
		Why: "from half of the allocated bytes on, the collector works for this code more than for all other: fix " +
			"it first",
	}
	codeOwns = &check.Param{
		Name: "owns", Default: 0.3, Unit: quantity.Ratio,
		Why: "what takes a third of the CPU time is hardly ever outside the function that takes most of it: it is " +
			"the better name",
	}
	allocGC = &check.Param{
		Name: "gc", Default: 0.05, Unit: quantity.Ratio,
		Why: "allocation costs through the collector: below a twentieth of the CPU time in it objects are cheap",
	}
	allocCost = &check.Param{
		Name: "cost", Default: 0.1, Unit: quantity.Ratio,
		Why: "what is allocated costs also what is done to fill it: a tenth of the CPU time repays the work",
	}
)

// check makes a check of a signature. all are those it may yield to.
func (s *signature) check(all []*signature) *check.Check {
	thresholds := make([][2]*check.Param, len(s.Where))
	c := &check.Check{
		Name: s.Name, Stage: s.stage(), Doc: s.manual(), URL: s.Source, Before: s.Before, After: s.After,
		Needs: []metric.Metric{evidence.ProfileMetric(stacks.Event(s.Where[0].Event))},
		Uses:  []metric.Metric{metric.ProcessCPU, metric.TargetInfo},
	}
	for i, w := range s.Where {
		thresholds[i] = s.thresholds(i)
		c.Params = append(c.Params, thresholds[i][0], thresholds[i][1])
		if m := evidence.ProfileMetric(stacks.Event(w.Event)); i > 0 {
			c.Uses = append(c.Uses, m)
		}
		if stacks.Event(w.Event) == stacks.Alloc {
			c.Params = append(c.Params, allocGC)
			if len(w.Costs) > 0 {
				c.Params = append(c.Params, allocCost)
			}
		}
	}
	if slices.ContainsFunc(s.Where, func(w clause) bool { return stacks.Event(w.Event) == stacks.CPU }) {
		c.Params = append(c.Params, evidence.ParamIdle, evidence.ParamBusy, codeKernel, codeOwns)
		c.Facts = append(c.Facts, evidence.OwnsCPU)
	}
	if s.Runs == "java" {
		c.Only = evidence.OnlyJVM
	}
	if s.sampled() { // where no runtime has a profiler of its own, the kernel's samples serve
		c.Needs = []metric.Metric{metric.ProcessCPU}
		c.Uses = append(c.Uses[1:], metric.CPUProfileSamples, metric.HostCPUProfileSamples)
	}
	if s.mayBeGarbage() {
		c.Facts = append(c.Facts, evidence.MostGarbage)
		c.Params = append(c.Params, codeGarbage)
		for _, m := range []metric.Metric{metric.CPUProfileSamples, metric.AllocProfileSamples} {
			if !slices.Contains(c.Needs, m) && !slices.Contains(c.Uses, m) {
				c.Uses = append(c.Uses, m)
			}
		}
	}
	c.Run = func(p *check.Pass) error { return s.run(p, thresholds, all) }
	return c
}

// sampled tells signatures of machine code that a CPU profile shows.
func (s *signature) sampled() bool {
	return s.Runs == "native" && stacks.Event(s.Where[0].Event) == stacks.CPU
}

func (s *signature) stage() check.Stage {
	if s.Stage == "runtime" {
		return check.Runtime
	}
	return check.Code
}

// thresholds makes the two parameters of a clause; those of a further clause are named after its event.
func (s *signature) thresholds(i int) [2]*check.Param {
	w := s.Where[i]
	prefix := ""
	if i > 0 {
		prefix = string(w.Event) + "-"
	}
	return [2]*check.Param{
		{Name: prefix + "info", Default: float64(w.Info), Unit: quantity.Ratio, Why: "a share that is worth knowing; " +
			s.Why},
		{Name: prefix + "warn", Default: float64(w.Warn), Unit: quantity.Ratio, Why: s.Why},
	}
}

// shareWords say of each event what its share is of.
var shareWords = map[stacks.Event]string{
	stacks.CPU:    "the CPU time",
	stacks.Wall:   "their time threads",
	stacks.Alloc:  "the allocated bytes",
	stacks.Lock:   "their time threads wait",
	stacks.OffCPU: "their time threads",
}

// manual is the text of the check's page: what the author wrote, and the frames that are looked for.
func (s *signature) manual() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n\nMeasured: ", s.Title, s.About)
	for i, w := range s.Where {
		if i > 0 {
			b.WriteString("\n\nAlso: ")
		}
		fmt.Fprintf(&b, "the share of %s %s.\n", shareWords[stacks.Event(w.Event)],
			whatIsCounted(stacks.Event(w.Event)))
		w.list(&b)
	}
	fmt.Fprintf(&b, "\n\nCure: %s Risk: %s.\nDisproof: %s\n", s.Cure, strings.TrimSuffix(s.Risk, "."), s.WrongIf)
	return b.String()
}

func whatIsCounted(e stacks.Event) string {
	switch e {
	case stacks.CPU:
		return "of the process, as the kernel counts it, in stacks with any of these frames"
	case stacks.Alloc:
		return "by stacks or classes as these"
	case stacks.Lock:
		return "for such a lock, of the time of all threads that waited for it"
	}
	return "spend in stacks with any of these frames, of those threads that have one"
}

func (c *clause) list(b *strings.Builder) {
	quoted := func(texts []string) string { return "`" + strings.Join(texts, "`, `") + "`" }
	for _, f := range c.Frames {
		fmt.Fprintf(b, "\n- `%s`", f.Frame)
		if f.Self {
			b.WriteString(" as the innermost frame")
		}
		if f.Times > 1 {
			fmt.Fprintf(b, ", %d times and more in one stack", f.Times)
		}
		if len(f.Under) > 0 {
			b.WriteString(", called by " + quoted(f.Under))
		}
		if len(f.Over) > 0 {
			b.WriteString(", when it calls " + quoted(f.Over))
		}
	}
	if len(c.Classes) > 0 {
		b.WriteString("\n- of the classes " + quoted(c.Classes))
	}
	if len(c.Threads) > 0 {
		b.WriteString("\n- in threads named " + quoted(c.Threads))
	}
	if len(c.Costs) > 0 {
		b.WriteString("\n- which costs CPU time in the collector, or in " + quoted(c.Costs))
	}
	if len(c.Without) > 0 {
		b.WriteString("\n- but not in stacks with " + quoted(c.Without))
	}
}

func (s *signature) run(p *check.Pass, thresholds [][2]*check.Param, all []*signature) error {
	worst, rest, marks, err := s.judged(p, thresholds, all)
	if err != nil || worst == nil || worst.severity == 0 {
		return err
	}
	f := worst.finding(p, s)
	f.Evidence = append(f.Evidence, rest...)
	f.Marks = marks
	if worst.cpu != nil && worst.share.AtLeast(p.Param(codeOwns)) {
		f.Facts = append(f.Facts, evidence.OwnsCPU)
	}
	if e := stacks.Event(worst.clause.Event); s.mayBeGarbage() && (e == stacks.CPU || e == stacks.Alloc) {
		s.garbage(p, worst.clause, all, &f)
	}
	p.Report(f)
	return nil
}

// judged measures the clauses, and gives the worst with the shares of the others. A recording without the first one's
// profile cannot be assessed.
func (s *signature) judged(p *check.Pass, thresholds [][2]*check.Param, all []*signature) (
	worst *measure, rest []quantity.Value, marks []check.Mark, err error,
) {
	for i, w := range s.Where {
		m, err := s.measure(p, w, all)
		if err != nil && i == 0 {
			return nil, nil, nil, err
		}
		if err != nil || m == nil {
			continue
		}
		p.Read(m.share)
		m.judge(p, thresholds[i])
		marks = append(marks, evidence.MarksOf(stacks.Event(w.Event), m.hits)...)
		switch {
		case worst == nil || m.severity > worst.severity:
			if worst != nil {
				rest = append(rest, worst.share)
			}
			worst = m
		default:
			rest = append(rest, m.share)
		}
	}
	return worst, rest, marks, nil
}

// mayBeGarbage tells signatures of Java code that an allocation profile shows, or may show as well as a CPU profile.
func (s *signature) mayBeGarbage() bool {
	return s.Runs == "java" && slices.ContainsFunc(s.Where, func(w clause) bool {
		return stacks.Event(w.Event) == stacks.CPU || stacks.Event(w.Event) == stacks.Alloc
	})
}

// garbage adds how much of what is allocated comes from the code of a clause, or is of the kind that the signature's
// own clause of allocations tells. Where that is the most, collections are a consequence.
func (s *signature) garbage(p *check.Pass, w clause, all []*signature, f *check.Finding) {
	prof, ok := p.Ranked(stacks.Alloc)
	if !ok || prof.Total().Value <= 0 {
		return
	}
	if own := slices.IndexFunc(s.Where,
		func(w clause) bool { return stacks.Event(w.Event) == stacks.Alloc }); own >= 0 {
		w = s.Where[own]
	}
	made := evidence.Weigh(matcherOf(prof, w, s.claims(prof, w, all)).hits())
	share := quantity.Of("", float64(made.Value), quantity.Bytes).
		Per(quantity.Of("", float64(prof.Total().Value), quantity.Bytes)).
		Named("share of the allocated bytes, from the same code")
	if made.Count < evidence.FewSamples || share.Below(p.Param(codeGarbage)) {
		return
	}
	if stacks.Event(w.Event) != stacks.Alloc { // that share is there already
		f.Evidence = append(f.Evidence, share)
	}
	f.Facts = append(f.Facts, evidence.MostGarbage)
}

// sampledProfile gives the CPU profile of the target: its runtime's own, or its part of the samples of all CPUs.
func sampledProfile(p *check.Pass, e stacks.Event) (*stacks.Profile, error) {
	c, ok := hotcode.CodeOf(p.Recording)
	switch {
	case p.Meta.Target.Kind == "host":
		return nil, check.NotAssessed("name a target with --pid, --comm, --cgroup or --container",
			"it is a share of one program's CPU time, and the whole host was diagnosed")
	case ok:
		return c.Profile, nil
	}
	if reason, fix := p.Why(metric.HostCPUProfileSamples); fix != "" {
		return nil, check.NotAssessed(fix, "%s", reason)
	}
	return evidence.ProfileOf(p, e)
}

// measure gives how much of an event a clause holds for, nil when the process did too little for a share.
func (s *signature) measure(p *check.Pass, w clause, all []*signature) (*measure, error) {
	event := stacks.Event(w.Event)
	find := evidence.ProfileOf
	if s.Runs == "native" && event == stacks.CPU {
		find = sampledProfile
	}
	prof, err := find(p, event)
	if err != nil {
		return nil, err
	}
	m := &measure{clause: w, profile: prof, owners: hotcode.OwnersOf(p.Recording)}
	if event == stacks.CPU {
		m.cpu, _ = hotcode.CodeOf(p.Recording)
		idle, err := m.idle(p)
		if err != nil || idle {
			return nil, err
		}
	}
	if s.Runs == "java" && !slices.ContainsFunc(prof.Frames, stacks.Frame.Managed) && len(prof.Samples) > 0 {
		return nil, check.NotAssessed("", "no Java code is in the %s profile", event)
	}
	m.hits = matcherOf(prof, w, s.claims(prof, w, all)).hits()
	m.matched = evidence.Weigh(m.hits)
	if !m.weigh() {
		return nil, nil //nolint:nilnil // nothing was allocated or nobody waited: there is no share to judge
	}
	return m, nil
}

// claims gives matchers of the signatures that this one yields to. What those find in a CPU profile is theirs among the
// allocations too.
func (s *signature) claims(prof *stacks.Profile, w clause, all []*signature) (out []*Matcher) {
	for _, o := range all {
		for _, ow := range o.Where {
			same := ow.Event == w.Event || stacks.Event(w.Event) == stacks.Alloc && stacks.Event(ow.Event) == stacks.CPU
			if slices.Contains(s.YieldsTo, o.Name) && same {
				out = append(out, matcherOf(prof, ow, nil))
			}
		}
	}
	return out
}

// idle reports whether the process used too little CPU time for shares of it.
func (m *measure) idle(p *check.Pass) (bool, error) {
	used := quantity.Of("CPU time", m.cpu.Total(), quantity.Seconds).
		Per(quantity.Of("window", m.cpu.Window, quantity.Seconds)).As(quantity.CPUs).Named("CPUs used by the process")
	if m.cpu.Window <= 0 {
		return false, check.NotAssessed("", "the CPU profile covers no time")
	}
	m.cpus = used
	if used.Below(p.Param(evidence.ParamIdle)) {
		p.Read(used)
		return true, nil
	}
	if len(m.profile.Samples) == 0 {
		return false, check.NotAssessed("look at what the profiler says of itself (-v)",
			"the process used %s, but the profiler took no sample", used.Text())
	}
	return false, nil
}

// fromTable makes the checks of the built-in table once: a check and its parameters are known by their addresses.
var fromTable = sync.OnceValue(func() []*check.Check {
	var out []*check.Check
	for _, s := range builtIn() {
		out = append(out, s.check(builtIn()))
	}
	return out
})

// Checks gives the checks of the table in one stage, in the table's order.
func Checks(stage check.Stage) (out []*check.Check) {
	for _, c := range fromTable() {
		if c.Stage == stage {
			out = append(out, c)
		}
	}
	return out
}
