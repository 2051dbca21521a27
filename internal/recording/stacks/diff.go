package stacks

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// A Node is a call in two profiles at once, with all that it calls.
type Node struct {
	Frame         Frame // without line and kind, as [Method] gives it; empty at the root
	Kind          Kind  // of the first sample that has it
	Before, After int64 // samples, with all that it calls
	Calls         []*Node
}

// Diff lays the stacks of two profiles over each other, by method or function. Calls are in the order of their names, so that equal
// stacks stand at equal places.
func Diff(before, after *Profile) *Node {
	root := &Node{}
	root.add(before, func(n *Node) *int64 { return &n.Before })
	root.add(after, func(n *Node) *int64 { return &n.After })
	root.sort()
	return root
}

func (n *Node) add(p *Profile, side func(*Node) *int64) {
	for _, s := range p.Samples {
		at := n
		*side(at) += s.Count
		for i := len(s.Stack) - 1; i >= 0; i-- {
			at = at.call(p.Frames[s.Stack[i]])
			*side(at) += s.Count
		}
	}
}

func (n *Node) call(f Frame) *Node {
	key := Method(f)
	for _, c := range n.Calls {
		if c.Frame == key {
			return c
		}
	}
	c := &Node{Frame: key, Kind: f.Kind}
	n.Calls = append(n.Calls, c)
	return c
}

func (n *Node) sort() {
	slices.SortFunc(n.Calls, func(x, y *Node) int { return compareFrames(x.Frame, y.Frame) })
	for _, c := range n.Calls {
		c.sort()
	}
}

// WriteFolded writes the tree as folded stacks with two columns, samples before and after, as difffolded.pl gives them and flamegraph.pl
// draws them: the outermost call first, behind each name the mark of its kind. What would end a name, a line or a column is replaced.
func (n *Node) WriteFolded(w io.Writer) error {
	bw := bufio.NewWriter(w)
	if err := n.fold(bw, nil); err != nil {
		return fmt.Errorf("write the folded stacks: %w", err)
	}
	if err := bw.Flush(); err != nil {
		return fmt.Errorf("write the folded stacks: %w", err)
	}
	return nil
}

func (n *Node) fold(w *bufio.Writer, path []string) error {
	before, after := n.Before, n.After
	for _, c := range n.Calls {
		before, after = before-c.Before, after-c.After
		if err := c.fold(w, append(path, folded(c))); err != nil {
			return err
		}
	}
	if before == 0 && after == 0 {
		return nil
	}
	if len(path) == 0 {
		path = []string{"[no stack]"}
	}
	_, err := fmt.Fprintf(w, "%s %d %d\n", strings.Join(path, ";"), before, after)
	return err
}

func folded(n *Node) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r == ';':
			return ':'
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, n.Frame.Name)
	return name + "_[" + marks[n.Kind] + "]"
}
