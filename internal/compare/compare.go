package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// Schema is the version of the comparison's JSON form (docs/report-schema.md).
const Schema = 1

// Data is a whole comparison, ready to print.
type Data struct {
	Schema   int       `json:"schema"`
	Before   Side      `json:"before"`
	After    Side      `json:"after"`
	Verdict  Verdict   `json:"verdict"`
	Findings []Finding `json:"findings"` // what counts first
	Numbers  []Number  `json:"numbers"`
	Methods  *Methods  `json:"methods,omitempty"` // with a CPU profile
	Others   []Other   `json:"others"`            // further metrics that moved, the most first
	Doubts   []string  `json:"doubts,omitempty"`  // what else differs between the recordings, so that not only the program may be compared
	Stacks   *Stacks   `json:"-"`                 // for differential flame graphs; nil without two profiles of one kind
}

// Side says what one recording is.
type Side struct {
	Version string           `json:"perfdoctor"`
	Target  recording.Target `json:"target"`
	Started time.Time        `json:"started"`
	Seconds float64          `json:"seconds"`
	Kernel  string           `json:"kernel,omitempty"`
	Verdict string           `json:"principal,omitempty"` // id of the finding to act on first; empty if there is none
}

// Verdict is the one thing to know.
type Verdict struct {
	Result  Result   `json:"result"` // better, worse, same (no difference that these samples can show), or mixed
	Summary string   `json:"summary"`
	Better  []string `json:"better,omitempty"` // what speaks for it
	Worse   []string `json:"worse,omitempty"`
}

// Mixed is the result where one thing got better and another worse.
const Mixed Result = "mixed"

// Options adjust a comparison.
type Options struct {
	Checks   []*check.Check
	Check    check.Options
	Requests [2]float64 // per second, before and after, as a load generator counted; 0 if not known
}

// Compare compares two recordings.
func Compare(before, after *recording.Recording, opts Options) *Data {
	b, a := &side{rec: before, requests: opts.Requests[0]}, &side{rec: after, requests: opts.Requests[1]}
	tails(b, a)
	db, da := diagnose(before, opts.Checks, opts.Check), diagnose(after, opts.Checks, opts.Check)
	d := &Data{
		Schema: Schema, Before: sideOf(before, db.whole), After: sideOf(after, da.whole),
		Findings: findings(db, da), Numbers: numbers(b, a), Others: others(before, after),
	}
	d.Methods = methods(b, a, d.disturbed(b, a))
	d.Stacks = d.stacks(before, after)
	d.doubts(b, a)
	fewer := lessDone(b, a)
	d.lessLoad(fewer)
	if fewer >= 1 {
		d.unmask(db.whole.Principal())
	}
	d.decide()
	return d
}

// Regressed tells whether something got worse.
func (d *Data) Regressed() bool { return d.Verdict.Result == Worse || d.Verdict.Result == Mixed }

func sideOf(rec *recording.Recording, res *check.Result) Side {
	m := rec.Meta
	s := Side{Version: m.Version, Target: m.Target, Started: m.Started.UTC(), Seconds: m.Duration}
	for _, h := range rec.Info(metric.HostInfo) {
		s.Kernel = h.Label("kernel")
	}
	if p := res.Principal(); p != nil {
		s.Verdict = p.ID()
	}
	return s
}

// unmask takes findings that came out of account that a bottleneck of before may have hidden: who cures one sees the next, and that is no
// regression. That it was cured, or held back less, must show; and what is worse than it was counts all the same.
func (d *Data) unmask(principal *check.Finding) {
	if principal == nil || !d.relieved() {
		return
	}
	for i := range d.Findings {
		f := &d.Findings[i]
		came := f.Fate == New || f.Fate == Risen && f.Before.Severity < check.Warning // as a fact it may have been there before
		if came && f.Doubt == "" && f.After.Severity <= principal.Severity && f.After.Check != principal.Check {
			f.Doubt = "before, " + principal.Check + " held the system back and may have hidden it"
		}
	}
}

// Bounds of how much less was done. Segments that stand for requests also fall where a handshake is saved, so that only a large
// part of them counts.
const (
	lessMatters   = 0.5 // of the requests: a finding that is gone with half of the load is not cured
	lessOfStandIn = 0.1
	lessAtAll     = 0.95 // of the requests: what spreadOfLoad leaves room for
)

