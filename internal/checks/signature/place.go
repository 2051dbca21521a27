package signature

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// A place is where an interpreter's machine code is called from. The samples of the CPUs say how much time it takes,
// and the profile of scripts says where. The two are taken separately.
type place struct {
	// what the scripts ran, by the nearest function of the application; the heaviest first
	functions []*evidence.Culprit
	ran       float64 // seconds of them
	least     float64 // share of the machine code's time that surely belongs to the first
}

// sure returns the functions if most of the machine code's time belongs to the first one.
func (l *place) sure() []*evidence.Culprit {
	if len(l.functions) > 0 && l.least >= surely {
		return l.functions
	}
	return nil
}

// surely is the share of the time from which on one function is named for all of it: half.
const surely = 0.5

// placed finds what the scripts ran while their interpreter was in the clause's machine code. Two shares of the same
// time overlap by at least the excess of their sum over the whole (Bonferroni). ok is false without a profile of
// scripts.
func (m *measure) placed(p *check.Pass, s *signature) (l *place, ok bool) {
	c, ok := hotcode.ScriptsOf(p.Recording)
	if !ok || c.Total() <= 0 || m.matched.Value <= 0 {
		return nil, false
	}
	hits := make([]evidence.Hit, 0, len(c.Samples))
	for _, x := range c.Samples {
		if len(x.Stack) > 0 {
			hits = append(hits, evidence.Hit{Sample: x})
		}
	}
	l = &place{
		functions: evidence.Culprits(c.Profile, c.Owners, hits, hotcode.ParsePatterns(s.NotNamed...)), ran: c.Sampled(),
	}
	if len(l.functions) > 0 {
		share := m.share.Number()
		l.least = max(0, share+float64(l.functions[0].Value)/1e9/c.Total()-1) / share
	}
	return l, true
}

// notes name the function that it belongs to, or those that it could belong to.
func (l *place) notes() (out []string) {
	share := func(c *evidence.Culprit) string { return evidence.PartText(c.Value, int64(l.ran*1e9)) }
	if l.sure() != nil {
		c := l.functions[0]
		text := fmt.Sprintf("the scripts were in %s for %s of their time: at least %s of it is called there",
			c.Name(), share(c), quantity.Of("", l.least, quantity.Ratio).Text())
		if len(c.Path) > 1 {
			text += ": " + strings.Join(c.Path, " ← ")
		}
		return []string{text}
	}
	for _, c := range l.functions[:min(len(l.functions), evidence.NamedCulprits)] {
		out = append(out, fmt.Sprintf("the scripts were in %s for %s of their time", c.Name(), share(c)))
	}
	return slices.Clip(out)
}
