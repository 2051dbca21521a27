package compare

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// A reading is all that is taken from one recording, whatever it is compared with.
type reading struct {
	side     Side
	cpuModel string
	guest    bool // in a virtual machine
	checks   *diagnosis
	source   *keynumber.Source
	numbers  []keynumber.Number
	work     keynumber.Work
	families map[string]*family
	profile  *hotcode.CPU // nil without a CPU profile
}

// read takes what is needed from a recording. reference is the recording whose 99th percentiles count as slow; nil
// means this recording's own. told is what else is known about its load.
func read(rec *recording.Recording, reference *reading, told keynumber.Told, opts Options) *reading {
	r := &reading{
		cpuModel: cpuModel(rec), guest: keynumber.IsGuest(rec), checks: diagnose(rec, opts.Checks, opts.Check),
		source: keynumber.NewSource(rec, told), families: familiesOf(rec),
	}
	r.side = sideOf(rec, r.checks.whole)
	if reference == nil {
		reference = r
	}
	r.source.SlowerThan(reference.source)
	r.numbers, r.work = r.source.Numbers(), r.source.Work()
	if cpu, ok := hotcode.CPUOf(rec); ok {
		r.profile = cpu
	}
	return r
}

// used returns how many CPUs the program used; 0 if that is not known.
func (r *reading) used() float64 { return usedBy(r.numbers) }

// workVariance returns the variance of the logarithm of the number of requests, by their scatter; 0 if they are not
// known.
func (r *reading) workVariance() float64 { return workVariance(r.numbers) }

func workVariance(numbers []keynumber.Number) float64 {
	for _, n := range numbers {
		if n.Name == "requests" && n.Estimate != nil && n.Estimate.Mean > 0 {
			share := n.Estimate.StdErr / n.Estimate.Mean
			return share * share
		}
	}
	return 0
}

func usedBy(numbers []keynumber.Number) float64 {
	for _, n := range numbers {
		if n.Name == "cpu_used" && n.Estimate != nil {
			return n.Estimate.Mean
		}
	}
	return 0
}

// A Side describes one recording.
type Side struct {
	Version string           `json:"perfdoctor"`
	Target  recording.Target `json:"target"`
	Started time.Time        `json:"started"`
	Seconds float64          `json:"seconds"`
	Kernel  string           `json:"kernel,omitempty"`
	Verdict string           `json:"principal,omitempty"` // id of the finding to act on first; empty if there is none

	Redacted *recording.Redaction `json:"redacted,omitempty"` // names are pseudonyms
}

func sideOf(rec *recording.Recording, res *check.Result) Side {
	m := rec.Meta
	s := Side{Version: m.Version, Target: m.Target, Started: m.Started.UTC(), Seconds: m.Duration, Redacted: m.Redacted}
	for _, h := range rec.Info(metric.HostInfo) {
		s.Kernel = h.Label("kernel")
	}
	if p := res.Principal(); p != nil {
		s.Verdict = p.ID()
	}
	return s
}

func cpuModel(rec *recording.Recording) string {
	out := ""
	for _, h := range rec.Info(metric.HostInfo) {
		out = h.Label("cpu_model")
	}
	for _, g := range rec.Gauge(metric.CPUsOnline) {
		out += fmt.Sprintf(" x %d", int(math.Round(g.Last())))
	}
	return out
}

// A diagnosis is what the checks say about one recording, and about its two halves.
type diagnosis struct {
	whole  *check.Result
	halves []half
}

// A half is what the checks say about one half of the window. Checks that read a profile, or what was read once at
// the end, are blind there.
type half struct {
	*check.Result
	blind map[string]bool
}

func diagnose(rec *recording.Recording, checks []*check.Check, opts check.Options) *diagnosis {
	d := &diagnosis{whole: check.Run(rec, checks, opts)}
	length := time.Duration(rec.Meta.Duration * float64(time.Second))
	if length < 4*time.Second { // no check says anything about less than two seconds
		return d
	}
	for _, part := range []*recording.Recording{rec.Between(0, length/2), rec.Between(length/2, length)} {
		d.halves = append(d.halves, half{check.Run(part, checks, opts), blind(checks, rec, part)})
	}
	return d
}

// blind returns the checks that read something in the whole recording that a part of it lacks.
func blind(checks []*check.Check, whole, part *recording.Recording) map[string]bool {
	out := map[string]bool{}
	for _, c := range checks {
		for _, m := range slices.Concat(c.Needs, c.Uses) {
			if whole.Recorded(m) && !part.Recorded(m) {
				out[c.Name] = true
			}
		}
	}
	return out
}

func (d *diagnosis) assessed(name string) bool { return state(d.whole, name) != check.Unassessed }

func state(r *check.Result, name string) check.State {
	for _, o := range r.Outcomes {
		if o.Check == name {
			return o.State
		}
	}
	return check.Unassessed
}

// loudest returns the highest severity of a check's findings; 0 without any.
func loudest(r *check.Result, name string) check.Severity {
	out := check.Severity(0)
	for _, f := range r.Findings {
		if f.Check == name {
			out = max(out, f.Severity)
		}
	}
	return out
}
