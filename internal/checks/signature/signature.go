package signature

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/input/spelling"
	"github.com/perfdoctor/perfdoctor/internal/input/strictyaml"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A signature is how a known bottleneck shows in a profile, and its fix: a row of signatures.yaml or of a user's
// file.
type signature struct {
	Name     string    `yaml:",key"`
	Stage    stageName `yaml:"stage"`     // code or runtime; code when empty
	Runs     string    `yaml:"runs"`      // the code of the frames: see runtimes; java when empty
	Title    string    `yaml:"title"`     // of the manual
	About    string    `yaml:"about"`     // the manual: what it means, why it costs, when it is fine
	Where    []clause  `yaml:"where"`     // for java and native the first decides whether the check can be assessed
	YieldsTo []string  `yaml:"yields-to"` // signatures that claim a stack before this one: they name its cause
	// checks whose findings are consequences; those of the built-in table are in causes.go
	Explains []string `yaml:"explains"`
	NotNamed []string `yaml:"not-named"` // frames that are never the culprit, such as constructors of exceptions
	// Statements says that a database does it for its statements, and that the finding names them.
	Statements bool `yaml:"statements"`
	// KernelToo says that the kernel's share of the CPU time is a part of it, and need not be fixed first.
	KernelToo bool          `yaml:"kernel-too"`
	Cure      string        `yaml:"cure"`
	Command   check.Command `yaml:"command"`
	Risk      string        `yaml:"risk"`
	Before    string        `yaml:"before"` // code
	After     string        `yaml:"after"`  // code
	Expect    percent       `yaml:"expect"` // the share to expect after the fix
	NoHelp    []string      `yaml:"no-help"`
	WrongIf   string        `yaml:"wrong-if"`
	Why       string        `yaml:"why"` // why the thresholds are other than the usual ones
	Source    string        `yaml:"source"`
	// In is how it shows in other runtimes, by their names. A row takes what it leaves out from this one.
	In []signature `yaml:"in"`
	of *signature  // the one whose row it is; nil for a signature
}

// runtimes are those whose code the frames of a signature may name. For python, node, php and ruby, a profile of
// scripts has the functions of the scripts, and a profile of CPU time has the interpreter's machine code.
var runtimes = []string{"java", "native", "python", "node", "php", "ruby", "dotnet"}

// rows returns the signature as it is in each runtime.
func (s *signature) rows() []*signature {
	out := []*signature{s}
	for i := range s.In {
		out = append(out, &s.In[i])
	}
	return out
}

// runsScripts reports whether the signature is of an interpreter's functions.
func (s *signature) runsScripts() bool {
	return slices.Contains([]string{"python", "node", "php", "ruby"}, s.Runs)
}

// A clause is one way in which a bottleneck shows.
type clause struct {
	Event   eventName   `yaml:"event"`
	Does    string      `yaml:"does"`    // ends the summary: "49 % of the CPU time …"
	Frames  []frameRule `yaml:"frames"`  // any of them in a stack
	Without []string    `yaml:"without"` // and none of these
	Classes []string    `yaml:"classes"` // of the lock or of what was allocated: any
	Threads []string    `yaml:"threads"` // names: any
	// Costs are functions in which allocations spend CPU time beside the collector: for copied text, the copying. The
	// machine code of compiled methods names the caller of its copying stubs wrongly, so the stack of an allocation
	// says who allocates, and the time in these functions says how much it costs.
	Costs []string `yaml:"costs"`
	Info  percent  `yaml:"info"`
	Warn  percent  `yaml:"warn"`
	// PerRequest is the CPU time of a request to a server in this code from which on it is a warning. It is for work
	// that is ordinary in small pieces.
	PerRequest time.Duration `yaml:"per-request"`
	// Served, beside PerRequest, limits the warning to programs that serve: for some others it is their purpose.
	Served bool `yaml:"served"`
	// PerWait is the same for a program that listens on no port: how long it computes there from one wait to the
	// next.
	PerWait time.Duration `yaml:"per-wait"`
	// Background says that no request does this work and none waits for it. It is a warning only where the CPUs are
	// full.
	Background bool `yaml:"background"`
}

// ofCPU reports whether the shares of the clause's event are shares of the CPU time.
func (c clause) ofCPU() bool { return isCPU(stacks.Event(c.Event)) }

func isCPU(e stacks.Event) bool { return e == stacks.CPU || e == stacks.Script }

// A frameRule is a pattern of frames with its surroundings. See hotcode.Pattern for the stars and the exclamation mark.
type frameRule struct {
	Frame string   `yaml:"frame,value"`
	Under []string `yaml:"under"` // any of these calls it, directly or not
	Over  []string `yaml:"over"`  // it calls any of these
	Self  bool     `yaml:"self"`  // it is the innermost frame
	Times int      `yaml:"times"` // it is in the stack so often: recursion
	Says  string   `yaml:"says"`  // what is known of this frame alone: "copies all of the text for each character"
}

