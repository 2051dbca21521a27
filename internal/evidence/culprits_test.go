package evidence

import (
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// TestInsideAPackage: the application's line is to blame. The package's function in which it happens is named.
func TestInsideAPackage(t *testing.T) {
	prof := &stacks.Profile{Event: stacks.Script, Frames: []stacks.Frame{
		{Name: "JS:RegExp node:v8", Kind: stacks.Compiled},
		{Name: "JS:def /srv/app/node_modules/marked/lib/marked.cjs", Line: 722, Kind: stacks.Compiled},
		{Name: "JS:answer /srv/app/server.js", Line: 5, Kind: stacks.Compiled},
	}}
	for _, c := range []struct {
		stack  []int
		inside string
	}{
		{[]int{0, 1, 2}, "def (/srv/app/node_modules/marked/lib/marked.cjs:722)"},
		{[]int{0, 2}, ""},
	} {
		hits := []Hit{{Sample: stacks.Sample{Stack: c.stack, Value: 1, Count: 1}}}
		list := Culprits(prof, hotcode.Owners{}, hits, nil)
		if len(list) != 1 || list[0].Name() != "answer (/srv/app/server.js:5)" || list[0].Inside != c.inside {
			t.Errorf("stack %v: %+v, want it inside %q", c.stack, list, c.inside)
		}
	}
}
