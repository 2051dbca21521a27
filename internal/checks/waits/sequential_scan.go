package waits

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	scanLevel = &check.Param{
		Name: "share", Default: 0.2, Unit: quantity.Ratio,
		Why: "of the time of all statements: a fifth is more than the few reports that a database also makes",
	}
	scanWarn = &check.Param{
		Name: "warn", Default: 0.5, Unit: quantity.Ratio,
		Why: "half of what clients wait for is rows that are read to be thrown away",
	}
	scanSessions = &check.Param{
		Name: "sessions", Default: 0.5, Unit: sessions,
		Why: "clients seldom notice less than half of one session at any moment",
	}
	scanPages = &check.Param{
		Name: "pages", Default: 100, Unit: quantity.Pages,
		Why: "to read 100 pages from memory takes about a millisecond; below that it is seldom worth an index, and " +
			"the planner prefers to read all",
	}
	scanKept = &check.Param{
		Name: "kept", Default: 0.05, Unit: quantity.Ratio,
		Why: "of the rows of a table: above a twentieth an index saves little, and the planner often does not use it",
	}
)

// sequentialScan is about statements that read whole tables for few rows.
var sequentialScan = &check.Check{
	Name:  "sequential-scan",
	Stage: check.Runtime,
	Doc: `Statements of a database read a whole table for a few of its rows

Without an index on what a statement asks for, the server reads all rows of the table and throws away those that do not
match: its time grows with the table, not with the answer. Statements that need most of the rows (sums over all,
reports) read them in any case, and tables of some pages are read whole because that is as fast.

Measured: PostgreSQL 14 to 18 keep in the memory of each session the plan that it runs, and how far each scan of it is.
The check reads that from outside some twenty times a second: it does not log in, and keeps statements without their
values. The share is of the time in which statements run or wait, including what they do with a row that is found. The
part of the rows that is wanted is the planner's estimate. It is a warning where that is at most a twentieth of a table
of 100 pages or more. Where the scan has no filter, the filter keeps more, or the table was never analysed, nothing
from outside shows whether an index would help; then it is information from half of the time on. For a statement inside
a function (PL/pgSQL, SQL) the check names the table and the statement that called the function.

Fix: an index on the columns of the statement's condition. Where there is one, EXPLAIN shows why it is not used: a
function or a cast around the column, LIKE with % in front. Won't help: more memory, where the CPUs do the work.
Disproof: EXPLAIN (ANALYZE, BUFFERS) of the statement shows no Seq Scan with many rows removed by its filter.`,
	URL:  "https://www.postgresql.org/docs/current/using-explain.html",
	Only: &check.Scope{Fact: metric.DatabaseServer, Name: "PostgreSQL (14 and newer)"},
	Needs: []metric.Metric{
		metric.DatabaseServer, metric.DatabaseScanTime, metric.DatabaseSessionTime, metric.DatabasePasses,
	},
	Uses:   []metric.Metric{metric.DatabaseScanPages, metric.DatabaseScanKept},
	Facts:  []check.Fact{evidence.OwnsCPU},
	Params: []*check.Param{scanLevel, scanWarn, scanSessions, scanPages, scanKept},
	Run:    runSequentialScan,
}

// A tableScan is one statement that reads a table from end to end.
type tableScan struct {
	table, statement string
	seconds, pages   float64
	// kept is the share of the rows that it wants by the planner's estimate; negative if unknown.
	kept float64
}

