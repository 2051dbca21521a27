package evidence

import (
	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// mostOfStatements is the part of the statements' time from which on one of them is named: what the server does most is
// done for it.
const mostOfStatements = 0.5

// NameStatement adds to a finding about what a database computes the statement that it runs most of the time, if there
// is one.
func NameStatement(p *check.Pass, f *check.Finding) {
	statement, longest, all := "", 0.0, 0.0
	for _, s := range p.Gauge(metric.DatabaseStatementTime) {
		if s.Last() > longest || s.Last() == longest && s.Label("statement") < statement {
			statement, longest = s.Label("statement"), s.Last()
		}
	}
	for _, s := range p.Gauge(metric.DatabaseSessionTime, "state", "active") {
		all += s.Last()
	}
	share := quantity.Of("sessions in the statement", longest, quantity.Seconds).
		Per(quantity.Of("sessions in any", max(all, longest), quantity.Seconds)).
		Named("of the time of statements that run, in the longest")
	if longest <= 0 || share.Number() < mostOfStatements {
		return
	}
	f.Summary += "; " + share.Text() + " of the time that statements run is in: " + statement
	f.Evidence = append(f.Evidence, share)
}
