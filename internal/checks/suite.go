// Package checks holds the rules of thumb, one file each. It imports nothing that can see a host.
package checks

import (
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
)

// Suite lists every check, in the order of the cure.
func Suite() []*check.Check {
	return slices.Concat(pathChecks(), connectionChecks(), kernelChecks(), limitChecks())
}
