package checks

import "github.com/perfdoctor/perfdoctor/internal/check"

func kernelChecks() []*check.Check {
	return []*check.Check{}
}
