package scenario

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/perfdoctor/perfdoctor/internal/input/spelling"
	"github.com/perfdoctor/perfdoctor/internal/input/strictyaml"
)

// A story is a scenario with rungs: one system with several faults at once, which the doctor names one after the
// other. Its file describes the system with all faults. A state is the set of faults that are fixed. The changes of
// their fixes are laid over the file, always in the order of the file, whatever the order in which the faults were
// fixed. The verdict of a state is the verdict of its first fault left.

// Rung is one fault of a story with its fix, or a placebo that is tried on the way.
type Rung struct {
	Name  string `yaml:",key"`
	Title string `yaml:"title"` // what is wrong
	// Expect applies to each state in which this is the first fault left.
	Expect   Expect     `yaml:"expect"`
	Diagnose *yaml.Node `yaml:"diagnose"` // laid over the story's Diagnose in these states
	Cure     Cure       `yaml:"cure"`
	Moves    []Move     `yaml:"moves"` // from the state before the fix to the one after it
	// Regression is set for a fault that no diagnosis shows: nothing is wrong except that it was better before. It
	// lists parts of what a comparison must say got worse, from the state after the fix, which stands for the version
	// before, to this state. Such a rung has no Expect.
	Regression []string `yaml:"regression"`
	// Placebo marks a change that is tried on a state, must not change the verdict, and is taken back.
	Placebo bool `yaml:"placebo"`
}

// Cure is what a rung changes.
type Cure struct {
	Title  string     `yaml:"title"`
	Change *yaml.Node `yaml:"change"` // laid over the fields of Site; no two rungs set the same one
}

// Climb is the way through a story's states. The zero value fixes the faults in the order of the file.
type Climb struct {
	Order   []string // all faults, with placebos where they are to be tried
	Seed    *uint64  // leaves out faults at random: they are fixed from the start
	Rung    string   // only the state in which this is the first fault left, and the one after its fix
	Alone   bool     // with Rung: without the fix
	Healthy bool     // only the state without any fault
}

// Story reports whether the scenario has rungs.
func (s *Scenario) Story() bool { return len(s.Rungs) > 0 }

// stateHealthy is part of the name of a phase without any fault.
const stateHealthy = "healthy"

// faults returns the rungs that are not placebos, in the order of the file.
func (s *Scenario) faults() []*Rung {
	var list []*Rung
	for i := range s.Rungs {
		if !s.Rungs[i].Placebo {
			list = append(list, &s.Rungs[i])
		}
	}
	return list
}

// firstLeft returns the first fault that is not fixed, or nil.
func (s *Scenario) firstLeft(cured []string) *Rung {
	for _, r := range s.faults() {
		if !slices.Contains(cured, r.Name) {
			return r
		}
	}
	return nil
}

// mostLeftOut is how many faults a seed leaves out at most. At least one fault remains.
const mostLeftOut = 2

// leftOut returns the faults that a seed leaves out, in the order of the file.
func (s *Scenario) leftOut(seed *uint64) []string {
	faults := s.faults()
	if seed == nil {
		return nil
	}
	var names []string
	chosen := rand.New(rand.NewPCG(*seed, 0)).Perm(len(faults))[:min(mostLeftOut, len(faults)-1)]
	slices.Sort(chosen)
	for _, i := range chosen {
		names = append(names, faults[i].Name)
	}
	return names
}

// start returns the faults that are fixed from the start, and the rungs in the order in which they are climbed.
func (s *Scenario) start(c Climb) (cured []string, order []*Rung, err error) {
	faults := s.faults()
	switch {
	case c.Healthy:
		for _, r := range faults {
			cured = append(cured, r.Name)
		}
		return cured, nil, nil
	case c.Rung != "":
		return s.startAt(c)
	case c.Order != nil:
		order, err = s.ordered(c.Order)
		return s.leftOut(c.Seed), order, err
	}
	for i := range s.Rungs {
		order = append(order, &s.Rungs[i])
	}
	return s.leftOut(c.Seed), order, nil
}

// startAt fixes what comes before one rung.
func (s *Scenario) startAt(c Climb) (cured []string, order []*Rung, err error) {
	for i := range s.Rungs {
		r := &s.Rungs[i]
		if r.Name == c.Rung {
			if c.Alone && !r.Placebo {
				return cured, nil, nil
			}
			return cured, []*Rung{r}, nil
		}
		if !r.Placebo {
			cured = append(cured, r.Name)
		}
	}
	return nil, nil, s.unknownRung(c.Rung)
}

// ordered returns the named rungs. Each fault must be named once; a placebo may be left out.
func (s *Scenario) ordered(names []string) ([]*Rung, error) {
	var order []*Rung
	for i, name := range names {
		at := slices.IndexFunc(s.Rungs, func(r Rung) bool { return r.Name == name })
		if at < 0 {
			return nil, s.unknownRung(name)
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("the order: %s is named twice", name)
		}
		order = append(order, &s.Rungs[at])
	}
	for _, r := range s.faults() {
		if !slices.Contains(names, r.Name) {
			return nil, fmt.Errorf("the order: %s is missing: name each fault once: %s", r.Name,
				strings.Join(s.RungNames(), ", "))
		}
	}
	return order, nil
}

func (s *Scenario) unknownRung(name string) error {
	if near := spelling.Nearest(name, s.RungNames()); near != "" {
		return fmt.Errorf("%s has no rung %q: did you mean %s?", s.Name, name, near)
	}
	return fmt.Errorf("%s has no rung %q: there is %s", s.Name, name, strings.Join(s.RungNames(), ", "))
}

