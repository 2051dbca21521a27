package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Causes is a graph over the names of checks: an edge says that one check's findings may be consequences of another's.
// It is passed to [Run] together with the checks, so no check refers to another.
type Causes []Edge

// An Edge says that the finding of one check is a consequence of another's, if their subjects can be related.
type Edge struct {
	Cause  string `json:"cause"`
	Effect string `json:"effect"`
	Why    string `json:"why"`              // in a few words
	If     Fact   `json:"if,omitempty"`     // the edge exists only if the finding of the cause states this
	Unless Fact   `json:"unless,omitempty"` // the edge does not exist if the finding of the effect states this
	Family string `json:"family,omitempty"` // causes with the same reason for the edge; a picture shows them as one

	// Across reports that the cause takes what all processes share, such as CPUs: the edge holds between findings
	// about any two subjects.
	Across bool `json:"across,omitempty"`
}

// A Fact is what a finding says about its numbers, by name, so that an edge may depend on it: "fills-the-cpus". A
// check declares the facts that its findings may state.
type Fact string

// Text returns the fact as words: "fills the cpus".
func (f Fact) Text() string { return strings.ReplaceAll(string(f), "-", " ") }

// Of returns the edges to the consequences of a check.
func (c Causes) Of(cause string) Causes {
	return c.filter(func(e Edge) bool { return e.Cause == cause })
}

// Behind returns the edges to a check from what may cause its findings.
func (c Causes) Behind(effect string) Causes {
	return c.filter(func(e Edge) bool { return e.Effect == effect })
}

func (c Causes) filter(keep func(Edge) bool) Causes {
	return slices.DeleteFunc(slices.Clone(c), func(e Edge) bool { return !keep(e) })
}

// Drawn returns the edges as a picture or a list shows them: the causes of a family count as one.
func (c Causes) Drawn() (out Causes) {
	for _, e := range c {
		if e.Family != "" {
			e.Cause = e.Family
		}
		if !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

// Condition says what the edge depends on, such as "if fills the cpus"; empty if it depends on nothing.
func (e Edge) Condition() string {
	var parts []string
	if e.If != "" {
		parts = append(parts, "if "+e.If.Text())
	}
	if e.Unless != "" {
		parts = append(parts, "unless "+e.Unless.Text())
	}
	return strings.Join(parts, ", ")
}

// Validate checks the graph against the checks it is about: both ends and the facts of each edge exist, each edge has
// a reason and occurs once, and no check is among its own consequences, whatever facts hold: a cycle has no first
// cause.
func (c Causes) Validate(checks []*Check) error {
	var errs []error
	seen := map[Edge]bool{} // two edges may have different conditions
	for _, e := range c {
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s -> %s: "+format, append([]any{e.Cause, e.Effect}, args...)...))
		}
		same := Edge{Cause: e.Cause, Effect: e.Effect, If: e.If, Unless: e.Unless}
		cause, effect := byName(checks, e.Cause), byName(checks, e.Effect)
		switch {
		case cause == nil || effect == nil:
			bad("there is no check of one of these names")
			continue
		case e.Cause == e.Effect:
			bad("a check does not explain itself")
		case seen[same]:
			bad("the edge is there twice")
		}
		seen[same] = true
		if e.Why == "" {
			bad("the edge has no reason")
		}
		if e.If != "" && !slices.Contains(cause.Facts, e.If) {
			bad("no finding of %s states %q", e.Cause, e.If)
		}
		if e.Unless != "" && !slices.Contains(effect.Facts, e.Unless) {
			bad("no finding of %s states %q", e.Effect, e.Unless)
		}
	}
	return errors.Join(append(errs, c.rings()...)...)
}

// rings names the checks that are consequences of themselves through others.
func (c Causes) rings() (errs []error) {
	next := map[string][]string{}
	for _, e := range c {
		if e.Cause != e.Effect {
			next[e.Cause] = append(next[e.Cause], e.Effect)
		}
	}
	for start := range next {
		if way := wayBack(next, start, start, map[string]bool{}); way != nil {
			errs = append(errs, fmt.Errorf("a ring, in which nothing is the first cause: %s",
				strings.Join(way, " -> ")))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// wayBack returns the names on a path from one check to another, including both; nil if there is none.
func wayBack(next map[string][]string, from, to string, seen map[string]bool) []string {
	for _, n := range next[from] {
		if n == to {
			return []string{from, to}
		}
		if seen[n] {
			continue
		}
		seen[n] = true
		if way := wayBack(next, n, to, seen); way != nil {
			return append([]string{from}, way...)
		}
	}
	return nil
}

// explain marks consequences. The edges that hold between the findings of a recording link them. A finding is
// explained by the finding of the earliest stage from which links lead to it. So an edge only passes through checks
// that found something here, at warning or above: a check that was measured fine is not a link, whatever it could
// explain. An explained finding may explain others in turn, so a chain ends at its first cause.
func explain(causes Causes, s *scene, findings []Finding) {
	direct := make([][]int, len(findings)) // by consequence
	for i := range findings {
		for j := range findings {
			if i != j && causes.link(s, &findings[j], &findings[i]) {
				direct[i] = append(direct[i], j)
			}
		}
	}
	for i := range findings {
		if first := firstCause(direct, findings, i); first >= 0 {
			findings[i].ExplainedBy = findings[first].ID()
		}
	}
}

// link reports whether an edge holds between two findings.
func (c Causes) link(s *scene, cause, effect *Finding) bool {
	if cause.Severity < Warning {
		return false
	}
	related := s.related(cause.Subject, effect.Subject)
	return slices.ContainsFunc(c, func(e Edge) bool {
		return e.Cause == cause.Check && e.Effect == effect.Check && (related || e.Across) &&
			(e.If == "" || slices.Contains(cause.Facts, e.If)) &&
			(e.Unless == "" || !slices.Contains(effect.Facts, e.Unless))
	})
}

// firstCause returns the cause of the earliest stage behind a finding, the first of equals in the order of the suite;
// -1 if there is none.
func firstCause(direct [][]int, findings []Finding, effect int) int {
	behind := map[int]bool{}
	var walk func(i int)
	walk = func(i int) {
		for _, j := range direct[i] {
			if !behind[j] && j != effect {
				behind[j] = true
				walk(j)
			}
		}
	}
	walk(effect)
	best := -1
	for j := range findings {
		if behind[j] && (best < 0 || findings[j].Stage < findings[best].Stage) {
			best = j
		}
	}
	return best
}
