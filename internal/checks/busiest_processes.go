package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
)

// namedProcesses is how many processes a finding names: past the third they rarely change what to do.
const namedProcesses = 3

// worthNaming is the least CPU time of a process named, 5 ticks at 250 Hz: less is sampling noise.
const worthNaming = 0.02

type processTime struct {
	who     string // "4021 (java)"
	seconds float64
}

// busiestProcesses names the processes with the most CPU time in the modes (user, system), the busiest first.
func busiestProcesses(p *check.Pass, modes ...string) []processTime {
	byProcess := map[string]float64{}
	for _, s := range p.Counter(metric.ProcessCPU) {
		if n, ok := s.Increase(); ok && slices.Contains(modes, s.Label("mode")) {
			byProcess[pidName(s.Label("pid"), s.Label("comm"))] += n
		}
	}
	var out []processTime
	for who, n := range byProcess {
		if n >= worthNaming {
			out = append(out, processTime{who, n})
		}
	}
	slices.SortFunc(out, func(a, b processTime) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), strings.Compare(a.who, b.who))
	})
	return out[:min(len(out), namedProcesses)]
}

// busiestNote is the line of a finding that names them; empty when none is known.
func busiestNote(p *check.Pass, what string, modes ...string) []string {
	var parts []string
	for _, t := range busiestProcesses(p, modes...) {
		parts = append(parts, fmt.Sprintf("%s %s", t.who, quantity.Of("", t.seconds, quantity.Seconds).Text()))
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"most " + what + ": " + strings.Join(parts, ", ")}
}
