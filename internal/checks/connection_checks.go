package checks

import "github.com/perfdoctor/perfdoctor/internal/check"

func connectionChecks() []*check.Check {
	return []*check.Check{}
}
