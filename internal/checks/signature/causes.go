package signature

import (
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
)

// JavaCode is the family of the signatures that find code in the profiles of a JVM. Any of them may make most of the
// garbage.
const JavaCode = "Java code"

// GarbageEdges returns the edges from the signatures of the table whose code may make most of the garbage.
func GarbageEdges() (out check.Causes) {
	for _, s := range builtIn() {
		if s.mayBeGarbage() {
			out = append(out, garbageEdge(s.Name))
		}
	}
	return out
}

// garbageEdge is the edge from the code that a signature finds to the collections that the code causes.
func garbageEdge(signature string) check.Edge {
	return check.Edge{
		Cause: signature, Effect: "gc-overhead", If: evidence.MostGarbage, Family: JavaCode,
		Why: "most of what is collected was allocated there",
	}
}

// LockEdges returns the edges from the signatures of the table to the locks that their code waits for.
func LockEdges() (out check.Causes) {
	for _, s := range builtIn() {
		out = append(out, s.lockEdges()...)
	}
	return out
}

// lockEdges are the edges from Java code to the locks that it waits for: after its fix it runs less.
func (s *signature) lockEdges() (out check.Causes) {
	if !s.mayWait() {
		return nil
	}
	for _, effect := range []string{"monitor-contention", "lock-held"} {
		out = append(out, check.Edge{
			Cause: s.Name, Effect: effect, If: evidence.MostLockWaits, Family: JavaCode,
			Why: "the lock is waited for inside that code, which runs less after its fix",
		})
	}
	return out
}

// KnownCode is the family of the signatures that find code in CPU profiles. Any of them may be what the hottest
// function does.
const KnownCode = "code of a signature"

// HotCodeEdges returns the edges from the signatures of the table to the function that owns the CPU time, since they
// say more about it than its name, to the thread that it fills, and to the lock that Python holds meanwhile.
func HotCodeEdges() (out check.Causes) {
	for _, s := range builtIn() {
		out = append(out, s.hotCodeEdges()...)
	}
	return out
}

func (s *signature) hotCodeEdges() (out check.Causes) {
	if !s.measuresCPU() {
		return nil
	}
	if !slices.Contains(s.Explains, "hot-code") {
		out = append(out, check.Edge{
			Cause: s.Name, Effect: "hot-code", If: evidence.OwnsCPU, Family: KnownCode,
			Why: "it is what the hottest function does",
		})
	}
	out = append(out, check.Edge{
		Cause: s.Name, Effect: "single-thread-bound", If: evidence.OwnsCPU, Family: KnownCode,
		Why: "it is what the full thread does",
	})
	inPython := func(row *signature) bool { return row.Runs == "python" || row.Runs == "native" } // or in C below it
	if slices.ContainsFunc(s.rows(), inPython) {
		out = append(out, check.Edge{
			Cause: s.Name, Effect: "gil-contention", If: evidence.OwnsCPU, Family: KnownCode,
			Why: "it runs with the interpreter's lock in hand, which the other threads wait for",
		})
	}
	return out
}
