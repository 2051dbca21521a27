// Package scenarios holds the faults and the healthy systems that perfdoctor is judged by, one directory each: a
// scenario.yaml (docs/scenarios.md) and a README.md.
package scenarios

import "embed"

// FS has the directories.
//
//go:embed */scenario.yaml */README.md
var FS embed.FS
