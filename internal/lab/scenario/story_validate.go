package scenario

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// rungs reports mistakes that only a story can have.
func (v *validator) rungs(s *Scenario) {
	if len(s.Cures)+len(s.Placebos) > 0 {
		v.fail("rungs", "a scenario with rungs has no cures and placebos beside: a placebo is a rung with "+
			"placebo: true")
	}
	if len(s.faults()) == 0 {
		v.fail("rungs", "all of them are placebos: a story has a fault")
	}
	beside := s.Expect
	beside.Forbidden = nil
	if !beside.empty() {
		v.fail("expect", "each rung has its own; beside rungs there is only forbidden, which is of all states")
	}
	v.known("expect.forbidden", s.Expect.Forbidden)
	for i, r := range s.faults() {
		if len(r.Regression) > 0 && i < len(s.faults())-1 {
			v.fail("rungs."+r.Name+".regression", "the last fault alone can be one: of any other state some check has "+
				"a verdict")
		}
	}
	whole := len(v.errs)
	for i := range s.Rungs {
		v.rung(&s.Rungs[i])
	}
	if s.Left != nil {
		v.left(*s.Left)
	}
	if len(v.errs) == whole { // a mistake in a change would be repeated for each state
		v.independent(s.Rungs)
		v.states(s)
	}
}

func (v *validator) rung(r *Rung) {
	path := "rungs." + r.Name
	v.pattern(path, r.Name, phaseName)
	if r.Name == stateHealthy || r.Name == PhaseSick {
		v.fail(path, "%s is the name of a state", r.Name)
	}
	if r.Cure.Title == "" {
		v.fail(path+".cure.title", "missing: say what is changed")
	}
	if c := r.Cure.Change; c == nil || c.Kind != yaml.MappingNode {
		v.fail(path+".cure.change", "missing: want the fields that the cure changes")
	}
	if d := r.Diagnose; d != nil && d.Kind != yaml.MappingNode {
		v.fail(path+".diagnose", "want the fields that differ from those of the story")
	}
	if len(r.Moves) == 0 {
		v.fail(path+".moves", "missing: say how far a metric moves, or stays")
	}
	v.moves(path+".moves", !r.Placebo, r.Moves)
	if r.Placebo {
		v.placebo(path, r)
		return
	}
	if r.Title == "" {
		v.fail(path+".title", "missing: say what is wrong")
	}
	if len(r.Regression) > 0 {
		if !r.Expect.empty() {
			v.fail(path+".expect", "a regression has none: no check says anything, and the comparison is to say what "+
				"regression has")
		}
		return
	}
	v.expect(path+".expect", &r.Expect)
	if r.Expect.Verdict == VerdictNone || r.Expect.Verdict == VerdictOpen {
		v.fail(path+".expect.verdict", "a rung is a fault: name the check that must say so")
	}
}

// empty reports whether nothing is expected.
func (e *Expect) empty() bool {
	return e.Verdict+e.Severity+e.Subject == "" && len(e.Or)+len(e.Evidence)+len(e.Required)+len(e.Forbidden)+len(
		e.NotAssessed) == 0
}

func (v *validator) placebo(path string, r *Rung) {
	if len(r.Regression) > 0 {
		v.fail(path+".regression", "a placebo is no fault")
	}
	if r.Expect.Verdict == VerdictNone || r.Expect.Verdict == VerdictOpen {
		v.fail(path+".expect.verdict", "a placebo cures nothing: name the check, or leave it out where the "+
			"verdict stays")
	}
	if r.Expect.Verdict != "" {
		v.expect(path+".expect", &r.Expect)
	} else if !r.Expect.empty() {
		v.fail(path+".expect", "without a verdict of its own, what is said of a placebo is what is said of the first "+
			"fault left")
	}
	if r.Diagnose != nil {
		v.fail(path+".diagnose", "a placebo is diagnosed as the first fault left is")
	}
}

// separator occurs in no key of the file: keys such as net.ipv4.tcp_tw_reuse have dots.
const separator = "\x00"

// independent reports changes that depend on their order: two changes that set the same field.
func (v *validator) independent(rungs []Rung) {
	type owner struct {
		rung, path string
		at         *yaml.Node
	}
	var set []owner
	for i := range rungs {
		name := rungs[i].Name
		leaves(rungs[i].Cure.Change, "", func(path string, at *yaml.Node) {
			for _, other := range set {
				if other.rung != name && (strings.HasPrefix(path, other.path) || strings.HasPrefix(other.path, path)) {
					shown := strings.ReplaceAll(strings.Trim(path, separator), separator, ".")
					v.failAt(at, "rungs."+name+".cure.change", "%s is changed by %s too: the cures must not depend on "+
						"their order",
						shown, other.rung)
				}
			}
			set = append(set, owner{name, path, at})
		})
	}
}

// leaves calls found for each field that a change sets. A path begins and ends with the separator.
func leaves(n *yaml.Node, path string, found func(path string, at *yaml.Node)) {
	if path == "" {
		path = separator
	}
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		found(path, n)
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		leaves(n.Content[i+1], path+n.Content[i].Value+separator, found)
	}
}

// states reports states that cannot be built. It checks each change alone, and the states on the way through the
// file. The many other states are checked before a run that passes through them.
func (v *validator) states(s *Scenario) {
	var way []string
	for i := range s.Rungs {
		r := &s.Rungs[i]
		if r.Placebo {
			v.oneState(s, way, r)
			continue
		}
		v.oneState(s, []string{r.Name}, nil)
		way = append(slices.Clone(way), r.Name)
		v.oneState(s, way, nil)
	}
}

func (v *validator) oneState(s *Scenario, cured []string, placebo *Rung) {
	if len(v.errs) > 0 {
		return // the next state would have the same mistakes
	}
	state := validator{
		file: v.file, root: s.stateNode(cured, placebo), prefix: v.prefix + statePrefix(cured, placebo),
		checks: v.checks,
	}
	site := state.state(s.VM.Mode)
	v.errs = append(v.errs, state.errs...)
	s.states = append(s.states, site)
}

// left checks what is expected when all faults are fixed. Without a verdict, e must say what must be gone.
func (v *validator) left(e Expect) {
	if e.Verdict == "" {
		if e.Verdict = VerdictNone; len(e.Forbidden) == 0 {
			v.fail("left", "without a verdict it says what is forbidden")
		}
	}
	v.expect("left", &e)
}