// RungNames returns the names of a story's rungs, in the order of the file.
func (s *Scenario) RungNames() []string {
	var names []string
	for i := range s.Rungs {
		names = append(names, s.Rungs[i].Name)
	}
	return names
}

// climb returns the phases of the way c through the story: its states, and the placebos tried on them.
func (s *Scenario) climb(c Climb) ([]phaseSpec, error) {
	cured, order, err := s.start(c)
	if err != nil {
		return nil, err
	}
	list := []phaseSpec{s.inState(cured)}
	last := 0 // the newest state
	for _, r := range order {
		var next phaseSpec
		switch {
		case slices.Contains(cured, r.Name):
			continue
		case r.Placebo:
			next = s.trying(r, cured)
		default:
			first := s.firstLeft(cured)
			cured = append(slices.Clone(cured), r.Name)
			next = s.inState(cured)
			next.loose = first != r
		}
		next.rung, next.moves, next.from = r, r.Moves, last
		list = append(list, next)
		if !r.Placebo {
			last = len(list) - 1
		}
	}
	for i := range list {
		list[i].name = fmt.Sprintf("%d-%s", i+1, list[i].name)
		if list[i].site, err = s.build(list[i].cured, list[i].tried()); err != nil {
			return nil, err
		}
	}
	list[0].foretold = s.foretoldOf(list[0].cured)
	return list, nil
}

// foretoldOf returns the predictions of the file. They are only for the state with all faults.
func (s *Scenario) foretoldOf(cured []string) []Foretold {
	if len(cured) > 0 {
		return nil
	}
	return s.Foretold
}

// inState returns the phase of a state, named after its first fault left.
func (s *Scenario) inState(cured []string) phaseSpec {
	first := s.firstLeft(cured)
	if first == nil {
		e := s.left()
		e.Forbidden = slices.Concat(e.Forbidden, s.Expect.Forbidden)
		return phaseSpec{name: stateHealthy, kind: KindHealthy, title: "all faults are fixed", expect: &e, cured: cured}
	}
	e := first.Expect
	if len(first.Regression) > 0 {
		e.Verdict = VerdictNone
	}
	e.Forbidden = slices.Concat(e.Forbidden, s.Expect.Forbidden)
	return phaseSpec{name: first.Name, kind: KindRung, title: first.Title, expect: &e, cured: cured}
}

// left returns what is expected when all faults are fixed.
func (s *Scenario) left() Expect {
	if s.Left != nil {
		return *s.Left
	}
	return Expect{Verdict: VerdictNone}
}

// trying returns the phase of a placebo on a state. The verdict stays, unless the placebo is tried on the next fault
// in the file and moves it to another place, which the placebo names.
func (s *Scenario) trying(r *Rung, cured []string) phaseSpec {
	first := s.firstLeft(cured)
	e := Expect{Verdict: VerdictNone}
	switch {
	case first == nil:
		e = s.left()
	case r.Expect.Verdict != "" && first == s.faultAfter(r):
		e = r.Expect
	case len(first.Regression) == 0:
		e.Verdict, e.Or = first.Expect.Verdict, first.Expect.Or
	}
	return phaseSpec{name: r.Name, kind: KindPlacebo, title: r.Cure.Title, expect: &e, cured: cured}
}

// faultAfter returns the fault that follows a placebo in the file, or nil.
func (s *Scenario) faultAfter(placebo *Rung) *Rung {
	for i := range s.Rungs {
		if r := &s.Rungs[i]; r == placebo {
			placebo = nil
		} else if placebo == nil && !r.Placebo {
			return r
		}
	}
	return nil
}

// tried returns the placebo of the phase, or nil.
func (p *phaseSpec) tried() *Rung {
	if p.rung != nil && p.rung.Placebo {
		return p.rung
	}
	return nil
}

// stateNode returns the part of the file that is built in a state. placebo may be nil.
func (s *Scenario) stateNode(cured []string, placebo *Rung) *yaml.Node {
	node := s.site
	for i := range s.Rungs {
		r := &s.Rungs[i]
		if r == placebo || slices.Contains(cured, r.Name) {
			node = merge(node, r.Cure.Change)
		}
	}
	if first := s.firstLeft(cured); first != nil && first.Diagnose != nil {
		node = merge(node, field(first.Diagnose.Line, "diagnose", first.Diagnose))
	}
	return node
}

// build reads the site of a state, strictly: not every state was checked when the file was read.
func (s *Scenario) build(cured []string, placebo *Rung) (*Site, error) {
	v := validator{file: s.Name, root: s.stateNode(cured, placebo), prefix: statePrefix(cured, placebo)}
	site := v.state(s.VM.Mode)
	if len(v.errs) > 0 {
		return nil, invalid{v.errs[0]}
	}
	return site, nil
}

// state decodes and validates v.root as a site.
func (v *validator) state(mode string) *Site {
	d := &strictyaml.Decoder{File: v.file}
	site := &Site{}
	if d.Decode(v.root, site); d.Err() != nil {
		v.errs = append(v.errs, d.Err())
		return site
	}
	v.site(site)
	v.machine(mode, site)
	return site
}

func statePrefix(cured []string, placebo *Rung) string {
	names := slices.Clone(cured)
	if placebo != nil {
		names = append(names, placebo.Name)
	}
	if len(names) == 0 {
		return ""
	}
	return "with the change of " + strings.Join(names, ", ") + ": "
}
