package signature

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
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
		Why: "from half of the allocated bytes on, the collector works more for this code than for all other: fix " +
			"it first",
	}
	codeLocks = &check.Param{
		Name: "locks", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the time waited for locks: with less than half of it in this code, its fix leaves most of the waits",
	}
	codeOwns = &check.Param{
		Name: "owns", Default: 0.3, Unit: quantity.Ratio,
		Why: "of the CPU time, or of the time of the function with most of it: what takes a third of that function " +
			"says more than its name, and what takes a third of all is hardly ever outside of it",
	}
	codeFull = &check.Param{
		Name: "full", Default: 0.9, Unit: quantity.CPUs,
		Why: "with a tenth of a CPU left a thread takes what comes next at once, and nothing waits for its code",
	}
	codeMost = &check.Param{
		Name: "most", Default: 0.8, Unit: quantity.Ratio,
		Why: "of a full CPU, in requests that are counted and short: with four fifths in one thing it is no ordinary " +
			"work beside others, and nothing else in the program makes room",
	}
	codeRequest = &check.Param{
		Name: "request", Default: 0.01, Unit: quantity.Seconds,
		Why: "that a request to a server computes in it: ten in turn are a tenth of a second, which a person notices " +
			"(J. Nielsen, Response Times: The 3 Important Limits), however little of the CPUs that is",
	}
	codeCrowded = &check.Param{
		Name: "crowded", Default: 0.8, Unit: quantity.Ratio,
		Why: "load of the host's CPUs: with a fifth of them idle, work in the background takes little from requests",
	}
	codeLost = &check.Param{
		Name: "lost", Default: 0.1, Unit: quantity.CPUs,
		Why: "a share of a program that uses little is little: less than a tenth of a CPU does not show " +
			"beside the difference in load from one second to the next",
	}
	allocGC = &check.Param{
		Name: "gc", Default: 0.05, Unit: quantity.Ratio,
		Why: "allocation costs through the collector: below a twentieth of the CPU time in it objects are cheap",
	}
	allocCost = &check.Param{
		Name: "cost", Default: 0.1, Unit: quantity.Ratio,
		Why: "what is allocated must also be filled: a tenth of the CPU time repays the work",
	}
)

// check makes a check from a signature. all are the signatures that it may yield to.
func (s *signature) check(all []*signature) *check.Check {
	c := &check.Check{
		Name: s.Name, Stage: s.stage(), Doc: s.manual(), URL: s.Source, Before: s.Before, After: s.After,
		Only: s.scope(), Needs: s.needs(),
		Uses: []metric.Metric{metric.ProcessCPU, metric.TargetInfo},
	}
	thresholds := map[*signature][]limits{}
	for _, row := range s.rows() {
		for _, w := range row.Where {
			l := row.limits(w)
			thresholds[row] = append(thresholds[row], l)
			for _, p := range l.params(w) {
				add(&c.Params, p)
			}
		}
		add(&c.Uses, row.uses()...)
	}
	if s.measuresCPU() {
		add(&c.Params, evidence.ParamIdle, evidence.ParamBusy, evidence.ParamAsked, evidence.ParamServed)
		add(&c.Params, codeLost, codeRequest, codeKernel, codeOwns)
		c.Facts = append(c.Facts, evidence.OwnsCPU)
	}
	if s.mayBeGarbage() {
		c.Facts = append(c.Facts, evidence.MostGarbage)
		add(&c.Params, codeGarbage)
		add(&c.Uses, []metric.Metric{metric.CPUProfileSamples, metric.AllocProfileSamples}...)
	}
	if s.mayWait() {
		c.Facts = append(c.Facts, evidence.MostLockWaits)
		add(&c.Params, codeLocks)
		add(&c.Uses, []metric.Metric{metric.LockProfileSamples, metric.WallProfileSamples}...)
	}
	c.Uses = slices.DeleteFunc(c.Uses, func(m metric.Metric) bool { return slices.Contains(c.Needs, m) })
	c.Run = func(p *check.Pass) error { return s.run(p, thresholds, all) }
	return c
}

