package conventions

import (
	"go/ast"
	"slices"
)

// memoryCalls read or write another process's memory, and wait as long as it likes.
var memoryCalls = []string{"ProcessVMReadv", "ProcessVMWritev", "PtracePeekData", "PtracePeekText", "PtracePokeData"}

// memoryViolations are the places that read a process's memory without a helper. TestPaths finds those that open
// /proc/PID/mem.
func memoryViolations(files []file) []string {
	var bad []string
	for _, f := range files {
		if f.isTest() || f.pkg() == door {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains(memoryCalls, s.Sel.Name) {
				bad = append(bad, f.at(n.Pos())+": "+s.Sel.Name+": use door.Memory, which can be ended")
			}
			return true
		})
	}
	return bad
}
