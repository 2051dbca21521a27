package symbols

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// adder has a function of its own.
const adder = `__attribute__((noinline)) int seventy(int n) { return n + 70; }
int main(int argc, char **argv) { return seventy(argc); }
`

// TestDebugFile: the symbols of a program are in a file of their own, which is found by its build id. A file of another
// build is not read. The root of the process is a directory of the test.
func TestDebugFile(t *testing.T) {
	testenv.Need(t, testenv.Tool("gcc"), testenv.Tool("objcopy"))
	dir := t.TempDir()
	bin, debug, source := filepath.Join(dir, "adder"), filepath.Join(dir, "adder.debug"), filepath.Join(dir, "adder.c")
	check(t, os.WriteFile(source, []byte(adder), 0o600))
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	run("gcc", "-O1", "-Wl,--build-id", "-o", bin, source)
	whole := object(t, bin)
	want, ok := seventy(whole)
	if !ok {
		t.Fatal("the program has no function seventy")
	}
	run("objcopy", "--only-keep-debug", bin, debug)
	run("objcopy", "--strip-all", bin)
	stripped := object(t, bin)
	if _, ok := seventy(stripped); ok || len(stripped.buildID) != 40 {
		t.Fatalf("stripped it has %d functions and the build id %q", len(stripped.functions), stripped.buildID)
	}
	const pid = 7
	s := New(filepath.Join(dir, "proc"), nil)
	defer s.Close()
	place := filepath.Join(dir, "proc/7/root", debugDirectory, stripped.buildID[:2])
	check(t, os.MkdirAll(place, 0o755))
	status := fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", os.Geteuid())
	check(t, os.WriteFile(filepath.Join(dir, "proc/7/status"), []byte(status), 0o600))
	name := filepath.Join(place, stripped.buildID[2:]+".debug")
	run("cp", debug, name)
	s.addDebugSymbols(pid, stripped)
	if got, ok := seventy(stripped); !ok || got != want {
		t.Errorf("with its debug file seventy is at %#x (%v), want %#x", got, ok, want)
	}
	run("gcc", "-O0", "-Wl,--build-id", "-o", name, source) // another build
	other := object(t, bin)
	s.addDebugSymbols(pid, other)
	if _, ok := seventy(other); ok {
		t.Error("the debug file of another build was read")
	}
}

func object(t *testing.T, file string) *objectFile {
	t.Helper()
	f, err := os.Open(file)
	check(t, err)
	t.Cleanup(func() { _ = f.Close() })
	b, err := readBinary(f, door.NewTableBudget())
	check(t, err)
	return b
}

func seventy(b *objectFile) (uint64, bool) {
	for _, s := range b.functions {
		if b.nameOf(s) == "seventy" {
			return s.at, true
		}
	}
	return 0, false
}

// FuzzNotes: notes of a foreign file are read without a panic, and an id is never longer than the notes.
func FuzzNotes(f *testing.F) {
	f.Add([]byte("\x04\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00GNU\x00\xab\xcd\x00\x00"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\x03\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if id := noteOf(data, binary.LittleEndian); len(id) > 2*len(data) {
			t.Errorf("an id of %d digits in %d bytes", len(id), len(data))
		}
	})
}

// TestNotes: the seed of the fuzz target.
func TestNotes(t *testing.T) {
	if id := noteOf([]byte("\x04\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00GNU\x00\xab\xcd\x00\x00"),
		binary.LittleEndian); id != "abcd" {
		t.Errorf("id %q, want abcd", id)
	}
}
