// Package code holds the rules about the program itself, where no row of package signature can tell.
//
// A rule is a file, named after it. It refers to no other rule: what several read of a recording is in package
// evidence.
package code

import "github.com/perfdoctor/perfdoctor/internal/check"

// Checks gives the rules in the order in which a reader should take them.
func Checks() []*check.Check {
	return []*check.Check{
		typePollution,
		hotCode,
	}
}