// add appends what is not in the list yet.
func add[T comparable](list *[]T, more ...T) {
	for _, x := range more {
		if !slices.Contains(*list, x) {
			*list = append(*list, x)
		}
	}
}

// needs returns the metrics without which nothing can be measured. Runtimes without a profiler of their own use the
// kernel's samples. If there are several runtimes, each has a profile of its own.
func (s *signature) needs() []metric.Metric {
	event := stacks.Event(s.Where[0].Event)
	if len(s.In) > 0 || s.runsScripts() || s.Runs == "native" && event == stacks.CPU {
		return []metric.Metric{metric.ProcessCPU}
	}
	return []metric.Metric{evidence.ProfileMetric(event)}
}

// uses are the metrics that a row reads.
func (s *signature) uses() (out []metric.Metric) {
	for _, w := range s.Where {
		add(&out, evidence.ProfileMetric(stacks.Event(w.Event)))
		if w.ofCPU() {
			add(&out, evidence.RequestMetrics()...)
		}
		if w.PerRequest > 0 {
			add(&out, []metric.Metric{metric.ThreadCPU, metric.ThreadRunDelay, metric.ScriptRuntime}...)
		}
		if w.PerWait > 0 {
			add(&out, metric.Metric(metric.ThreadSwitches))
		}
		if w.Background {
			add(&out, metric.Metric(metric.CPUSeconds))
		}
		if stacks.Event(w.Event) == stacks.CPU { // what children that have ended used
			add(&out, []metric.Metric{metric.ProcessChildrenCPU, metric.ProcessStart}...)
		}
		if s.Runs != "java" && stacks.Event(w.Event) == stacks.CPU {
			add(&out, metric.Metric(metric.HostCPUProfileSamples))
		}
	}
	if s.Statements {
		add(&out, []metric.Metric{
			metric.DatabaseStatementTime, metric.DatabaseFunctionTime, metric.DatabaseSessionTime,
		}...)
	}
	if s.runsScripts() || s.Runs == "native" { // for what scripts did meanwhile
		add(&out, []metric.Metric{metric.ScriptProfileSamples, metric.ScriptRuntime}...)
	}
	return out
}

// scopes say what kind of target a row applies to. Machine code is in all of them.
var scopes = map[string]*check.Scope{
	"java":   evidence.OnlyJVM,
	"python": {Fact: metric.ScriptRuntime, Name: "interpreter whose functions are read"},
}

// scope returns the scope of all rows together.
func (s *signature) scope() (out *check.Scope) {
	rows := s.rows()
	slices.Reverse(rows)
	for _, row := range rows {
		one := scopes[row.Runs]
		if one == nil {
			return nil
		}
		out = &check.Scope{Fact: one.Fact, Name: one.Name, Or: out}
	}
	return out
}

// applies reports whether the target may have code of the row's runtime.
func (s *signature) applies(p *check.Pass) bool {
	_, excluded := scopes[s.Runs].Excludes(p)
	return !excluded
}

// measuresCPU reports whether a profile of CPU time shows the signature.
func (s *signature) measuresCPU() bool {
	return slices.ContainsFunc(s.rows(), func(row *signature) bool {
		return slices.ContainsFunc(row.Where, clause.ofCPU)
	})
}

func (s *signature) stage() check.Stage {
	if s.Stage == "runtime" {
		return check.Runtime
	}
	return check.Code
}

// limits are the thresholds of a clause.
type limits struct{ info, warn, perRequest, perWait *check.Param }

