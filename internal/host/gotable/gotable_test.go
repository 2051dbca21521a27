package gotable

import (
	"debug/elf"
	"os"
	"reflect"
	"runtime"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// TestNamesWhenAsked: only the starts of functions are kept from a table. Names are charged as they are read.
func TestNamesWhenAsked(t *testing.T) {
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	f, err := elf.NewFile(file)
	if err != nil {
		t.Fatal(err)
	}
	table, err := Open(f, door.NewTableBudget())
	if err != nil {
		t.Fatal(err)
	}
	if len(table.known) > 0 || len(table.begins) < 1000 {
		t.Errorf("%d names and %d functions", len(table.known), len(table.begins))
	}
	at := uint64(reflect.ValueOf(TestNamesWhenAsked).Pointer())
	for range 2 {
		got, ok := table.Find(at + 1)
		if want := runtime.FuncForPC(uintptr(at)).Name(); !ok || got.Begin != at || got.Name != want {
			t.Errorf("%#x is in %+v (%v), want %s", at, got, ok, want)
		}
	}
	if len(table.known) != 1 {
		t.Errorf("%d names are known, want one", len(table.known))
	}
}