// lessDone gives the share of the work before that was done after, where that is certainly less; else 1.
func lessDone(b, a *side) float64 {
	wb, okB := b.work()
	wa, okA := a.work()
	if !okB || !okA && len(wa.at) < 2 {
		return 1
	}
	share := wa.perSecondTotal() / wb.perSecondTotal()
	counted := b.answered().total() > 0 && a.answered().total() > 0
	if counted && share < lessAtAll || share < lessOfStandIn {
		return share
	}
	return 1
}

// lessLoad takes findings that are gone out of account where much less was done.
func (d *Data) lessLoad(share float64) {
	if share > lessMatters {
		return
	}
	for i := range d.Findings {
		f := &d.Findings[i]
		if f.Doubt == "" && (f.Fate == Gone || f.Fate == Fallen) {
			f.Doubt = fmt.Sprintf("only %s as much was done: it may be gone with the load", ratio(share))
		}
	}
}

// relieved tells whether a finding is gone, a number better, or more done.
func (d *Data) relieved() bool {
	for i := range d.Findings {
		if f := &d.Findings[i]; f.counts() && (f.Fate == Gone || f.Fate == Fallen) {
			return true
		}
	}
	for i := range d.Numbers {
		if n := &d.Numbers[i]; n.Result == Improved || n.Name == "requests" && n.Result == Changed && n.Change.Absolute > 0 {
			return true
		}
	}
	return false
}

// decide weighs what was found. Numbers and findings count alike: either may be the one that shows it.
func (d *Data) decide() {
	v := &d.Verdict
	for i := range d.Findings {
		f := &d.Findings[i]
		if !f.counts() || d.follows(f) {
			continue
		}
		text := fmt.Sprintf("%s %s: %s", f.Either().Check, f.Fate, f.Either().Summary)
		if f.Fate == New || f.Fate == Risen {
			v.Worse = append(v.Worse, text)
		} else {
			v.Better = append(v.Better, text)
		}
	}
	for i := range d.Numbers {
		n := &d.Numbers[i]
		switch n.Result {
		case Worse:
			v.Worse = append(v.Worse, n.Text())
		case Improved:
			v.Better = append(v.Better, n.Text())
		}
	}
	if d.Methods != nil {
		d.decideMethods()
	}
	v.conclude(d)
}

// decideMethods notes where some do not count, for the reader who sees them listed.
func (d *Data) decideMethods() {
	m := d.Methods
	whole := Unknown
	if n := d.number("cpu_per_request"); n != nil {
		whole = n.Result
	}
	grown, shrunk := m.counting(whole)
	for _, x := range grown {
		d.Verdict.Worse = append(d.Verdict.Worse, x.Text())
	}
	for _, x := range shrunk {
		d.Verdict.Better = append(d.Verdict.Better, x.Text())
	}
	if m.Against == AgainstShares || len(grown) == len(m.Grown) && len(shrunk) == len(m.Shrunk) {
		return
	}
	m.Uncounted = "what shrank does not count: as a whole it got dearer, and work may have moved"
	if len(grown) == 0 {
		m.Uncounted = "what grew does not count: as a whole it got cheaper, and work may have moved"
	}
	if len(grown)+len(shrunk) == 0 {
		m.Uncounted = fmt.Sprintf("not counted: what grew and what shrank make up for each other (%s of the CPU time), and work "+
			"may have moved", signed(m.Net))
	}
}

// follows tells whether a finding is the consequence of another one that has the same fate: the cause is enough for a verdict.
func (d *Data) follows(f *Finding) bool {
	for i := range d.Findings {
		cause := &d.Findings[i]
		if cause.counts() && cause.Fate == f.Fate && cause.Either().ID() == f.Either().ExplainedBy {
			return true
		}
	}
	return false
}

func (v *Verdict) conclude(d *Data) {
	switch {
	case len(v.Worse) == 0 && len(v.Better) == 0:
		v.Result = Same
		v.Summary = "no difference that these samples can show"
		if least := d.least(); len(least) > 0 {
			v.Summary += ": " + strings.Join(least, "; ")
		}
	case len(v.Better) == 0:
		v.Result, v.Summary = Worse, "worse: "+v.Worse[0]
	case len(v.Worse) == 0:
		v.Result, v.Summary = Improved, "better: "+v.Better[0]
	default:
		v.Result, v.Summary = Mixed, "worse: "+v.Worse[0]+"; better: "+v.Better[0]
	}
}

