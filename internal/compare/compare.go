package compare

import (
	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// Schema is the version of the comparison's JSON form (docs/report-schema.md).
const Schema = 1

// Data is a whole comparison, ready to print.
type Data struct {
	Schema   int       `json:"schema"`
	Before   Side      `json:"before"`
	After    Side      `json:"after"`
	Verdict  Verdict   `json:"verdict"`
	Findings []Finding `json:"findings"` // what counts first
	Numbers  []Number  `json:"numbers"`
	Methods  *Methods  `json:"methods,omitempty"` // with a CPU profile
	Others   []Other   `json:"others"`            // further metrics that moved, the most first
	Doubts   []string  `json:"doubts,omitempty"`  // what else differs between the recordings, so that not only the program may be compared
	Stacks   *Stacks   `json:"-"`                 // for differential flame graphs; nil without two profiles of one kind
}

// Options adjust a comparison.
type Options struct {
	Checks   []*check.Check
	Check    check.Options
	Requests [2]float64 // per second, before and after, as a load generator counted; 0 if not known
}

// Compare compares two recordings.
func Compare(before, after *recording.Recording, opts Options) *Data {
	b, a := &side{rec: before, requests: opts.Requests[0]}, &side{rec: after, requests: opts.Requests[1]}
	tails(b, a)
	db, da := diagnose(before, opts.Checks, opts.Check), diagnose(after, opts.Checks, opts.Check)
	d := &Data{
		Schema: Schema, Before: sideOf(before, db.whole), After: sideOf(after, da.whole),
		Findings: findings(db, da), Numbers: numbers(b, a), Others: others(before, after),
	}
	d.Methods = methods(b, a, d.disturbed(b, a))
	d.Stacks = d.stacks(before, after)
	d.doubts(b, a)
	fewer := lessDone(b, a)
	d.lessLoad(fewer)
	if fewer >= 1 {
		d.unmask(db.whole.Principal())
	}
	d.decide()
	return d
}

// Regressed tells whether something got worse.
func (d *Data) Regressed() bool { return d.Verdict.Result == Worse || d.Verdict.Result == Mixed }
