package door

import (
	"strings"
	"testing"
)

// TestBudgetOfNames: symbols that share the end of one long name cannot expand in memory.
func TestBudgetOfNames(t *testing.T) {
	left := &TableBudget{symbols: 10, names: 3 * MaxName}
	names := NameTable{Data: []byte(strings.Repeat("x", 1<<20)), Left: left}
	kept := 0
	for i := range uint32(1000) {
		kept += len(names.At(i))
	}
	if kept != 3*MaxName {
		t.Errorf("%d bytes of names, want %d", kept, 3*MaxName)
	}
}