// limits makes the parameters of a clause. Names for a further row begin with its runtime, and names for a further
// clause with its event.
func (s *signature) limits(w clause) (l limits) {
	prefix := ""
	if s.of != nil {
		prefix = s.Runs + "-"
	}
	if w.Event != s.Where[0].Event {
		prefix += string(w.Event) + "-"
	}
	l.info = &check.Param{
		Name: prefix + "info", Default: float64(w.Info), Unit: quantity.Ratio,
		Why: "a share to know about; " + s.Why,
	}
	l.warn = &check.Param{Name: prefix + "warn", Default: float64(w.Warn), Unit: quantity.Ratio, Why: s.Why}
	if w.PerRequest > 0 {
		l.perRequest = &check.Param{
			Name: prefix + "per-request", Default: w.PerRequest.Seconds(), Unit: quantity.Seconds,
			Why: "that a request to a server computes in it: in shorter pieces it is ordinary work",
		}
	}
	if w.PerWait > 0 {
		l.perWait = &check.Param{
			Name: prefix + "per-wait", Default: w.PerWait.Seconds(), Unit: quantity.Seconds,
			Why: "that a program which nobody asks computes in it between two waits: one piece of its work",
		}
	}
	return l
}

// params returns the parameters of a clause, and those that all clauses of its event have.
func (l limits) params(w clause) []*check.Param {
	out := []*check.Param{l.info, l.warn}
	if l.perRequest != nil {
		out = append(out, l.perRequest, codeFull, codeMost)
	}
	if l.perWait != nil {
		out = append(out, l.perWait)
	}
	if w.Background {
		out = append(out, codeCrowded)
	}
	if stacks.Event(w.Event) == stacks.Alloc {
		out = append(out, allocGC)
		if len(w.Costs) > 0 {
			out = append(out, allocCost)
		}
	}
	return out
}

// shareWords name the total behind the share of each event.
var shareWords = map[stacks.Event]string{
	stacks.CPU:    "the CPU time",
	stacks.Script: "the CPU time",
	stacks.Wall:   "their time threads",
	stacks.Alloc:  "the allocated bytes",
	stacks.Lock:   "their time threads wait",
	stacks.OffCPU: "their time threads",
}

// runtimeNames are the names of runtimes in the manual.
var runtimeNames = map[string]string{
	"java": "Java", "native": "machine code", "python": "Python", "node": "Node.js", "php": "PHP", "ruby": "Ruby",
	"dotnet": ".NET",
}

// manual is the text of the check's page: what the author wrote, and the frames that are looked for.
func (s *signature) manual() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n", s.Title, s.About)
	s.rule(&b)
	for _, row := range s.rows()[1:] {
		fmt.Fprintf(&b, "\nIn %s:\n", runtimeNames[row.Runs])
		if row.About != s.About {
			fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(row.About))
		}
		row.rule(&b)
	}
	return b.String()
}

// rule writes what is measured, and what to do about it.
func (s *signature) rule(b *strings.Builder) {
	b.WriteString("\nMeasured: ")
	for i, w := range s.Where {
		if i > 0 {
			b.WriteString("\n\nAlso: ")
		}
		fmt.Fprintf(b, "the share of %s %s.\n", shareWords[stacks.Event(w.Event)], whatIsCounted(stacks.Event(w.Event)))
		w.list(b)
	}
	fmt.Fprintf(b, "\n\nFix: %s Risk: %s.\nDisproof: %s\n", s.Cure, strings.TrimSuffix(s.Risk, "."), s.WrongIf)
}

