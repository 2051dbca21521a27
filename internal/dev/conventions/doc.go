// Package conventions tests rules for the whole repository that no linter knows: which package may import which, how
// packages are named, where the program may exit, and that every dependency is pinned.
//
// Each rule is a function from files to violations. It is run twice: on this repository, which must have none, and
// on a small bad example in testdata, which must have exactly those written there.
package conventions
