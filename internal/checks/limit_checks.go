package checks

import "github.com/perfdoctor/perfdoctor/internal/check"

func limitChecks() []*check.Check {
	return []*check.Check{}
}
