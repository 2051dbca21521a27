package hostile_test

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// spinner builds a program that spins for a minute in main.spin.
func spinner(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "spinner")
	const text = `package main

import "time"

var n int

//go:noinline
func spin(until time.Time) {
	for time.Now().Before(until) {
		for i := 0; i < 1000000; i++ {
			n += i
		}
	}
}

func main() { spin(time.Now().Add(time.Minute)) }
`
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", program, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// growSymbols gives the program a symbol table of size bytes, all of them a hole behind its end.
func growSymbols(t *testing.T, program string, size int64) {
	t.Helper()
	f, err := os.OpenFile(program, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	end := (st.Size() + 4095) &^ 4095
	if err := f.Truncate(end + size); err != nil {
		t.Skipf("a sparse file of %d bytes: %v", size, err)
	}
	header := make([]byte, 64)
	if _, err := f.ReadAt(header, 0); err != nil {
		t.Fatal(err)
	}
	at := int64(binary.LittleEndian.Uint64(header[40:])) // e_shoff
	for range binary.LittleEndian.Uint16(header[60:]) {  // e_shnum
		section := make([]byte, 64)
		if _, err := f.ReadAt(section, at); err != nil {
			t.Fatal(err)
		}
		if elf.SectionType(binary.LittleEndian.Uint32(section[4:])) == elf.SHT_SYMTAB {
			binary.LittleEndian.PutUint64(section[24:], uint64(end))  // sh_offset
			binary.LittleEndian.PutUint64(section[32:], uint64(size)) // sh_size
			if _, err := f.WriteAt(section, at); err != nil {
				t.Fatal(err)
			}
			return
		}
		at += int64(len(section))
	}
	t.Fatal("no symbol table")
}

// TestHugeSymbolTable: attack 4. A program's symbol table has 8 GiB; the report names the program and says why its
// functions have no names.
func TestHugeSymbolTable(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root)
	program := spinner(t)
	growSymbols(t, program, 8<<30)
	victim := exec.Command(program)
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = victim.Process.Kill(); _ = victim.Wait() })
	for _, args := range [][]string{{"--pid", strconv.Itoa(victim.Process.Pid)}, nil} {
		o := perfdoctor(t, 2*time.Second, append([]string{"diagnose", "--duration", "2s"}, args...)...)
		if o.code != 0 && o.code != 3 || !strings.Contains(o.stdout, "PERFDOCTOR ITSELF") {
			t.Errorf("diagnose %v: exit code %d\n%s\n%s", args, o.code, o.stdout, o.stderr)
		}
	}
}