// least says what a difference would have to be to show.
func (d *Data) least() []string {
	var out []string
	if n := d.number("cpu_per_request"); n != nil && n.Change != nil && n.Before.Mean > 0 {
		share := ratio(n.Change.Detectable / n.Before.Mean)
		out = append(out, fmt.Sprintf("a change of the %s by less than %s would not be seen", n.Label, share))
	}
	if d.Methods == nil {
		return out
	}
	for _, x := range d.Methods.Detectable {
		if x.Share == usualShare {
			const text = "a method of %s that grows by less than %s of all CPU time might go unseen"
			out = append(out, fmt.Sprintf(text, ratio(x.Share), ratio(x.Extra)))
		}
	}
	return out
}

// Text says how a number changed: "CPU time per request: 87 µs -> 93 µs (+6.9 %)".
func (n *Number) Text() string {
	if n.Change == nil {
		return n.Label + ": " + n.Reason
	}
	of := func(x float64) string { return quantity.Of("", x, n.Unit).Text() }
	s := fmt.Sprintf("%s: %s -> %s", n.Label, of(n.Before.Mean), of(n.After.Mean))
	if n.Change.Relative != nil {
		s += fmt.Sprintf(" (%s)", signed(*n.Change.Relative))
	}
	return s
}

// Text says how a method changed: "main.tax grew to 1.5 times (1.3 to 1.8): 10 % -> 14 % of the CPU time".
func (m *Method) Text() string {
	verb := "grew"
	if m.Factor < 1 {
		verb = "shrank"
	}
	name := m.Name
	if m.With {
		name += ", with all that it calls,"
	}
	s := fmt.Sprintf("%s %s: %s -> %s of the CPU time, %s of all", name, verb, ratio(m.Before), ratio(m.After), signed(m.Extra))
	if m.Samples[0] == 0 || m.Samples[1] == 0 {
		return s
	}
	return s + fmt.Sprintf(" (%.3g times as much, %.3g to %.3g)", m.Factor, m.Low, m.High)
}

func ratio(x float64) string { return quantity.Of("", x, quantity.Ratio).Text() }

func signed(x float64) string {
	if x > 0 {
		return "+" + ratio(x)
	}
	return strings.Replace(ratio(x), "-", "−", 1)
}

// doubts says what else differs, so that a difference may not be the program's.
func (d *Data) doubts(b, a *side) {
	add := func(format string, args ...any) { d.Doubts = append(d.Doubts, fmt.Sprintf(format, args...)) }
	x, y := d.Before, d.After
	if x.Kernel != y.Kernel {
		add("the kernels differ: %s and %s", x.Kernel, y.Kernel)
	}
	if cb, ca := cpuModel(b.rec), cpuModel(a.rec); cb != ca {
		add("the CPUs differ: %s and %s", cb, ca)
	}
	if x.Target.Kind != y.Target.Kind || x.Target.Name != y.Target.Name {
		add("the targets differ: %s %s and %s %s", x.Target.Kind, x.Target.Name, y.Target.Kind, y.Target.Name)
	}
	if x.Version != y.Version {
		add("they were recorded by different versions of perfdoctor: %s and %s", x.Version, y.Version)
	}
	if x.Seconds > 2*y.Seconds || y.Seconds > 2*x.Seconds {
		add("one covers %s, the other %s", seconds(x.Seconds), seconds(y.Seconds))
	}
	for _, n := range d.Numbers {
		if n.Name == "requests" && n.Result == Changed {
			add("the load or what the program made of it differs: %s", n.Text())
		}
	}
	if (b.known() || a.known()) && (b.answered().total() == 0 || a.answered().total() == 0) {
		add("requests are not known: the segments with data that the target's network namespace sent stand for them " +
			"(--requests BEFORE,AFTER gives what a load generator counted)")
	}
}

// What else runs on a host makes the same work dearer: it shares caches, memory and, with two threads to a core, the core itself.
// Measured: half a CPU of others made a request half as dear again (docs/decisions/0012). The bounds are what differed between
// quiet runs, and what did not.
const (
	othersMatter = 0.05 // CPUs
	othersAtMost = 0.5  // of the CPU time per request: a change by more is not the company's
	othersFull   = 0.3  // CPUs: of the neighbour for which spreadBeside was measured
	othersFactor = 1.5  // of their CPU time per request, so that clients on the same host, who do more when more is asked for, are none
)

