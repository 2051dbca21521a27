package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
)

// TestWaitsOfScripts: where threads of Python and .NET wait is a function of the program, not one of machine code.
func TestWaitsOfScripts(t *testing.T) {
	for name, want := range map[string]struct {
		wait   hotcode.Wait
		method string
	}{
		"pool-stuck/firing-python-lock": {hotcode.ForLock, ".py"},
		"pool-stuck/firing-starved":     {hotcode.ForFuture, "D+<Serve>c__async1.MoveNext"},
	} {
		list := waitsOf(checktest.Open(t, name))
		if !slices.ContainsFunc(list, func(w Wait) bool {
			return w.For == want.wait && strings.Contains(w.Method, want.method)
		}) {
			t.Errorf("%s: no wait for %s in a function of %s: %v", name, want.wait, want.method, list)
		}
	}
}
