package check

import (
	"fmt"
	"maps"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// settle lowers a warning to information if lost samples could overturn it. If a collector lost samples that the
// check needs, the rest of the window may have differed from what was read: a warning must hold with each threshold
// moved, either way, by the lost share. A number just beyond a threshold does not hold, one far beyond it does. It
// returns what was lost if it lowered a finding, else "".
func settle(p *Pass) string {
	gaps := p.Gaps(p.check.Needs)
	if len(gaps) == 0 || p.most() < Warning {
		return ""
	}
	by, lost := 1.0, make([]string, 0, len(gaps))
	for _, g := range gaps {
		by = max(by, float64(g.Rounds)/float64(g.Rounds-g.Lost))
		lost = append(lost, fmt.Sprintf("%d of %d samples of %s are lost", g.Lost, g.Rounds, g.Collector))
	}
	what := strings.Join(lost, ", ")
	for _, param := range p.check.Params {
		doubt := fmt.Sprintf("%s: they could bring the number to the other side of %s", what, param.Name)
		at := p.Param(param).Number()
		for _, moved := range []float64{raised(param, at, by), at / by} {
			p.lowerTo(p.with(param, moved), doubt)
		}
	}
	if p.most() < Warning {
		return what
	}
	return ""
}

// most returns the greatest severity of the findings.
func (p *Pass) most() (s Severity) {
	for _, f := range p.findings {
		s = max(s, f.Severity)
	}
	return s
}

// raised moves a threshold up by a factor. A threshold near a whole moves by a part of its distance to the whole: 0.9
// of a CPU plus an eighth of it exceeds the whole CPU, which nothing reaches.
func raised(param *Param, threshold, by float64) float64 {
	whole := param.Unit == quantity.Ratio || param.Unit == quantity.CPUs
	if whole && threshold > 0.5 && threshold < 1 {
		return 1 - (1-threshold)/by
	}
	return threshold * by
}

// lowerTo lowers the findings to the severity that they have in another pass, with a doubt that says why.
func (p *Pass) lowerTo(other *Pass, doubt string) {
	if firewall.Run("the check", func() error { return other.check.Run(other) }) != nil {
		return
	}
	for i := range p.findings {
		f := &p.findings[i]
		if s := other.severity(f.Subject); f.Severity >= Warning && s < f.Severity {
			f.Severity = max(s, Info)
			f.Doubts = append(f.Doubts, doubt)
		}
	}
}

// with returns a pass over the same recording with another value of one threshold.
func (p *Pass) with(param *Param, v float64) *Pass {
	values := maps.Clone(p.values)
	if values == nil {
		values = map[*Param]float64{}
	}
	values[param] = v
	return &Pass{Recording: p.Recording, check: p.check, values: values, shared: p.shared}
}

// severity returns the greatest severity of the findings about a subject; 0 without any.
func (p *Pass) severity(s Subject) (most Severity) {
	for _, f := range p.findings {
		if f.Subject == s {
			most = max(most, f.Severity)
		}
	}
	return most
}