// The numbers that depend on what else runs: others make these, and raise those by half at most.
var (
	othersMake  = []string{"ipc", "cpu_wait", "slow_cpu_waits"}
	othersRaise = []string{"cpu_per_request", "request_p50"}
)

// disturbed takes the numbers that depend on it out of account when what else ran on the host differs, and gives by how many CPUs it
// does: 0 if it does not.
func (d *Data) disturbed(b, a *side) float64 {
	by, reason := othersDiffer(b, a)
	if reason == "" {
		by, reason = othersFull, d.takenAway()
	}
	if reason == "" {
		return 0
	}
	d.Doubts = append(d.Doubts, reason+"; the same work is dearer beside others, so that the wait for a CPU does not count, and the CPU "+
		"time and the median time of a request only if they changed by more than half")
	for i := range d.Numbers {
		n := &d.Numbers[i]
		decides := n.Result == Worse || n.Result == Improved
		beyond := n.Change != nil && math.Abs(n.Change.Absolute) > othersAtMost*n.Before.Mean
		if decides && (slices.Contains(othersMake, n.Name) || slices.Contains(othersRaise, n.Name) && !beyond) {
			n.Result, n.Reason = Changed, "what else ran on the host differs"
		}
	}
	return by
}

func othersDiffer(b, a *side) (by float64, reason string) {
	ob, okB := b.others()
	oa, okA := a.others()
	wb, knownB := b.work()
	wa, knownA := a.work()
	if !okB || !okA || !knownB || !knownA || math.Abs(oa-ob) < othersMatter {
		return 0, ""
	}
	factor := (oa / wa.perSecondTotal()) / max(ob/wb.perSecondTotal(), math.SmallestNonzeroFloat64)
	if factor < othersFactor && factor > 1/othersFactor {
		return 0, ""
	}
	return math.Abs(oa - ob), fmt.Sprintf("what else ran on the host differs: %s and %s", cpus(ob), cpus(oa))
}

// takenAway finds what the sum of the others hides from othersDiffer: a neighbour takes from target and clients alike, and together they
// use no more than before. Who waits longer for a CPU and uses less of it does not stand in its own way, unless a quota does.
func (d *Data) takenAway() string {
	used, wait, quota := d.number("cpu_used"), d.number("cpu_wait"), d.number("throttled_share")
	if used == nil || wait == nil || used.Result != Changed {
		return ""
	}
	if quota != nil && quota.Change != nil && quota.Result != Same {
		return ""
	}
	less := used.Change.Absolute < 0
	if less && wait.Result == Worse || !less && wait.Result == Improved {
		return fmt.Sprintf("it used %s and %s, and waited %s and %s of that for a CPU, as when somebody else has them",
			cpus(used.Before.Mean), cpus(used.After.Mean), ratio(wait.Before.Mean), ratio(wait.After.Mean))
	}
	return ""
}

// number gives nil where the comparison does not have it.
func (d *Data) number(name string) *Number {
	i := slices.IndexFunc(d.Numbers, func(n Number) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return &d.Numbers[i]
}

func cpus(x float64) string { return quantity.Of("", x, quantity.CPUs).Text() }

// others gives the CPUs that were busy with anything but the target; ok is false when that is not known, or the target is the host.
func (s *side) others() (n float64, ok bool) {
	busy, own := s.busy(), s.cpu()
	if s.rec.Meta.Target.Kind == "host" || len(busy.at) < 2 || len(own.at) < 2 {
		return 0, false
	}
	return max(busy.perSecondTotal()-own.perSecondTotal(), 0), true
}

// known tells whether there is something that stands for requests.
func (s *side) known() bool {
	_, ok := s.work()
	return ok
}

func seconds(x float64) string { return quantity.Of("", x, quantity.Seconds).Text() }

func cpuModel(rec *recording.Recording) string {
	out := ""
	for _, h := range rec.Info(metric.HostInfo) {
		out = h.Label("cpu_model")
	}
	for _, g := range rec.Gauge(metric.CPUsOnline) {
		out += fmt.Sprintf(" x %d", int(math.Round(g.Last())))
	}
	return out
}
