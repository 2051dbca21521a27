package signature

import (
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A Matcher finds the samples of one profile that match a clause.
type Matcher struct {
	profile          *stacks.Profile
	rules            []ruleMatcher
	without          stacks.Set
	classes, threads []hotcode.Pattern
	claimed          []*Matcher // of signatures that this one yields to
	byFrame          bool       // else by class and thread alone
}

type ruleMatcher struct {
	frames, under, over stacks.Set
	rule                frameRule
}

// matcherOf prepares a clause for a profile of its event. It leaves out rules without a frame in the profile: of
// forty signatures hardly any has one.
func matcherOf(p *stacks.Profile, c clause, claimed []*Matcher) *Matcher {
	m := &Matcher{
		profile: p, classes: hotcode.ParsePatterns(c.Classes...),
		threads: hotcode.ParsePatterns(c.Threads...), claimed: claimed, byFrame: len(c.Frames) > 0,
	}
	m.without, _ = hotcode.Frames(p, hotcode.ParsePatterns(c.Without...))
	for _, r := range c.Frames {
		frames, some := hotcode.Frames(p, hotcode.ParsePatterns(r.Frame))
		if !some {
			continue
		}
		rm := ruleMatcher{frames: frames, rule: r}
		rm.under, _ = hotcode.Frames(p, hotcode.ParsePatterns(r.Under...))
		rm.over, _ = hotcode.Frames(p, hotcode.ParsePatterns(r.Over...))
		m.rules = append(m.rules, rm)
	}
	return m
}

// At returns the place in the stack of the frame that shows the bottleneck. ok is false if the sample does not match.
// A clause of classes alone matches at the innermost frame.
func (m *Matcher) At(s stacks.Sample) (at int, ok bool) {
	if !m.context(s) || s.Innermost(m.without) >= 0 {
		return 0, false
	}
	if m.byFrame {
		if at = m.frameAt(s.Stack); at < 0 {
			return 0, false
		}
	}
	for _, c := range m.claimed {
		if _, theirs := c.At(s); theirs {
			return 0, false
		}
	}
	return at, len(s.Stack) > 0
}

// context reports whether the class and thread of a sample are among those of the clause.
func (m *Matcher) context(s stacks.Sample) bool {
	among := func(patterns []hotcode.Pattern, name string) bool {
		return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p hotcode.Pattern) bool { return p.Text(name) })
	}
	return among(m.classes, s.Class) && among(m.threads, m.profile.ThreadOf(s).Name)
}

func (m *Matcher) frameAt(stack []int) int {
	best := -1
	for _, r := range m.rules {
		if i := r.at(stack); i >= 0 && (best < 0 || i < best) {
			best = i
		}
	}
	return best
}

// at returns the innermost place where the rule holds, or -1 if there is none.
func (r ruleMatcher) at(stack []int) int {
	best, times := -1, 0
	for i, f := range stack {
		if !r.frames[f] || r.rule.Self && i > 0 {
			continue
		}
		if len(r.rule.Under) > 0 && !hasAny(stack[i+1:], r.under) || len(r.rule.Over) > 0 &&
			!hasAny(stack[:i], r.over) {
			continue
		}
		if times++; best < 0 {
			best = i
		}
	}
	if times < max(1, r.rule.Times) {
		return -1
	}
	return best
}

// says returns what is known of the frame that shows the bottleneck in a stack, by the first rule that matches it.
func (m *Matcher) says(stack []int, at int) string {
	for _, r := range m.rules {
		if r.at(stack) == at {
			return r.rule.Says
		}
	}
	return ""
}

func hasAny(stack []int, set stacks.Set) bool {
	return slices.ContainsFunc(stack, func(f int) bool { return set[f] })
}

// hits returns all samples that match.
func (m *Matcher) hits() []evidence.Hit {
	if m.byFrame && len(m.rules) == 0 {
		return nil
	}
	var out []evidence.Hit
	for _, s := range m.profile.Samples {
		if at, ok := m.At(s); ok {
			out = append(out, evidence.Hit{Sample: s, At: at, Says: m.says(s.Stack, at)})
		}
	}
	return out
}
