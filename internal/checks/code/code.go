// Package code holds the rules about the program itself that cannot be rows of package signature.
//
// Each rule is a file named after it, and refers to no other rule. What several rules read from a recording is in
// package evidence.
package code

import "github.com/perfdoctor/perfdoctor/internal/check"

// Checks returns the rules in the order in which a reader should take them.
func Checks() []*check.Check {
	return []*check.Check{
		typePollution,
		hotCode,
	}
}
