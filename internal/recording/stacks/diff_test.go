package stacks

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func profileOf(t *testing.T, lines ...string) *Profile {
	t.Helper()
	p, err := ParseText([]byte("event: cpu\nengine: x\ninterval: 1\nduration: 1s\nlost: 0\n\n" + strings.Join(
		lines, "\n") + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDiff(t *testing.T) {
	before := profileOf(t, `[];main.run:3_[n];main.tax:1_[n] 10 10`, `[];main.run:4_[n];main.tax:2_[n];k_[k] 5 5`,
		`[];main.run:3_[n];main.old_[j] 2 2`)
	after := profileOf(t, `[];main.run:3_[n];main.tax:9_[n] 30 30`, `[];main.run:3_[n];main.new\x0a\;x_[i] 1 1`,
		`[] 4 4`)
	var b strings.Builder
	both := Diff(before, after)
	root := both.Tree(0, 0)
	if err := both.WriteFolded(&b); err != nil {
		t.Fatal(err)
	}
	want := `main.run_[n];main.new?:x_[i] 0 1
main.run_[n];main.old_[j] 2 0
main.run_[n];main.tax_[n];k_[k] 5 0
main.run_[n];main.tax_[n] 10 30
[no stack] 0 4
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if root.Before != before.Total().Count || root.After != after.Total().Count {
		t.Errorf("the root has %d and %d samples", root.Before, root.After)
	}
}

// TestDiffIsSymmetric: the other way round it is the same tree with its columns exchanged.
func TestDiffIsSymmetric(t *testing.T) {
	x := profileOf(t, `[];m_[n];b_[n] 1 1`, `[];m_[n];a_[n] 2 2`)
	y := profileOf(t, `[];m_[n];c_[n] 3 3`, `[];m_[n];a_[n] 4 4`)
	xy, yx := Diff(x, y).Tree(0, 0), Diff(y, x).Tree(0, 0)
	var exchange func(*Node)
	exchange = func(n *Node) {
		n.Before, n.After = n.After, n.Before
		for _, c := range n.Calls {
			exchange(c)
		}
	}
	exchange(yx)
	if d := cmp.Diff(xy, yx); d != "" {
		t.Error(d)
	}
}
