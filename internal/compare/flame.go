package compare

import (
	"math"

	"gonum.org/v1/gonum/mathext"

	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// Stacks are the CPU profiles of both recordings laid over each other.
type Stacks struct {
	Root  *stacks.Node // the calls that can be seen in a picture
	All   *stacks.Both
	scale float64 // as of [reference]
	clump float64 // as of [Methods].Clustering
}

// LeastShare is below which share of both recordings a call is left out of a picture: a twentieth of a pixel of a wide
// screen.
const LeastShare = 1.0 / 40_000

// maxNodes bounds the calls of a picture: each takes a hundred bytes. Of deep stacks that are all different more are
// left out.
const maxNodes = 200_000

// visible gives the calls to draw.
func visible(all *stacks.Both) *stacks.Node {
	before, after := float64(all.Before)*LeastShare, float64(all.After)*LeastShare
	for all.Size(before, after) > maxNodes {
		// half a sample more than one leaves out what was seen once
		before, after = max(2*before, 1.5), max(2*after, 1.5)
	}
	return all.Tree(before, after)
}

// stacks gives nil where the profiles cannot be compared.
func (d *Data) stacks(b, a *hotcode.CPU) *Stacks {
	if b == nil || a == nil || d.Methods == nil || d.Methods.Reason != "" {
		return nil
	}
	all := stacks.Diff(b.Profile, a.Profile)
	return &Stacks{visible(all), all, d.Methods.scale, d.Methods.Clustering}
}

// NodeChange says how much more of a call there is, beside what methods are set against.
type NodeChange struct {
	Factor float64
	// by more than chance, with 95 % for this call alone: a graph is looked at where something is suspected
	Certain bool
}

// Change gives the change of one call with all that it calls.
func (s *Stacks) Change(n *stacks.Node) NodeChange {
	b, a := float64(n.Before)+0.5, float64(n.After)+0.5
	c := NodeChange{Factor: a / b / s.scale}
	c.Certain = math.Abs(math.Log(c.Factor)) > mathext.NormalQuantile(0.975)*math.Sqrt(s.clump*(1/b+1/a))
	return c
}