func whatIsCounted(e stacks.Event) string {
	switch e {
	case stacks.CPU:
		return "of the process, as the kernel counts it, in stacks with any of these frames"
	case stacks.Script:
		return "of the interpreters, as the kernel counts it, in stacks of scripts with any of these functions"
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

// A verdict is what the clauses of a row measured.
type verdict struct {
	row   *signature
	worst *measure         // nil where the target did too little for a share
	rest  []quantity.Value // the shares of the other clauses
	marks []check.Mark
	owns  bool // a clause shows that most of the CPU time is this code's
}

// run reports the worst of the rows that apply. If none of them can be assessed, the first one says why. If the Java
// row cannot be assessed and the others found nothing, the Java row says why: every JVM has machine code.
func (s *signature) run(p *check.Pass, thresholds map[*signature][]limits, all []*signature) error {
	var first, java error
	var best *verdict
	for _, row := range s.rows() {
		if !row.applies(p) {
			continue
		}
		v, err := row.judged(p, thresholds[row], all)
		switch {
		case err == nil && v.worse(best):
			best = v
		case err != nil:
			first = cmp.Or(first, err)
			if row.Runs == "java" && p.Meta.Target.Runtime == "jvm" {
				java = err
			}
		}
	}
	switch {
	case best == nil:
		return first
	case best.worst == nil || best.worst.severity == 0:
		return java
	}
	s.report(p, best, all)
	return nil
}

// worse reports whether v is worse than o, which may be nil.
func (v *verdict) worse(o *verdict) bool {
	switch {
	case o == nil || o.worst == nil:
		return true
	case v.worst == nil:
		return false
	}
	return cmp.Or(cmp.Compare(v.worst.severity, o.worst.severity),
		cmp.Compare(v.worst.share.Number(), o.worst.share.Number())) > 0
}

func (s *signature) report(p *check.Pass, v *verdict, all []*signature) {
	f := v.worst.finding(p, v.row)
	f.Evidence = append(f.Evidence, v.rest...)
	f.Marks = v.marks
	if v.owns {
		f.Facts = append(f.Facts, evidence.OwnsCPU)
	}
	if e := stacks.Event(v.worst.clause.Event); v.row.mayBeGarbage() && (e == stacks.CPU || e == stacks.Alloc) {
		v.row.garbage(p, v.worst.clause, all, &f)
	}
	if v.row.mayWait() {
		v.row.waits(p, all, &f)
	}
	p.Report(f)
}

// judged measures the clauses. Java and machine code cannot be assessed without the profile of the first clause; for
// scripts any profile will do.
func (s *signature) judged(p *check.Pass, thresholds []limits, all []*signature) (*verdict, error) {
	v := &verdict{row: s}
	var first error
	assessed := false
	for i, w := range s.Where {
		m, err := s.measure(p, w, all)
		if err != nil {
			if first == nil {
				first = err
			}
			if i == 0 && !s.runsScripts() {
				return nil, err
			}
			continue
		}
		assessed = true
		if m == nil {
			continue
		}
		v.add(p, m, thresholds[i])
	}
	if !assessed {
		return nil, first
	}
	return v, nil
}

// add judges what a clause measured, and keeps the worst.
func (v *verdict) add(p *check.Pass, m *measure, l limits) {
	if v.row.of == nil || m.matched.Count > 0 { // for the other runtimes only what was found
		p.Read(m.share)
	}
	m.judge(p, l)
	v.owns = v.owns || m.ownsCPU(p)
	v.marks = append(v.marks, evidence.MarksOf(stacks.Event(m.clause.Event), m.hits)...)
	other := m
	if v.worst == nil || m.severity > v.worst.severity {
		v.worst, other = m, v.worst
	}
	if other != nil && (other.matched.Count > 0 || !v.row.runsScripts()) {
		v.rest = append(v.rest, other.share)
	}
}

// mayBeGarbage reports whether the signature is of Java code that an allocation profile shows, or may show as well as
// a CPU profile.
func (s *signature) mayBeGarbage() bool {
	return s.Runs == "java" && slices.ContainsFunc(s.Where, func(w clause) bool {
		return stacks.Event(w.Event) == stacks.CPU || stacks.Event(w.Event) == stacks.Alloc
	})
}

// garbage adds the share of the allocated bytes that comes from the code of a clause, or that matches the signature's
// own clause of allocations. If that is most of the bytes, collections are a consequence.
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
	if stacks.Event(w.Event) != stacks.Alloc { // else the share is there already
		f.Evidence = append(f.Evidence, share)
	}
	f.Facts = append(f.Facts, evidence.MostGarbage)
}

// mayWait reports whether the signature is of Java code, of which a profile of locks shows what waits in it. A
// signature of locks measures that itself.
func (s *signature) mayWait() bool {
	return s.Runs == "java" && s.measuresCPU() && !slices.ContainsFunc(s.Where, func(w clause) bool {
		return stacks.Event(w.Event) == stacks.Lock
	})
}

// waits adds the share of the waits that are in the code of a CPU clause: by the profile of Java's locks or, for the
// JVM's own locks, of all waits of threads with work. If that is most of them, locks are a consequence.
func (s *signature) waits(p *check.Pass, all []*signature, f *check.Finding) {
	share := func(prof *stacks.Profile, label string) (quantity.Value, bool) {
		if prof == nil || prof.Total().Value <= 0 {
			return quantity.Value{}, false
		}
		inside := s.inside(prof, all)
		v := quantity.Of("", float64(inside.Value)/1e9, quantity.Seconds).
			Per(quantity.Of("", float64(prof.Total().Value)/1e9, quantity.Seconds)).Named("%s", label)
		return v, inside.Count >= evidence.FewSamples && v.AtLeast(p.Param(codeLocks))
	}
	locks, _ := p.Ranked(stacks.Lock)
	v, most := share(locks, "share of the time waited for locks, in the same code")
	if w, err := evidence.WaitingOf(p); !most && err == nil {
		v, most = share(w.Filter(func(s stacks.Sample) bool {
			wait, _ := w.Waits.Of(s)
			return wait != hotcode.Idle && wait != hotcode.NotWaiting
		}), "share of all waits of threads with work, in the same code")
	}
	if most {
		f.Evidence = append(f.Evidence, v)
		f.Facts = append(f.Facts, evidence.MostLockWaits)
	}
}

// inside returns how much of a profile is in the code of that CPU clause which has the most.
func (s *signature) inside(prof *stacks.Profile, all []*signature) (most stacks.Weight) {
	for _, w := range s.Where {
		if !w.ofCPU() {
			continue
		}
		if in := evidence.Weigh(matcherOf(prof, w, s.claims(prof, w, all)).hits()); in.Value > most.Value {
			most = in
		}
	}
	return most
}

// sampledProfile returns the CPU profile of the target: its runtime's own, or its part of the samples of all CPUs.
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

// measure returns how much of an event a clause covers, or nil if the process did too little for a share.
func (s *signature) measure(p *check.Pass, w clause, all []*signature) (*measure, error) {
	event := stacks.Event(w.Event)
	find := evidence.ProfileOf
	if s.Runs != "java" && event == stacks.CPU {
		find = sampledProfile
	}
	prof, err := find(p, event)
	if err != nil {
		return nil, err
	}
	m := &measure{clause: w, profile: prof, owners: hotcode.OwnersOf(p.Recording)}
	switch event {
	case stacks.CPU:
		m.cpu, _ = hotcode.CodeOf(p.Recording)
	case stacks.Script:
		m.cpu, _ = hotcode.ScriptsOf(p.Recording)
	}
	if w.ofCPU() {
		if m.cpu == nil {
			return nil, nil //nolint:nilnil // no script ran
		}
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

// claims returns matchers of the signatures that this one yields to. What they find in a CPU profile, they also claim
// among the allocations.
func (s *signature) claims(prof *stacks.Profile, w clause, all []*signature) (out []*Matcher) {
	for _, o := range all {
		if !slices.Contains(s.YieldsTo, o.Name) {
			continue
		}
		for _, row := range o.rows() {
			for _, ow := range row.Where {
				mine, theirs := stacks.Event(w.Event), stacks.Event(ow.Event)
				if mine == theirs || mine == stacks.Alloc && theirs == stacks.CPU {
					out = append(out, matcherOf(prof, ow, nil))
				}
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

// fromTable makes the checks of the built-in table once: a check and its parameters are identified by their
// addresses.
var fromTable = sync.OnceValue(func() []*check.Check {
	var out []*check.Check
	for _, s := range builtIn() {
		out = append(out, s.check(builtIn()))
	}
	return out
})

// Checks returns the table's checks of one stage, in the table's order.
func Checks(stage check.Stage) (out []*check.Check) {
	for _, c := range fromTable() {
		if c.Stage == stage {
			out = append(out, c)
		}
	}
	return out
}