// signatureFile is what signatures.yaml and a user's file hold.
type signatureFile struct {
	Signatures []signature `yaml:"signatures"`
}

// percent is a share of one, written as "5 %".
type percent float64

// UnmarshalText reads "5 %".
func (p *percent) UnmarshalText(text []byte) error {
	number, ok := strings.CutSuffix(string(text), "%")
	f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !ok || err != nil || !(f >= 0 && f <= 100) {
		return fmt.Errorf("%q is not a share between 0 %% and 100 %%, such as 5 %%", text)
	}
	*p = percent(f / 100)
	return nil
}

// eventName is the event of a profile.
type eventName stacks.Event

// UnmarshalText reads the name of an event.
func (e *eventName) UnmarshalText(text []byte) error {
	var names []string
	for _, known := range stacks.Events() {
		names = append(names, string(known))
	}
	if !slices.Contains(names, string(text)) {
		return fmt.Errorf("there is no event %q: %s", text, nearestOf(string(text), names))
	}
	*e = eventName(text)
	return nil
}

// stageName is the place of a signature in fix order: a profile of a process shows nothing before the
// runtime.
type stageName string

// UnmarshalText reads code or runtime.
func (s *stageName) UnmarshalText(text []byte) error {
	if *s = stageName(text); *s != "code" && *s != "runtime" {
		return fmt.Errorf("the stage is %q: it is code or runtime", text)
	}
	return nil
}

func nearestOf(word string, names []string) string {
	if near := spelling.Nearest(word, names); near != "" {
		return "did you mean " + near + "?"
	}
	return "it is one of " + strings.Join(names, ", ")
}

// The usual thresholds of the inclusive share. Classes of locks and allocations have none: their tables state their
// own.
const (
	usualInfo = 0.05
	usualWarn = 0.10
)

//go:embed signatures.yaml
var signatureTable []byte

// builtIn is the table of this package. A mistake in it is a bug of this program, which a test finds.
var builtIn = sync.OnceValue(func() []*signature {
	list, err := readSignatures("signatures.yaml", signatureTable)
	if err != nil {
		panic(err)
	}
	return list
})

// readSignatures reads a file strictly: all its mistakes are one error, each with file and line.
func readSignatures(file string, data []byte) ([]*signature, error) {
	root, err := strictyaml.Parse(file, data)
	if err != nil {
		return nil, err
	}
	var f signatureFile
	d := strictyaml.Decoder{File: file}
	d.Decode(root, &f)
	if err := d.Err(); err != nil {
		return nil, err
	}
	lines := signatureLines(root)
	var errs []error
	var list []*signature
	for i := range f.Signatures {
		s := &f.Signatures[i]
		s.complete(file)
		for _, mistake := range s.mistakes() {
			errs = append(errs, fmt.Errorf("%s:%d: %s: %s", file, lines[s.Name], s.Name, mistake))
		}
		list = append(list, s)
	}
	if len(list) == 0 {
		errs = append(errs, fmt.Errorf("%s:1: signatures: there is none", file))
	}
	return list, errors.Join(errs...)
}

// signatureLines returns the line of each signature's name.
func signatureLines(root *yaml.Node) map[string]int {
	lines := map[string]int{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if table := root.Content[i+1]; root.Content[i].Value == "signatures" {
			for j := 0; j+1 < len(table.Content); j += 2 {
				lines[table.Content[j].Value] = table.Content[j].Line
			}
		}
	}
	return lines
}

// complete fills in what may be left out.
func (s *signature) complete(file string) {
	s.Stage = cmp.Or(s.Stage, "code")
	s.Runs = cmp.Or(s.Runs, "java")
	s.About = cmp.Or(strings.TrimSpace(s.About), "A signature of "+file+".")
	s.Risk = cmp.Or(s.Risk, "not known: the signature names none")
	s.WrongIf = cmp.Or(s.WrongIf, "the stacks show that these frames do other work than the title says.")
	s.Source = cmp.Or(s.Source, file)
	s.Why = cmp.Or(s.Why, "below it a fix hardly shows beside the sampling error; from it on it repays the work")
	for i := range s.Where {
		c := &s.Where[i]
		c.Event = cmp.Or(c.Event, eventName(stacks.CPU))
		c.Does = cmp.Or(c.Does, "matches "+s.Name)
		c.Info = cmp.Or(c.Info, min(usualInfo, cmp.Or(c.Warn, usualInfo)))
		c.Warn = cmp.Or(c.Warn, max(usualWarn, c.Info))
	}
	for i := range s.In {
		s.In[i].inherit(s, file)
	}
}

