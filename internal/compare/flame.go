package compare

import (
	"math"

	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// Stacks are the CPU profiles of both recordings laid over each other.
type Stacks struct {
	Root  *stacks.Node
	scale float64 // as of [reference]
	clump float64 // as of [Methods].Clustering
}

// stacks gives nil where the profiles cannot be compared.
func (d *Data) stacks(before, after *recording.Recording) *Stacks {
	b, okB := hotcode.CPUOf(before)
	a, okA := hotcode.CPUOf(after)
	if !okB || !okA || d.Methods == nil || d.Methods.Reason != "" {
		return nil
	}
	return &Stacks{stacks.Diff(b.Profile, a.Profile), d.Methods.scale, d.Methods.Clustering}
}

// NodeChange says how much more of a call there is, beside what methods are set against.
type NodeChange struct {
	Factor  float64
	Certain bool // by more than chance, with 95 % for this call alone: a graph is looked at where something is suspected
}

// Change gives the change of one call with all that it calls.
func (s *Stacks) Change(n *stacks.Node) NodeChange {
	b, a := float64(n.Before)+0.5, float64(n.After)+0.5
	c := NodeChange{Factor: a / b / s.scale}
	c.Certain = math.Abs(math.Log(c.Factor)) > quantileNormal(0.975)*math.Sqrt(s.clump*(1/b+1/a))
	return c
}
