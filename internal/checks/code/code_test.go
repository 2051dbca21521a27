package code

import (
	"flag"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
)

var update = flag.Bool("update", false, "write what the checks say into the cases")

func TestCases(t *testing.T) {
	checktest.Cases(t, Checks(), *update)
}
