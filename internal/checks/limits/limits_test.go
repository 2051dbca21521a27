package limits

import (
	"flag"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
)

var update = flag.Bool("update", false, "write what the checks say into the cases")

func TestCases(t *testing.T) {
	// HITM events need precise memory sampling, which no collector has yet
	checktest.Cases(t, Checks(), *update, falseSharing.Name)
}
