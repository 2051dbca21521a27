package signature

import (
	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
)

// JavaCode is the family of the signatures that find code in the profiles of a JVM, any of which may make most of the
// garbage.
const JavaCode = "Java code"

// GarbageEdges are the edges from the signatures of the table that may make most of the garbage.
func GarbageEdges() (out check.Causes) {
	for _, s := range builtIn() {
		if s.mayBeGarbage() {
			out = append(out, garbageEdge(s.Name))
		}
	}
	return out
}

// garbageEdge is the edge from the code that a signature finds to the collections that it makes.
func garbageEdge(signature string) check.Edge {
	return check.Edge{
		Cause: signature, Effect: "gc-overhead", If: evidence.MostGarbage, Family: JavaCode,
		Why: "most of what is collected was allocated there",
	}
}
