package compare

import (
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// Stacks is the CPU profiles of both recordings, overlaid.
type Stacks struct {
	Root *stacks.Node // the calls that can be seen in a picture
	All  *stacks.Both
	test nodeTest
}

// LeastShare is the share of both recordings below which a picture leaves out a call: a twentieth of a pixel of a
// wide screen.
const LeastShare = 1.0 / 40_000

// maxNodes bounds the calls of a picture: each takes a hundred bytes. If deep stacks all differ, more calls are left
// out.
const maxNodes = 200_000

// visible returns the calls to draw.
func visible(all *stacks.Both) *stacks.Node {
	before, after := float64(all.Before)*LeastShare, float64(all.After)*LeastShare
	for all.Size(before, after) > maxNodes {
		// half a sample more than one leaves out what was seen once
		before, after = max(2*before, 1.5), max(2*after, 1.5)
	}
	return all.Tree(before, after)
}

// stacks returns nil if the profiles cannot be compared.
func (d *Data) stacks(b, a *hotcode.CPU) *Stacks {
	if b == nil || a == nil || d.Methods == nil || d.Methods.Reason != "" {
		return nil
	}
	all := stacks.Diff(b.Profile, a.Profile)
	return &Stacks{visible(all), all, d.Methods.nodes}
}

// A NodeChange says how much more of a call there is, relative to what methods are compared against.
type NodeChange struct {
	Factor  float64
	Certain bool // by the test of the list of methods
}

// A nodeTest is the test that makes the list of methods, for a call of the graph.
type nodeTest struct {
	most    reference
	total   float64 // samples before
	between float64 // as in [pair]
	z       float64 // standard errors
	counts  bool    // methods are compared against something
}

// Change returns the change of one call with all that it calls.
func (s *Stacks) Change(n *stacks.Node) NodeChange {
	t := s.test
	p := pair{name: "", before: float64(n.Before), after: float64(n.After), between: t.between}
	m := p.compare(t.total, t.total, t.most, t.z)
	grew := m.Low > 1 && m.Extra >= leastExtra
	return NodeChange{Factor: m.Factor, Certain: t.counts && (grew || m.High < 1 && m.Extra <= -leastExtra)}
}
