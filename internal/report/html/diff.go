package html

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"

	"github.com/perfdoctor/perfdoctor/internal/compare"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// diffVersion is in the header of a packed difference; web/src/unpackdiff.ts reads this version.
const diffVersion = 1

// A diffHeader describes a packed difference. Columns of numbers follow it, see [packDiff].
type diffHeader struct {
	Version int        `json:"version"`
	Unit    string     `json:"unit"`
	Names   []string   `json:"names"`
	Modules []string   `json:"modules"`
	Frames  frameTable `json:"frames"`
	Nodes   int        `json:"nodes"`
}

// A diffPacker writes the nodes of a tree.
type diffPacker struct {
	of       *compare.Stacks
	header   diffHeader
	frames   map[diffFrame]int
	names    map[string]int
	modules  map[string]int
	columns  [6][]byte
	smallest [2]float64 // samples, before and after
}

type diffFrame struct {
	frame stacks.Frame
	kind  stacks.Kind
}

// packDiff writes a tree of calls before and after: a length of four bytes (little endian), the header as JSON, and
// columns of varints of the nodes, each with its callees behind it: the number of callees, frame + 1, samples before
// and after, change + 3 (see [changeStep]), and the factor in thousandths.
func packDiff(d *compare.Stacks) ([]byte, error) {
	p := &diffPacker{
		of: d, frames: map[diffFrame]int{}, names: map[string]int{}, modules: map[string]int{},
		header:   diffHeader{Version: diffVersion, Unit: "samples", Names: []string{}, Modules: []string{}},
		smallest: [2]float64{float64(d.Root.Before) * compare.LeastShare, float64(d.Root.After) * compare.LeastShare},
	}
	p.node(d.Root, true)
	head, err := json.Marshal(p.header)
	if err != nil {
		return nil, err
	}
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(head)))
	return append(append(out, head...), bytes.Join(p.columns[:], nil)...), nil
}

func (p *diffPacker) node(n *stacks.Node, root bool) {
	p.header.Nodes++
	var calls []*stacks.Node
	for _, c := range n.Calls {
		if float64(c.Before) >= p.smallest[0] || float64(c.After) >= p.smallest[1] {
			calls = append(calls, c)
		}
	}
	frame, change := 0, compare.NodeChange{}
	if !root {
		frame, change = p.frame(n)+1, p.of.Change(n)
	}
	factor := math.Round(min(change.Factor, 1e6) * 1000)
	for i, v := range []int64{
		int64(len(calls)), int64(frame), n.Before, n.After, int64(changeStep(change) + 3),
		int64(factor),
	} {
		p.columns[i] = binary.AppendUvarint(p.columns[i], uint64(v))
	}
	for _, c := range calls {
		p.node(c, false)
	}
}

func (p *diffPacker) frame(n *stacks.Node) int {
	key := diffFrame{n.Frame, n.Kind}
	i, known := p.frames[key]
	if !known {
		i = len(p.header.Frames.Name)
		p.frames[key] = i
		t := &p.header.Frames
		t.Name = append(t.Name, numbered(&p.header.Names, p.names, n.Frame.Name))
		t.Module = append(t.Module, numbered(&p.header.Modules, p.modules, n.Frame.Module))
		t.Kind = append(t.Kind, int(n.Kind))
		t.Line, t.Owner = append(t.Line, 0), append(t.Owner, 0)
	}
	return i
}

// numbered returns the index of a name in a list. It adds a new name in its visible form.
func numbered(list *[]string, index map[string]int, s string) int {
	i, known := index[s]
	if !known {
		i = len(*list)
		index[s] = i
		*list = append(*list, visible(s))
	}
	return i
}

// changeStep returns by how much a call grew (1 to 3) or shrank (-1 to -3) by more than chance: doubled or halved
// (3), by a quarter (2), or less (1).
func changeStep(c compare.NodeChange) int {
	if !c.Certain {
		return 0
	}
	step := 1
	switch a := math.Abs(math.Log2(c.Factor)); {
	case a >= 1:
		step = 3
	case a >= 0.32: // a quarter more
		step = 2
	}
	if c.Factor < 1 {
		return -step
	}
	return step
}
