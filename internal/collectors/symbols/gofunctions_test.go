package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/host/gotable"
)

// goProgram builds a small Go program with the linker's flags.
func goProgram(t *testing.T, flags string) []byte {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() { println(1) }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "program")
	build := exec.Command("go", "build", "-ldflags", flags, "-o", program, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// claim returns the file with another size in the header of the first section of this type.
func claim(t *testing.T, data []byte, kind elf.SectionType, size uint64) []byte {
	t.Helper()
	data = bytes.Clone(data)
	table := data[binary.LittleEndian.Uint64(data[40:]):] // e_shoff of Elf64_Ehdr
	for header := table; len(header) >= 64; header = header[64:] {
		if elf.SectionType(binary.LittleEndian.Uint32(header[4:])) == kind { // sh_type of Elf64_Shdr
			binary.LittleEndian.PutUint64(header[32:], size) // sh_size
			return data
		}
	}
	t.Fatalf("no section of type %v", kind)
	return nil
}

// TestHugeSymbolTable is attack 4: a file whose symbol table or names claim to be larger than memory.
func TestHugeSymbolTable(t *testing.T) {
	whole := goProgram(t, "")
	for _, kind := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_STRTAB} {
		_, err := readBinary(bytes.NewReader(claim(t, whole, kind, 8<<30)), door.NewTableBudget())
		if !errors.Is(err, door.ErrTooLarge) {
			t.Errorf("%v of 8 GiB: %v, want an error about its size", kind, err)
		}
	}
}

// TestGoFunctions compares the functions of a stripped Go program, asked for by address, with its symbol table.
func TestGoFunctions(t *testing.T) {
	whole, err := readBinary(bytes.NewReader(goProgram(t, "")), door.NewTableBudget())
	if err != nil {
		t.Fatal(err)
	}
	stripped, err := readBinary(bytes.NewReader(goProgram(t, "-s -w")), door.NewTableBudget())
	if err != nil {
		t.Fatal(err)
	}
	if stripped.table == nil || len(stripped.functions) > 0 {
		t.Fatalf("the stripped program has the table %v, and %d symbols", stripped.table, len(stripped.functions))
	}
	for _, want := range whole.functions {
		name := whole.nameOf(want)
		if name == "runtime.text" || name == "runtime.etext" { // the linker's marks
			continue
		}
		// The symbol table has a suffix for assembly, and writes the middle dot as a dot.
		name = strings.TrimSuffix(name, ".abi0")
		got, ok := stripped.table.Find((want.at + want.end()) / 2)
		if !ok || got.Begin != want.at || strings.ReplaceAll(got.Name, "·", ".") != name {
			t.Errorf("%s at %#x is %+v (%v) in the stripped program", name, want.at, got, ok)
		}
	}
	for _, at := range []uint64{0, whole.functions[0].at - 1, 1<<32 + whole.functions[0].at, 1<<64 - 1} {
		if got, ok := stripped.table.Find(at); ok {
			t.Errorf("%#x, which is in no function, is in %+v", at, got)
		}
	}
}

// TestHeldFiles: if there are more programs than files may stay open, the last ones have no names, and the recording
// says so.
func TestHeldFiles(t *testing.T) {
	s := New("/proc", nil)
	defer s.Close()
	for i := range maxHeldFiles + 1 {
		f, err := os.Open(os.Args[0])
		if err != nil {
			t.Fatal(err)
		}
		b := &objectFile{table: &gotable.Table{}}
		b = s.hold(door.Mapping{Path: "/bin/go"}, f, b)
		if want := i < maxHeldFiles; (b != nil) != want || (f.Fd() != ^uintptr(0)) != want {
			t.Errorf("file %d: its table is kept: %v; it is open: %v", i, b != nil, f.Fd() != ^uintptr(0))
		}
	}
	if all := noted(s); len(all) != 1 || !strings.Contains(all[0], "at most 256") {
		t.Errorf("the recording says %q", all)
	}
}

func FuzzReadable(f *testing.F) {
	for _, name := range []string{"_ZN1AcvT_cvT_IiEEv", "_ZN3foo3barEv", "_RNvCs1234_7mycrate3foo"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		text := New("/proc", nil).readable(1, door.Mapping{}, name)
		if len(text) > max(len(name), 4096+3) { // the library marks what it cut
			t.Fatalf("%d bytes of %d", len(text), len(name))
		}
	})
}
