// Package checks is the suite: the rules of all rooms in fix order, and what explains what among them. It has one
// room for each stage, with one file for each rule, and the table of signatures, whose rows are rules of the last two
// stages. It imports nothing that can see a host.
package checks

import (
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks/code"
	"github.com/perfdoctor/perfdoctor/internal/checks/connections"
	"github.com/perfdoctor/perfdoctor/internal/checks/kernel"
	"github.com/perfdoctor/perfdoctor/internal/checks/limits"
	"github.com/perfdoctor/perfdoctor/internal/checks/path"
	"github.com/perfdoctor/perfdoctor/internal/checks/runtime"
	"github.com/perfdoctor/perfdoctor/internal/checks/signature"
	"github.com/perfdoctor/perfdoctor/internal/checks/waits"
)

// Suite lists every check, in fix order.
func Suite() []*check.Check {
	return slices.Concat(
		path.Checks(), waits.Checks(check.Path),
		connections.Checks(), waits.Checks(check.Connections),
		kernel.Checks(), waits.Checks(check.Kernel),
		limits.Checks(), waits.Checks(check.Limits),
		runtime.Checks(), waits.Checks(check.Runtime), signature.Checks(check.Runtime),
		signature.Checks(check.Code), code.Checks(),
	)
}

// ParseSignatures reads signatures of a user's file as [signature.Parse] does, and adds them to the suite and its
// causes.
func ParseSignatures(file string, data []byte) ([]*check.Check, check.Causes, error) {
	return signature.Parse(file, data, Suite(), Causes())
}
