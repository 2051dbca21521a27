package compare

import "slices"

// Bounds on what is kept of the profiles of many recordings. Nightly recordings of one program have most of their
// stacks in common.
const (
	maxPoolCalls = 100_000 // different stacks of 40 frames take 25 MiB
	maxPoolNames = 100_000 // with 100 bytes each 20 MiB
	// maxPoolParts bounds the counts of all recordings together: 32 MiB.
	maxPoolParts = 2_000_000
)

// otherMethods is the name of methods beyond the bound.
const otherMethods = "[others]"

// A pool is the profiles of many recordings: each distinct call once, and for each recording how often it has the
// call.
type pool struct {
	names *names
	all   *tally // only its calls count
	parts int
	full  bool
}

// A part is the profile of one recording.
type part struct {
	engine          string
	seconds, clumps float64
	list            []share
}

// A share is how many samples of a call a recording has.
type share struct {
	call int32
	n    float64
}

func newPool() *pool {
	all := newNames()
	all.most = maxPoolNames
	return &pool{names: all, all: newTally("", 0, all)}
}

// add keeps a recording's profile.
func (p *pool) add(t *tally) *part {
	out := &part{engine: t.engine, seconds: t.seconds, clumps: t.clumps}
	counts := map[int32]float64{}
	for _, c := range t.calls {
		if len(p.all.calls) >= maxPoolCalls && !p.all.has(c) || p.parts+len(counts) >= maxPoolParts {
			p.full = true
			c.above = nil
		}
		counts[int32(p.all.keep(c))] += c.n
	}
	for call, n := range counts {
		out.list = append(out.list, share{call, n})
	}
	slices.SortFunc(out.list, func(x, y share) int { return int(x.call) - int(y.call) })
	p.parts += len(out.list)
	return out
}

// sum adds up the profiles of recordings. It returns nil if one has no profile, or they are of two kinds.
func (p *pool) sum(points []point) *tally {
	if len(points) == 0 {
		return nil
	}
	counts := make([]float64, len(p.all.calls))
	var out *tally
	for _, x := range points {
		switch {
		case x.part == nil, out != nil && out.engine != x.part.engine:
			return nil
		case out == nil:
			out = newTally(x.part.engine, 0, p.names)
		}
		for _, c := range x.part.list {
			counts[c.call] += c.n
		}
		out.seconds, out.clumps = out.seconds+x.part.seconds, max(out.clumps, x.part.clumps)
	}
	for i, n := range counts {
		if n > 0 {
			c := p.all.calls[i]
			c.n = n
			out.count(c)
			out.calls = append(out.calls, c)
		}
	}
	return out
}
