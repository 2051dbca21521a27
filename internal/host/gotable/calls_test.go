package gotable

import (
	"debug/elf"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

func openTable(t testing.TB, path string) *Table {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // it was read only
	table, err := Open(f, door.NewTableBudget())
	if err != nil || table == nil {
		t.Fatalf("%s: %v, %v", path, table, err)
	}
	return table
}

// TestCallsOfItself compares the innermost function and its line, at each address of this program, with what its own
// runtime says.
func TestCallsOfItself(t *testing.T) {
	table := openTable(t, "/proc/self/exe")
	inlined := 0
	for at := table.start; at < table.start+uint64(table.begins[len(table.begins)-1]); at += 7 {
		got := table.Calls(at)
		frame, _ := runtime.CallersFrames([]uintptr{uintptr(at) + 1}).Next() // it takes an address to return to
		next, _ := table.Find(at + 1)
		if len(got) == 0 || frame.Function == "" || next.Begin == at+1 {
			continue // between functions, or at the end of one
		}
		if want := (Call{frame.Function, frame.Line}); !sameCall(got[0], want) {
			t.Fatalf("at %#x: %+v, want %+v", at, got, want)
		}
		if len(got) > 1 {
			inlined++
		}
	}
	if inlined < 1000 {
		t.Errorf("%d addresses have an inlined function", inlined)
	}
}

// sameCall allows for the types of generic functions, which the runtime prints as [...].
func sameCall(got, want Call) bool {
	return got.Line == want.Line && (got.Name == want.Name || plain(got.Name) == plain(want.Name))
}

func plain(name string) string {
	if i := slices.Index([]byte(name), '['); i >= 0 {
		return name[:i]
	}
	return name
}

const program = `package main

import "os"

func inner(b []byte) byte { return b[len(os.Args)] }

func middle(b []byte) byte { return inner(b) + 1 }

//go:noinline
func outer(b []byte) byte {
	return middle(b) + 1
}

func main() { os.Exit(int(outer(make([]byte, 1)))) }
`

// TestCalls: a function was inlined into one that was inlined into a third, in programs with and without symbols, and
// in one that is relocated at start.
func TestCalls(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"-ldflags=-s -w"}, {"-buildmode=pie", "-ldflags=-s -w"}} {
		built := filepath.Join(dir, "program")
		build := exec.Command("go", slices.Concat([]string{"build", "-o", built}, flags, []string{source})...)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
		table := openTable(t, built)
		var deepest []Call
		for i := range len(table.begins) - 1 {
			for at := table.begins[i]; table.name(uint64(i)) == "main.outer" && at < table.begins[i+1]; at++ {
				if c := table.Calls(table.start + uint64(at)); len(c) > len(deepest) {
					deepest = c
				}
			}
		}
		want := []Call{{"main.inner", 5}, {"main.middle", 7}, {"main.outer", 11}}
		if diff := cmp.Diff(want, deepest); diff != "" {
			t.Errorf("%q: -want +got:\n%s", flags, diff)
		}
	}
}

// patched returns a file with some bytes written over.
type patched struct {
	io.ReaderAt
	at    int64
	bytes []byte
}

func (p patched) ReadAt(b []byte, off int64) (int, error) {
	n, err := p.ReaderAt.ReadAt(b, off)
	for i, x := range p.bytes {
		if at := p.at + int64(i) - off; at >= 0 && at < int64(n) {
			b[at] = x
		}
	}
	return n, err
}

// FuzzCalls: the owner of a program decides the content of its table.
func FuzzCalls(f *testing.F) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		f.Fatal(err)
	}
	defer self.Close()
	whole := openTable(f, "/proc/self/exe")
	where := int64(whole.file.Section(".gopclntab").Offset)
	f.Add(uint32(0), []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 1, 8}, uint32(100))
	f.Add(uint32(whole.functions+8), []byte{0xff, 0xff, 0xff, 0xff}, uint32(0))
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, offset uint32) {
		file, err := elf.NewFile(patched{self, where + int64(at), patch})
		if err != nil {
			return
		}
		table, err := Open(file, door.NewTableBudget())
		if err != nil || table == nil {
			return
		}
		if calls := table.Calls(table.start + uint64(offset)); len(calls) > maxDepth {
			t.Errorf("%d calls at an address", len(calls))
		}
	})
}
