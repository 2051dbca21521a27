// Package check defines rules of thumb and runs them over a recording.
//
// A [Check] is a pure function of a recording, as an analyzer is of source code. [Run] gives each check exactly one
// of three outcomes: findings, fine (and what was read), or not assessed (and why); it never skips a check silently.
package check

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// Stage is the place of a check in fix order: an earlier stage is cheaper to fix and distorts what is seen
// later.
type Stage int

// The stages.
const (
	Path        Stage = iota + 1 // between machines
	Connections                  // sockets and kernel settings
	Kernel                       // CPU time in si and sy
	Limits                       // around the process: quota, threads, memory, descriptors
	Runtime                      // GC, JIT, locks
	Code                         // the program in us
)

var stageNames = map[Stage]string{
	Path: "path", Connections: "connections", Kernel: "kernel", Limits: "limits", Runtime: "runtime", Code: "code",
}

// String returns the stage's name as shown in output and metric labels.
func (s Stage) String() string { return stageNames[s] }

// MarshalText writes the name.
func (s Stage) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Severity is how much a finding matters.
type Severity int

// The severities. A warning needs a level and a sign of harm, or a forecast; a level alone is info.
const (
	Info Severity = iota + 1
	Warning
	Critical
)

var severityNames = map[Severity]string{Info: "info", Warning: "warning", Critical: "critical"}

// String returns the severity's name.
func (s Severity) String() string { return severityNames[s] }

// MarshalText writes the name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Confidence is how sure a finding is.
type Confidence int

// The confidences.
const (
	Low Confidence = iota + 1
	Medium
	High
)

var confidenceNames = map[Confidence]string{Low: "low", Medium: "medium", High: "high"}

// String returns the confidence's name.
func (c Confidence) String() string { return confidenceNames[c] }

// MarshalText writes the name.
func (c Confidence) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// A Check is one rule.
type Check struct {
	Name   string          // kebab-case and never reused: it is in output, flags, URLs and metric labels
	Stage  Stage           //
	Doc    string          // the manual; its first line is the title
	URL    string          // the primary source of the rule
	Only   *Scope          // what the target must be for the check to apply; nil for all targets
	Needs  []metric.Metric // if one is not recorded, the check is "not assessed", and Run is not called
	Uses   []metric.Metric // read when recorded; their absence must only lower the confidence
	Params []*Param        // every threshold
	Facts  []Fact          // what its findings may state, for edges that depend on it
	Before string          // code that has the fault, where a few lines show it
	After  string          // the same without the fault
	Run    func(*Pass) error

	// Event says that a single occurrence is enough: what it reports does not undo itself, such as a killed process
	// or a refused connection. Its alert does not wait for it to last, and an exporter reports it for longer than the
	// one window that saw it.
	Event bool

	// Beyond is what would disprove its findings if a second look at the target cannot: a change, or what a person or
	// another program knows. Empty if a second look can.
	Beyond string
}

// A Scope is a kind of target that some checks are about, such as Java virtual machines.
type Scope struct {
	Fact *metric.Info // if it is recorded without a series, the target is not of that kind
	Name string       // "JVM": there is no ... among the target's processes
	Or   *Scope       // a target of this kind qualifies, too
}

// Excludes returns the names of the kinds if the target has none of them; ok is false if it has one, or if that is
// not known.
func (s *Scope) Excludes(p *Pass) (names string, ok bool) {
	for ; s != nil; s = s.Or {
		if !p.Recorded(s.Fact) || len(p.Info(s.Fact)) > 0 {
			return "", false
		}
		if names != "" {
			names += " or "
		}
		names += s.Name
	}
	return names, names != ""
}

// Title returns the first line of the manual.
func (c *Check) Title() string { return firstLine(c.Doc) }

// A Param is a threshold with the reason for its default. It is declared as a variable of its own, so that a check's
// Run can name it and a misspelt name does not compile.
type Param struct {
	Name    string
	Default float64
	Unit    quantity.Unit
	Why     string // why this number
}

// Value returns the default as a quantity, labelled with the parameter's name.
func (p *Param) Value() quantity.Value { return quantity.Of(p.Name, p.Default, p.Unit) }

// A Subject is what a finding is about: the offender. Findings about two different subjects of one kind do not
// explain each other.
type Subject struct {
	Kind string `json:"kind"` // host, cpu, pid, cgroup, destination, listener, device, pool, lock, netns, collector
	ID   string `json:"id"`
}

// The subjects of findings about the whole host, and about the network namespace that its first process is in.
var (
	Host      = Subject{Kind: "host"}
	HostNetNS = Subject{Kind: "netns", ID: "of the host"}
)

// String returns "pid 4021 (java)", "destination 10.0.0.5:443" or "host".
func (s Subject) String() string {
	if s.ID == "" {
		return s.Kind
	}
	return s.Kind + " " + s.ID
}

// A Remedy is one way to fix a finding.
type Remedy struct {
	Action  string  `json:"action"`            // what to do, in one sentence
	Command Command `json:"command,omitempty"` // the command or setting, if there is one
	Risk    string  `json:"risk"`              // what it may break or cost
	Effect  string  `json:"effect"`            // which number it moves, and to what
	Before  string  `json:"before,omitempty"`  // code that has the fault, where a few lines show it
	After   string  `json:"after,omitempty"`   // the same without the fault
}