func runSequentialScan(p *check.Pass) error {
	var few, all []tableScan
	for _, s := range tableScans(p) {
		if s.pages < p.Param(scanPages).Number() || s.seconds <= 0 {
			continue
		}
		all = append(all, s)
		if s.kept >= 0 && s.kept <= p.Param(scanKept).Number() {
			few = append(few, s)
		}
	}
	if len(all) == 0 || p.Meta.Duration <= 0 {
		p.Read(quantity.Of("in scans of whole tables", 0, quantity.Seconds))
		return nil
	}
	share, inside := scanShare(p, few)
	p.Read(share)
	if share.AtLeast(p.Param(scanLevel)) && inside.AtLeast(p.Param(scanSessions)) {
		f := scanFinding(p, few, share, inside)
		evidence.WithoutThreads(p, &f, inside.Number())
		p.Report(f)
		return nil
	}
	if share, inside = scanShare(p, all); share.AtLeast(p.Param(scanWarn)) && inside.AtLeast(p.Param(scanSessions)) {
		p.Report(wholeTableFinding(p, all, share, inside))
	}
	return nil
}

// tableScans lists the scans that were seen, the longest first.
func tableScans(p *check.Pass) (out []tableScan) {
	for _, s := range p.Gauge(metric.DatabaseScanTime) {
		x := tableScan{table: s.Label("table"), statement: s.Label("statement"), seconds: s.Last(), kept: -1}
		by := []string{"pid", s.Label("pid"), "table", x.table, "statement", x.statement}
		for _, g := range p.Gauge(metric.DatabaseScanPages, by...) {
			x.pages = g.Last()
		}
		for _, g := range p.Gauge(metric.DatabaseScanKept, by...) {
			x.kept = g.Last()
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(x, y tableScan) int {
		return cmp.Or(cmp.Compare(y.seconds, x.seconds), cmp.Compare(x.statement, y.statement),
			cmp.Compare(x.table, y.table))
	})
	return out
}

// scanShare returns the share of the statements' time that such scans take, and how many sessions are in them.
func scanShare(p *check.Pass, list []tableScan) (share, inside quantity.Value) {
	seconds, busy, scans := 0.0, 0.0, 0.0
	for _, s := range list {
		seconds += s.seconds
	}
	for _, s := range p.Gauge(metric.DatabaseScanTime) {
		scans += s.Last()
	}
	for _, s := range p.Gauge(metric.DatabaseSessionTime) {
		if state := s.Label("state"); state == "active" || state == "waiting" {
			busy += s.Last()
		}
	}
	at := quantity.Of("in scans of whole tables", seconds, quantity.Seconds)
	share = at.Per(quantity.Of("statements run or wait", max(busy, scans), quantity.Seconds)).
		Named("reading whole tables, share of the statements' time")
	inside = at.Per(quantity.Of("window", p.Meta.Duration, quantity.Seconds)).As(sessions).
		Named("sessions that do so at any moment")
	return share, inside
}

func scanFinding(p *check.Pass, list []tableScan, share, inside quantity.Value) check.Finding {
	s := list[0]
	f := check.Finding{
		Subject: check.Subject{Kind: "table", ID: s.table}, Severity: check.Info, Confidence: scanConfidence(p, inside),
		Weight: share.Number(),
		Summary: fmt.Sprintf("%s of the statements' time reads all of table %s for %s of its rows: %s", share.Text(),
			s.table, s.keptText(), s.statementText()),
		Evidence: []quantity.Value{share, inside, s.pagesRead()},
		Notes:    append(scanNotes(list), "how many rows are wanted is the planner's estimate, after the last ANALYZE"),
		Remedies: []check.Remedy{{
			Action: "Create an index on the columns of " + s.table + " that the statement's condition names.",
			Command: check.Commandf("psql -c %s", "CREATE INDEX CONCURRENTLY ON "+identifier(s.table)+
				" (COLUMN)"),
			Risk:   "each write of the table then also writes the index; building it reads the table once",
			Effect: share.Label() + ": from " + share.Text() + " towards zero",
		}, {
			Action: "Where there is one, see why it is not used: a function or cast around the column, LIKE with % " +
				"in front, old statistics (ANALYZE).",
			Command: check.Commandf("psql -c %s", "EXPLAIN STATEMENT"),
			Risk:    "none", Effect: "shows the plan",
		}},
		Placebos: []string{
			"More connections: each reads the table again.", "More shared_buffers, where the CPUs do the work.",
		},
		Disproof: "EXPLAIN (ANALYZE, BUFFERS) of the statement shows no Seq Scan with many rows removed by its filter.",
	}
	if share.AtLeast(p.Param(scanWarn)) {
		f.Severity = check.Warning
		f.Facts = []check.Fact{evidence.OwnsCPU}
	}
	return f
}

// wholeTableFinding is about scans that may be wanted.
func wholeTableFinding(p *check.Pass, list []tableScan, share, inside quantity.Value) check.Finding {
	s := list[0]
	f := check.Finding{
		Subject: check.Subject{Kind: "table", ID: s.table}, Severity: check.Info, Confidence: scanConfidence(p, inside),
		Weight: share.Number(),
		Summary: fmt.Sprintf("%s of the statements' time reads all of table %s, %s; whether it must cannot be told "+
			"from outside: %s", share.Text(), s.table, s.why(), s.statementText()),
		Evidence: []quantity.Value{share, inside, s.pagesRead()},
		Notes:    scanNotes(list),
		Facts:    []check.Fact{evidence.OwnsCPU},
		Remedies: []check.Remedy{{
			Action: "Ask whether the answer needs all rows. If so, keep it (a materialized view, a table of sums) " +
				"instead of computing it for each request; if not, name the rows in the condition, with an " +
				"index on it.",
			Command: check.Commandf("psql -c %s", "EXPLAIN (ANALYZE, BUFFERS) STATEMENT"),
			Risk:    "what is kept is older than the table",
			Effect:  share.Label() + ": falls with the number of times that it is read",
		}},
		Placebos: []string{"An index, where the statement needs all rows."},
		Disproof: "the statement is a report, and nobody waits for it.",
	}
	if share.AtLeast(p.Param(scanWarn)) {
		f.Lead = check.Lead{
			Heading: "busy",
			Why: fmt.Sprintf("%s of the statements' time reads all of table %s: %s", share.Text(), s.table,
				s.statementText()),
		}
	}
	return f
}

// scanConfidence goes by how often sessions were seen in a scan.
func scanConfidence(p *check.Pass, inside quantity.Value) check.Confidence {
	if n := p.Gauge(metric.DatabasePasses); len(n) > 0 && n[0].Last()*inside.Number() >= leastLooks {
		return check.High
	}
	return check.Medium
}

// scanNotes name the next few statements.
func scanNotes(list []tableScan) (out []string) {
	for _, s := range list[1:min(len(list), evidence.NamedCulprits)] {
		part := quantity.Of("", s.seconds/(s.seconds+list[0].seconds), quantity.Ratio)
		out = append(out, fmt.Sprintf("beside it, %s of both: all of table %s (%s) by: %s", part.Text(), s.table,
			s.why(), s.statementText()))
	}
	return out
}

func (s tableScan) pagesRead() quantity.Value {
	return quantity.Of("pages of table "+s.table, s.pages, quantity.Pages)
}

// keptText says what share of the rows is wanted; the planner never expects less than one row.
func (s tableScan) keptText() string {
	const least = 0.0001
	if s.kept < least {
		return "less than " + quantity.Of("", least, quantity.Ratio).Text()
	}
	return "about " + quantity.Of("", s.kept, quantity.Ratio).Text()
}

// identifier quotes a name for SQL, whoever gave it.
func identifier(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// why says what is known of the rows that are wanted.
func (s tableScan) why() string {
	switch {
	case s.kept < 0:
		return "which was never analysed (ANALYZE)"
	case s.kept == 1:
		return "all of whose rows are wanted"
	}
	return "where its filter keeps " + s.keptText()
}

func (s tableScan) statementText() string {
	return cmp.Or(s.statement, "a statement that the server does not keep (track_activities)")
}
