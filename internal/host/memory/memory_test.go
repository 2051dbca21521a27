package memory

import (
	"errors"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

func TestReader(t *testing.T) {
	word := uint64(0x1122334455667788)
	read := Of(os.Getpid())
	got, err := read.Word(uint64(uintptr(unsafe.Pointer(&word))))
	if err != nil || got != word {
		t.Errorf("%#x, %v; want %#x", got, err, word)
	}
	if _, err := read.Word(8); !errors.Is(err, ErrNowhere) {
		t.Errorf("address 8: %v, want ErrNowhere", err)
	}
}

func TestParseMaps(t *testing.T) {
	const maps = `00400000-0041f000 r--p 00000000 fe:00 247702                             /usr/bin/python3.11
0041f000-006d2000 r-xp 0001f000 fe:00 247702                             /usr/bin/python3.11
7f0000000000-7f0000010000 r--p 00000000 fe:00 1                          /usr/lib/libpython3.9.so.1.0 (deleted)
7f0000020000-7f0000030000 r--p 00000000 fe:00 2                          /usr/lib/libc.so
7f0000060000-7f0000070000 r--p 00000000 fe:00 4                          /usr/lib/python3/dist-packages/x.so
7ffc00000000-7ffc00001000 rw-p 00000000 00:00 0                          [stack]
`
	python := func(base string) bool { return strings.Contains(base, "python") }
	got, err := parseMaps(strings.NewReader(maps), "/proc/7", python)
	if err != nil {
		t.Fatal(err)
	}
	want := []File{
		{"python3.11", "/proc/7", "map_files/400000-41f000", 0x400000},
		{"libpython3.9.so.1.0", "/proc/7", "map_files/7f0000000000-7f0000010000", 0x7f0000000000},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(File{})); diff != "" {
		t.Error(diff)
	}
	const damaged = "x-y r--p 00000000 fe:00 4 /usr/bin/python3.11\n"
	if _, err := parseMaps(strings.NewReader(damaged), "/proc/7", python); err == nil {
		t.Error("a line without addresses is no error")
	}
}

// mark is found by its symbol, in this program.
var mark = [2]uint64{0x5ec2e7, 1}

func TestSymbols(t *testing.T) {
	const name = "github.com/perfdoctor/perfdoctor/internal/host/memory.mark"
	files, err := Files("/proc/self", func(base string) bool { return strings.HasPrefix(base, "memory.test") })
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files of this program, %v", len(files), err)
	}
	at, err := files[0].Symbols(func(s string) bool { return s == name }, name)
	if err != nil {
		t.Fatal(err)
	}
	if want := uint64(uintptr(unsafe.Pointer(&mark))); at[name] != want && len(at) > 0 {
		t.Errorf("the symbol is at %#x, want %#x", at[name], want)
	}
	if len(at) == 0 {
		t.Skip("go test left the symbols out of this program")
	}
}
