package ebpf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// goProgram builds a small Go program, with the linker's flags.
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

// claim gives the file with another size in the header of a section, of the first with this type.
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

// TestHugeSymbolTable: attack 4, a file whose symbol table or names claim to be larger than memory.
func TestHugeSymbolTable(t *testing.T) {
	whole := goProgram(t, "")
	for _, kind := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_STRTAB} {
		_, err := readBinary(bytes.NewReader(claim(t, whole, kind, 8<<30)), door.NewTableBudget())
		if !errors.Is(err, door.ErrTooLarge) {
			t.Errorf("%v of 8 GiB: %v, want an error about its size", kind, err)
		}
	}
}

// TestGoFunctions compares the functions of a stripped Go program with those of its symbol table.
func TestGoFunctions(t *testing.T) {
	whole, err := readBinary(bytes.NewReader(goProgram(t, "")), door.NewTableBudget())
	if err != nil {
		t.Fatal(err)
	}
	stripped, err := readBinary(bytes.NewReader(goProgram(t, "-s -w")), door.NewTableBudget())
	if err != nil {
		t.Fatal(err)
	}
	names := func(b *objectFile) map[string]bool {
		out := map[string]bool{}
		for _, s := range b.functions {
			out[s.name] = true
		}
		return out
	}
	own := names(stripped)
	for _, want := range []string{"main.main", "runtime.mallocgc", "runtime.memmove"} {
		if !own[want] || !names(whole)[want] {
			t.Errorf("%s: %v in the stripped program, %v in the whole one", want, own[want], names(whole)[want])
		}
	}
	for _, s := range stripped.functions {
		if found, ok := find(stripped.functions, s.at); s.end <= s.at || !ok || found.at != s.at {
			t.Fatalf("%s is at %#x to %#x", s.name, s.at, s.end)
		}
	}
}

func FuzzReadable(f *testing.F) {
	for _, name := range []string{"_ZN1AcvT_cvT_IiEEv", "_ZN3foo3barEv", "_RNvCs1234_7mycrate3foo"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		text := newSymbolizer("/proc", nil).readable(1, door.Mapping{}, name)
		if len(text) > max(len(name), 4096+3) { // the library marks what it cut
			t.Fatalf("%d bytes of %d", len(text), len(name))
		}
	})
}
