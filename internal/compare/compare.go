package compare

import (
	"reflect"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
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
	Outcome  Outcome   `json:"outcome"`
	Findings []Finding `json:"findings"` // the most important first
	// Promises are the predictions for the findings before that were to be fixed, with their outcome.
	Promises []Promised `json:"promises,omitempty"`
	Numbers  []Number   `json:"numbers"`
	Methods  *Methods   `json:"methods,omitempty"` // with a CPU profile
	Others   []Other    `json:"others"`            // further metrics that moved, the most first
	// Doubts are other differences between the recordings, so that more than the program may have changed.
	Doubts []string `json:"doubts,omitempty"`
	Stacks *Stacks  `json:"-"` // for differential flame graphs; nil without two profiles of one kind
	// Printed is the 99th percentile of requests in seconds, before and after, that a load generator printed for its
	// whole run; absent unless it is known for both, and absent if the percentiles of the seconds are known.
	Printed []float64 `json:"printed_p99,omitempty"`
	// One reports that both are the same recording, so there is nothing to compare.
	One bool `json:"one_recording,omitempty"`

	beside  bool // other programs on the host differ
	standIn bool // segments stand for requests, in one recording at least
	perhaps bool // the load may have differed, which would explain something
}

// Options adjust a comparison.
type Options struct {
	Checks []*check.Check
	Check  check.Options
	Load   [2]keynumber.Told // before and after
}

// Compare compares two recordings.
func Compare(before, after *recording.Recording, opts Options) *Data {
	b := read(before, nil, opts.Load[0], opts)
	a := read(after, b, opts.Load[1], opts)
	d := judge(b, a, pairsOf(b, a))
	d.One = reflect.DeepEqual(before.Meta, after.Meta)
	return d
}

// pairs holds all things that both recordings may have data on. The methods of two profiles are paired as they are
// judged, because what is set aside depends on what was found so far.
type pairs struct {
	findings []findingPair
	numbers  []numberPair
	families []familyPair
}

func pairsOf(b, a *reading) pairs {
	return pairs{
		pairFindings(b.checks.whole.Findings, a.checks.whole.Findings), pairNumbers(b.numbers, a.numbers),
		pairFamilies(b.families, a.families),
	}
}

func judge(b, a *reading, p pairs) *Data {
	d := &Data{
		Schema: Schema, Before: b.side, After: a.side,
		Findings: judgeFindings(p.findings, b.checks, a.checks),
		Numbers:  judgeNumbers(p.numbers, rules(b.guest || a.guest, max(b.used(), a.used()))),
		Others:   judgeOthers(p.families, len(b.families)),
	}
	if p, q := b.source.SummaryP99(), a.source.SummaryP99(); min(p, q) > 0 && d.result("request_p99") == Unknown {
		d.Printed = []float64{p, q}
	}
	beside := d.disturbed(b, a)
	d.beside = beside > 0
	d.Methods = judgeMethods(b, a, beside)
	d.Stacks = d.stacks(b.profile, a.profile)
	d.judgeOutcome(b, a)
	d.cheaper()
	d.weigh()
	if d.Outcome.Load != LoadLess {
		d.unmask(b.checks.whole.Principal())
	}
	d.judgePromises(b, a)
	d.doubts(b, a)
	d.decide()
	return d
}

// Regressed reports whether something got worse.
func (d *Data) Regressed() bool { return d.Verdict.Result == Worse || d.Verdict.Result == Mixed }
