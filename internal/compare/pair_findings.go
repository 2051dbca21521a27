package compare

import (
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
)

// A findingPair is what both recordings say about one thing; one is nil if only the other has it.
type findingPair struct{ before, after *check.Finding }

// nature returns a subject without what changes from run to run. Destinations and listeners are distinguished by
// their numbers, others by their names.
func nature(s check.Subject) string {
	if s.Kind == "destination" || s.Kind == "listener" {
		return s.String()
	}
	return s.Kind + " " + changing.ReplaceAllString(s.ID, "#")
}

// pairFindings pairs by check and subject, then by what does not change from run to run, then by the check alone,
// because two runs may show the same fault at a different thread, CPU or destination. Findings of after come first.
func pairFindings(before, after []check.Finding) []findingPair {
	b, a := slices.Clone(before), slices.Clone(after)
	var out []findingPair
	for _, same := range []func(x, y *check.Finding) bool{
		func(x, y *check.Finding) bool { return x.ID() == y.ID() },
		func(x, y *check.Finding) bool { return x.Check == y.Check && nature(x.Subject) == nature(y.Subject) },
		func(x, y *check.Finding) bool { return x.Check == y.Check && x.Subject.Kind == y.Subject.Kind },
	} {
		for i := 0; i < len(a); i++ {
			j := slices.IndexFunc(b, func(x check.Finding) bool { return same(&x, &a[i]) })
			if j < 0 {
				continue
			}
			x, y := b[j], a[i]
			out = append(out, findingPair{&x, &y})
			a, b = slices.Delete(a, i, i+1), slices.Delete(b, j, j+1)
			i--
		}
	}
	for i := range a {
		out = append(out, findingPair{nil, &a[i]})
	}
	for i := range b {
		out = append(out, findingPair{&b[i], nil})
	}
	return out
}
