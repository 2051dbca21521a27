package waits

import (
	"flag"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
)

var update = flag.Bool("update", false, "write what the checks say into the cases")

func TestCases(t *testing.T) {
	var all []*check.Check
	for _, stage := range []check.Stage{check.Path, check.Connections, check.Kernel, check.Limits, check.Runtime} {
		all = append(all, Checks(stage)...)
	}
	checktest.Cases(t, all, *update)
}
