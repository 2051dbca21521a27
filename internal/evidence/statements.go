package evidence

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// mostOfStatements is the share of the statements' time from which on a statement or a function is named: most of the
// server's work is then done for it.
const mostOfStatements = 0.5

// NameStatement adds two things to a finding about what a database computes: the statement that it runs most of the
// time, and the function that contains it, if there is one.
func NameStatement(p *check.Pass, f *check.Finding) {
	all := 0.0
	for _, s := range p.Gauge(metric.DatabaseSessionTime, "state", "active") {
		all += s.Last()
	}
	named := nameMost(p, f, metric.DatabaseStatementTime, "statement", all,
		"; %s of the time that statements run is in: %s")
	inside := "; %s of the time that statements run is inside of %s"
	if named {
		inside = ", %s inside of %s"
	}
	nameMost(p, f, metric.DatabaseFunctionTime, "function", all, inside)
}

// nameMost adds the value of a label that has most of the time of all running statements; named is false if none has.
func nameMost(p *check.Pass, f *check.Finding, m *metric.Gauge, label string, all float64, text string,
) (named bool) {
	name, longest := "", 0.0
	for _, s := range p.Gauge(m) {
		if s.Last() > longest || s.Last() == longest && s.Label(label) < name {
			name, longest = s.Label(label), s.Last()
		}
	}
	share := quantity.Of("sessions in the "+label, longest, quantity.Seconds).
		Per(quantity.Of("sessions in any statement", max(all, longest), quantity.Seconds)).
		Named("of the time of statements that run, in the longest %s", label)
	if longest <= 0 || share.Number() < mostOfStatements {
		return false
	}
	f.Summary += fmt.Sprintf(text, share.Text(), name)
	f.Evidence = append(f.Evidence, share)
	return true
}
