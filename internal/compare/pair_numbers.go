package compare

import (
	"cmp"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/quantity"
)

// A Number is one of the key numbers of a comparison.
type Number struct {
	Name   string        `json:"name"`
	Label  string        `json:"label"`
	Unit   quantity.Unit `json:"unit"`
	Better Better        `json:"better,omitempty"`
	Before *Estimate     `json:"before,omitempty"`
	After  *Estimate     `json:"after,omitempty"`
	Change *Change       `json:"change,omitempty"`
	Result Result        `json:"result"`
	Reason string        `json:"reason,omitempty"` // why it is unknown
	Series [2][]float64  `json:"-"`                // before and after, an interval each
	Floor  float64       `json:"-"`                // below it the number is as good as none, whatever its ratio to another
}

// asked are the numbers that a reader looks for: where they are not known, the comparison says why.
var asked = []string{"cpu_per_request", "ipc", "request_p99", "throttled_share"}

// numbers compares the key numbers. Those that neither recording has are left out, unless they are asked for.
func numbers(before, after *side) []Number {
	var out []Number
	var of []measure
	tests := 0
	for _, m := range measures(before.rec, after.rec) {
		n, known := m.read(before, after)
		if !known && !slices.Contains(asked, m.name) {
			continue
		}
		out, of = append(out, n), append(of, m)
		if n.Before != nil && n.After != nil && n.Before.Mean+n.After.Mean > 0 && m.better != Neither {
			tests++
		}
	}
	for i := range out {
		switch n := &out[i]; n.Name {
		case "slow_connects":
			n.Label = tailLabel("connects", before.slowConnect)
		case "slow_cpu_waits":
			n.Label = tailLabel("waits for a CPU", before.slowWait)
		}
		if n := &out[i]; n.Before != nil && n.After != nil {
			c := difference(*n.Before, *n.After, of[i].between(), tests)
			c.Low = max(c.Low, -n.Before.Mean) // none of them can be negative
			n.Change, n.Result = &c, of[i].judge(n.Before.Mean, n.After.Mean, c)
		}
	}
	return out
}

// read gives both estimates; known is false where neither recording has the number.
func (m *measure) read(before, after *side) (n Number, known bool) {
	n = Number{Name: m.name, Label: m.label, Unit: m.unit, Better: m.better, Result: Unknown}
	reasons := [2]string{}
	for i, s := range []*side{before, after} {
		list, why := m.of(s)
		e, ok := estimate(list)
		if !ok {
			reasons[i] = cmp.Or(why, "there are too few samples of it")
			continue
		}
		n.Series[i] = values(list)
		if i == 0 {
			n.Before = &e
		} else {
			n.After = &e
		}
	}
	switch {
	case n.Before == nil && n.After == nil && reasons[0] != reasons[1]:
		n.Reason = "before, " + reasons[0] + "; after, " + reasons[1]
	case n.Before == nil && n.After == nil:
		n.Reason = reasons[0]
	case n.Before == nil:
		n.Reason = "before, " + reasons[0]
	case n.After == nil:
		n.Reason = "after, " + reasons[1]
	}
	return n, n.Before != nil || n.After != nil
}

// number gives nil where the comparison does not have it.
func (d *Data) number(name string) *Number {
	i := slices.IndexFunc(d.Numbers, func(n Number) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return &d.Numbers[i]
}
