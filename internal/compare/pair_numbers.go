package compare

import (
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
)

// A numberPair is one key number in both recordings.
type numberPair struct{ before, after keynumber.Number }

// known reports whether both recordings have it.
func (p *numberPair) known() bool { return p.before.Estimate != nil && p.after.Estimate != nil }

// asked are the numbers that a reader looks for: if they are not known, the comparison says why.
var asked = []string{"cpu_per_request", "ipc", "request_p99", "throttled_share"}

// pairNumbers pairs the key numbers, which both lists have in the same order. It leaves out numbers that neither
// recording knows, unless they are among asked.
func pairNumbers(before, after []keynumber.Number) []numberPair {
	var out []numberPair
	for i := range before {
		p := numberPair{before[i], after[i]}
		if p.before.Estimate != nil || p.after.Estimate != nil || slices.Contains(asked, p.before.Name) {
			out = append(out, p)
		}
	}
	return out
}