// A Finding is one thing that is wrong.
type Finding struct {
	Check      string           `json:"check"` // set by Report
	Stage      Stage            `json:"stage"` // set by Report
	Subject    Subject          `json:"subject"`
	Severity   Severity         `json:"severity"`
	Confidence Confidence       `json:"confidence"`
	Summary    string           `json:"summary"` // one line with the number in it
	Evidence   []quantity.Value `json:"evidence"`
	Remedies   []Remedy         `json:"remedies,omitempty"` // the best first
	Placebos   []string         `json:"placebos,omitempty"` // well-known fixes that do not help, and why
	Disproof   string           `json:"disproof"`           // what to look at that would show the finding wrong
	Doubts     []string         `json:"doubts,omitempty"`   // why the confidence is not high
	Notes      []string         `json:"notes,omitempty"`    // further facts, such as the offenders' list

	// Marks are the places in profiles that show the finding, for reports that draw them.
	Marks []Mark `json:"-"`

	// Weight is how much could be won back: the share of the target's time, or of the capacity of what is full, that
	// the finding owns. Among findings of one severity the largest is the verdict. 0 if no share can be given.
	Weight float64 `json:"share,omitempty"`

	// Event is the Event of its check, set by Report: it happened, and does not undo itself.
	Event bool `json:"-"`

	// Promises are the values of numbers once the finding is gone, as far as the recording supports them: see
	// [Finding.Promise].
	Promises []Promise `json:"promises,omitempty"`

	// Lead is what an answer begins with if no finding is a warning; the zero value means that there is no need to.
	Lead Lead `json:"-"`

	// Facts are the facts of its check that hold by its numbers, such as that it makes most of the garbage.
	Facts []Fact `json:"-"`

	// FixFirst are the findings of earlier stages, by check and subject, that distort what a profile shows: the code
	// looks different once they are fixed. Run sets it for the stages Runtime and Code.
	FixFirst []string `json:"mend_first,omitempty"`

	// Beside reports that the finding is not about the target but about others that run next to it; set by Run.
	Beside bool `json:"beside_target,omitempty"`

	// ExplainedBy is the check and subject of the finding that causes this one; set by Run.
	ExplainedBy string `json:"explained_by,omitempty"`
}

// A Lead is what a reader wants to know first about a remarkable finding that is not certainly a fault.
type Lead struct {
	Heading string // "busy"
	State   string // "thread 4021 (worker) is full"; empty if it matters only where the host's CPUs are full
	Why     string // "sendmsg takes 89 % of the CPU time"
}

// A Mark is a call in a stack of a profile, as [recording.Recording.Ranked] returns it.
type Mark struct {
	Event stacks.Event
	Stack []int // as [stacks.Sample].Stack
	At    int   // index into Stack
}

// ID returns what identifies a finding within a run: check and subject.
func (f *Finding) ID() string { return f.Check + " " + f.Subject.String() }

// A Pass is one check's run over one recording.
type Pass struct {
	*recording.Recording
	check    *Check
	values   map[*Param]float64
	shared   map[reflect.Type]any // by all passes of a run: see Shared
	findings []Finding
	read     []quantity.Value
}

// Shared returns what several checks derive from a recording, as a type of its own: the first check of a run computes
// it. Nobody may change it.
func Shared[T any](p *Pass, from func(*recording.Recording) T) T {
	key := reflect.TypeFor[T]()
	if v, ok := p.shared[key].(T); ok {
		return v
	}
	v := from(p.Recording)
	if p.shared != nil { // a pass outside of a run shares nothing
		p.shared[key] = v
	}
	return v
}

// Param returns a threshold, the default unless the user set another. A threshold that the check does not declare is
// a bug, and panics: nobody could set it, or read the reason for its value.
func (p *Pass) Param(param *Param) quantity.Value {
	if !slices.Contains(p.check.Params, param) {
		panic(fmt.Sprintf("check: %s reads the threshold %q, which it does not declare", p.check.Name, param.Name))
	}
	if v, ok := p.values[param]; ok {
		return quantity.Of(param.Name, v, param.Unit)
	}
	return param.Value()
}

// Report adds a finding. A fact that its check does not declare is a bug, and panics: no edge could name it. If
// Confidence is not set it is high; [Run] lowers it if data was lost.
func (p *Pass) Report(f Finding) {
	f.Check, f.Stage, f.Event = p.check.Name, p.check.Stage, p.check.Event
	for _, fact := range f.Facts {
		if !slices.Contains(p.check.Facts, fact) {
			panic(fmt.Sprintf("check: %s states %q, which it does not declare", f.Check, fact))
		}
	}
	if f.Confidence == 0 {
		f.Confidence = High
	}
	p.findings = append(p.findings, f)
}

// Read notes a number that the check looked at, so that "fine" can say what was fine: "busiest CPU in softirq: 3 %".
func (p *Pass) Read(v quantity.Value) { p.read = append(p.read, v) }

// A NotAssessedError is what a Run returns if the recording cannot answer its question.
type NotAssessedError struct {
	Reason, Remedy string
	// Matters reports that something is used up here and this check would say by what: without its answer, the
	// absence of other findings does not mean that all is well.
	Matters bool
}

// Error returns the reason.
func (e *NotAssessedError) Error() string { return e.Reason }

// NotAssessed returns a [NotAssessedError]: the reason, and what would make the check assessable (empty if nothing
// would).
func NotAssessed(remedy, reason string, args ...any) error {
	return &NotAssessedError{Reason: fmt.Sprintf(reason, args...), Remedy: remedy}
}

// Unexplained is [NotAssessed] with Matters set.
func Unexplained(remedy, reason string, args ...any) error {
	return &NotAssessedError{Reason: fmt.Sprintf(reason, args...), Remedy: remedy, Matters: true}
}
