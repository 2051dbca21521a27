package checks

import (
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A matcher finds the samples of one profile that a clause is about.
type matcher struct {
	profile          *stacks.Profile
	rules            []ruleMatcher
	without          stacks.Set
	classes, threads []hotcode.Pattern
	claimed          []*matcher // of signatures that this one yields to
	byFrame          bool       // else by class and thread alone
}

type ruleMatcher struct {
	frames, under, over stacks.Set
	rule                frameRule
}

// matcherOf prepares a clause for a profile of its event. Rules of which no frame is in the profile are left out: of forty
// signatures hardly any has one.
func matcherOf(p *stacks.Profile, c clause, claimed []*matcher) *matcher {
	m := &matcher{profile: p, classes: patternsOf(c.Classes), threads: patternsOf(c.Threads), claimed: claimed, byFrame: len(c.Frames) > 0}
	m.without, _ = hotcode.Frames(p, patternsOf(c.Without))
	for _, r := range c.Frames {
		frames, some := hotcode.Frames(p, patternsOf([]string{r.Frame}))
		if !some {
			continue
		}
		rm := ruleMatcher{frames: frames, rule: r}
		rm.under, _ = hotcode.Frames(p, patternsOf(r.Under))
		rm.over, _ = hotcode.Frames(p, patternsOf(r.Over))
		m.rules = append(m.rules, rm)
	}
	return m
}

// at gives the place in the stack of the frame that shows the bottleneck; ok is false when the sample does not match. A clause
// of classes alone matches at the innermost frame.
func (m *matcher) at(s stacks.Sample) (at int, ok bool) {
	if !m.context(s) || s.Innermost(m.without) >= 0 {
		return 0, false
	}
	if m.byFrame {
		if at = m.frameAt(s.Stack); at < 0 {
			return 0, false
		}
	}
	for _, c := range m.claimed {
		if _, theirs := c.at(s); theirs {
			return 0, false
		}
	}
	return at, len(s.Stack) > 0
}

// context tells whether class and thread are among those asked for.
func (m *matcher) context(s stacks.Sample) bool {
	among := func(patterns []hotcode.Pattern, name string) bool {
		return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p hotcode.Pattern) bool { return p.Text(name) })
	}
	return among(m.classes, s.Class) && among(m.threads, m.profile.ThreadOf(s).Name)
}

func (m *matcher) frameAt(stack []int) int {
	best := -1
	for _, r := range m.rules {
		if i := r.at(stack); i >= 0 && (best < 0 || i < best) {
			best = i
		}
	}
	return best
}

// at gives the innermost place where the rule holds, -1 if there is none.
func (r ruleMatcher) at(stack []int) int {
	best, times := -1, 0
	for i, f := range stack {
		if !r.frames[f] || r.rule.Self && i > 0 {
			continue
		}
		if len(r.rule.Under) > 0 && !hasAny(stack[i+1:], r.under) || len(r.rule.Over) > 0 && !hasAny(stack[:i], r.over) {
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

// says gives what is known of the frame that shows the bottleneck in a stack, from the first rule that it matches.
func (m *matcher) says(stack []int, at int) string {
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

// A hit is a sample that matches, and where in its stack.
type hit struct {
	sample stacks.Sample
	at     int
	says   string // of the rule that it matches
}

// hits gives all samples that match.
func (m *matcher) hits() []hit {
	if m.byFrame && len(m.rules) == 0 {
		return nil
	}
	var out []hit
	for _, s := range m.profile.Samples {
		if at, ok := m.at(s); ok {
			out = append(out, hit{s, at, m.says(s.Stack, at)})
		}
	}
	return out
}

// marksOf gives the places of hits for a report that draws the profile.
func marksOf(e stacks.Event, hits []hit) []check.Mark {
	out := make([]check.Mark, 0, len(hits))
	for _, h := range hits {
		if h.at < len(h.sample.Stack) {
			out = append(out, check.Mark{Event: e, Stack: h.sample.Stack, At: h.at})
		}
	}
	return out
}

func weigh(hits []hit) (w stacks.Weight) {
	for _, h := range hits {
		w.Count += h.sample.Count
		w.Value += h.sample.Value
	}
	return w
}