// inherit fills in what a row of another runtime leaves out.
func (s *signature) inherit(of *signature, file string) {
	s.Runs, s.Name, s.of = s.Name, of.Name, of
	s.Title, s.Stage, s.Explains = of.Title, of.Stage, of.Explains
	s.About = cmp.Or(s.About, of.About)
	s.Cure, s.Risk = cmp.Or(s.Cure, of.Cure), cmp.Or(s.Risk, of.Risk)
	s.Expect = cmp.Or(s.Expect, of.Expect)
	s.WrongIf, s.Source = cmp.Or(s.WrongIf, of.WrongIf), cmp.Or(s.Source, of.Source)
	if len(s.YieldsTo) == 0 {
		s.YieldsTo = of.YieldsTo
	}
	s.complete(file)
}

var signatureName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

func (s *signature) mistakes() []string {
	var out []string
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	bad(!signatureName.MatchString(s.Name), "the name is not words of small letters and digits with dashes between")
	bad(s.Title == "", "title is missing: what the finding is called")
	bad(s.Cure == "", "cure is missing: what to change, in one sentence")
	bad(!slices.Contains(runtimes, s.Runs), "runs is %q: it is one of %s", s.Runs, strings.Join(runtimes, ", "))
	bad(len(s.Where) == 0, "where is missing: a list of event and frames")
	bad(s.of != nil && s.of.Runs == s.Runs, "in.%s: that is what it runs already", s.Runs)
	bad(s.of != nil && len(s.In) > 0, "in.%s has further runtimes in it", s.Runs)
	for i, c := range s.Where {
		bad(len(c.Frames)+len(c.Classes) == 0, "where[%d] has no frames and no classes: it would match everything", i)
		bad(len(c.Costs) > 0 && stacks.Event(c.Event) != stacks.Alloc, "where[%d]: costs are those of allocations", i)
		bad(c.PerRequest > 0 && !c.ofCPU(), "where[%d]: per-request is of CPU time", i)
		bad(c.Served && c.PerRequest == 0, "where[%d]: served goes with per-request", i)
		bad(c.PerWait > 0 && c.PerRequest == 0, "where[%d]: per-wait goes with per-request", i)
		bad(c.Background && (!c.ofCPU() || c.PerRequest > 0), "where[%d]: background is of CPU time, for nobody", i)
		bad(c.Info > c.Warn, "where[%d]: info is above warn", i)
		twice := slices.ContainsFunc(s.Where[:i], func(o clause) bool { return o.Event == c.Event })
		bad(twice, "where[%d]: there is one of event %s already", i, c.Event)
		for j, f := range c.Frames {
			bad(strings.Trim(f.Frame, "*!") == "", "where[%d].frames[%d] matches everything", i, j)
			bad(f.Times < 0, "where[%d].frames[%d]: times is negative", i, j)
		}
	}
	for i := range s.In {
		out = append(out, s.In[i].mistakes()...)
	}
	return out
}

// Parse reads the signatures of a user's file, which has the form of the built-in table (docs/signatures.md), and
// makes a check of each. It returns these checks, and the causes among all checks, including the suite. An error
// names each mistake with file, line and, for a misspelt name, the nearest one.
func Parse(file string, data []byte, suite []*check.Check, causes check.Causes) ([]*check.Check, check.Causes,
	error,
) {
	list, err := readSignatures(file, data)
	if err != nil {
		return nil, nil, err
	}
	all := slices.Concat(builtIn(), list)
	var errs []error
	for _, s := range list {
		if slices.ContainsFunc(suite, func(c *check.Check) bool { return c.Name == s.Name }) {
			errs = append(errs, fmt.Errorf("%s: %s: there is a check of that name: choose another", file, s.Name))
		}
		errs = append(errs, s.strangers(file, all, suite)...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	var out []*check.Check
	causes = slices.Clone(causes)
	for _, s := range list {
		out = append(out, s.check(all))
		causes = append(causes, s.causes(file)...)
	}
	suite = slices.Concat(suite, out)
	return out, causes, errors.Join(check.Validate(suite), causes.Validate(suite))
}

// strangers finds names of other signatures and checks that do not exist.
func (s *signature) strangers(file string, all []*signature, known []*check.Check) []error {
	var errs []error
	var signatures, checkNames []string
	for _, o := range all {
		signatures, checkNames = append(signatures, o.Name), append(checkNames, o.Name)
	}
	for _, c := range known {
		checkNames = append(checkNames, c.Name)
	}
	find := func(field string, words, names []string) {
		for _, w := range words {
			if !slices.Contains(names, w) {
				errs = append(errs, fmt.Errorf("%s: %s: %s: there is no %q: %s", file, s.Name, field, w,
					nearestOf(w, names)))
			}
		}
	}
	for _, row := range s.rows() {
		find("yields-to", row.YieldsTo, signatures)
	}
	find("explains", s.Explains, checkNames)
	return errs
}

// causes returns the edges from a signature of a user's file.
func (s *signature) causes(file string) (out check.Causes) {
	for _, e := range s.Explains {
		out = append(out, check.Edge{Cause: s.Name, Effect: e, Why: file + " says so"})
	}
	if s.mayBeGarbage() {
		out = append(out, garbageEdge(s.Name))
	}
	return slices.Concat(out, s.lockEdges(), s.hotCodeEdges())
}
