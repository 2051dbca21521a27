package main

import "fmt"

// A goal is a bound for a measurement.
type goal struct {
	contest string
	what    string // as on the page
	of      func(*Contest) (estimate, bool)
	bound   float64
	least   bool // the bound is a minimum, not a maximum
}

// goals returns the goals that the project has set itself. A missed goal stays, and the page says by how much it was
// missed.
func goals() []goal {
	return []goal{
		{contest: "sockets-100000", what: "CPU time by that of ss with owners", of: ratioTo(1, cpuOf), bound: 0.3},
		{contest: "sockets-100000", what: "CPU time by that of a bare iterator", of: ratioTo(3, cpuOf), bound: 1.2},
		{contest: "host-10s", what: "CPU seconds", of: own(cpuOf), bound: 0.10},
		{contest: "host-10s", what: "peak memory, MiB", of: own(mebibytes), bound: 32},
		{contest: "jvm-5s", what: "throughput kept", of: own(keptOf), bound: 0.98, least: true},
		{contest: "threads-10000", what: "% of a CPU, beyond one thread", of: beyondOne, bound: 3},
		{contest: "rules-100000", what: "wall seconds, complete", of: own(wallOf), bound: 0.5},
		{contest: "exporter", what: "CPU time of a series by node_exporter's", of: ratioTo(1, cpuOfUnit), bound: 1},
		{contest: "exporter", what: "% of a CPU", of: own(share), bound: 0.25},
		{contest: "binary", what: "size, MB", of: own(megabytes), bound: 20},
	}
}

// mostExponent is the maximum for every growth: linear, plus the error of the fit.
const mostExponent = 1.05

func wallOf(c Cost) float64    { return c.Wall }
func cpuOf(c Cost) float64     { return c.CPU }
func keptOf(c Cost) float64    { return c.Kept }
func mebibytes(c Cost) float64 { return c.Memory / (1 << 20) }
func megabytes(c Cost) float64 { return c.Memory / 1e6 }
func cpuOfUnit(c Cost) float64 { return c.CPU / max(c.Units, 1) }
func share(c Cost) float64     { return 100 * c.CPU / scrapeEvery.Seconds() }

// values returns the values of all runs.
func values(costs []Cost, of func(Cost) float64) []float64 {
	out := make([]float64, len(costs))
	for i, c := range costs {
		out[i] = of(c)
	}
	return out
}

// own returns a function for a mean of perfdoctor alone.
func own(of func(Cost) float64) func(*Contest) (estimate, bool) {
	return func(c *Contest) (estimate, bool) { return geometric(values(c.Field[0].Costs, of), sure), true }
}

// ratio returns the ratio of perfdoctor's cost to a peer's, from the ratios of the rounds. Both ran in each round.
func ratio(c *Contest, peer *Entrant, of func(Cost) float64, certainty float64) (estimate, bool) {
	mine := c.Field[0].Costs
	if peer.Missing != "" || len(peer.Costs) != len(mine) {
		return estimate{}, false
	}
	ratios := make([]float64, len(mine))
	for i := range mine {
		if ratios[i] = of(mine[i]) / of(peer.Costs[i]); of(mine[i]) <= 0 || of(peer.Costs[i]) <= 0 {
			return estimate{}, false // for example, too short for the kernel to count
		}
	}
	return geometric(ratios, certainty), true
}

func ratioTo(peer int, of func(Cost) float64) func(*Contest) (estimate, bool) {
	return func(c *Contest) (estimate, bool) { return ratio(c, c.Field[peer], of, sure) }
}

// beyondOne returns how much more a diagnosis of many threads takes than a diagnosis of a single thread, in percent
// of a CPU.
func beyondOne(c *Contest) (estimate, bool) {
	const window = 10 // seconds
	mine, alone := c.Field[0].Costs, c.Field[len(c.Field)-1].Costs
	more := make([]float64, len(mine))
	for i := range mine {
		more[i] = 100 * (mine[i].CPU - alone[i].CPU) / window
	}
	return mean(more, sure), true
}

// A verdict on a goal or an exponent.
type verdict struct {
	of, what string
	got      estimate
	measured bool
	bound    float64
	least    bool
}

func (v verdict) missed() bool {
	if v.least {
		return v.measured && v.got.mid < v.bound
	}
	return v.measured && v.got.mid > v.bound
}

func (v verdict) word() string {
	switch {
	case !v.measured:
		return "cannot be told"
	case v.missed():
		return "**missed**"
	case v.least && v.got.low < v.bound, !v.least && v.got.high > v.bound:
		return "met, but not beyond doubt"
	}
	return "met"
}

// wanted returns the bound.
func (v verdict) wanted() string {
	if v.least {
		return fmt.Sprintf("at least %g", v.bound)
	}
	return fmt.Sprintf("at most %g", v.bound)
}

// judged returns the verdicts on all goals whose contest or growth was measured.
func (f *figures) judged() (out []verdict) {
	for _, g := range goals() {
		for _, c := range f.Contests {
			if c.Name == g.contest {
				got, ok := g.of(c)
				out = append(out, verdict{c.Name, g.what, got, ok, g.bound, g.least})
			}
		}
	}
	for _, g := range f.Growths {
		whole, ok := g.exponent()
		last, lastOK := g.lastDecade()
		out = append(out, verdict{g.Of, "exponent over three decades", whole, ok, mostExponent, false},
			verdict{g.Of, "exponent of the last decade", last, lastOK, mostExponent, false})
	}
	return out
}
