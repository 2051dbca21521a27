package symbols

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestParseMaps(t *testing.T) {
	const text = `55d0a1a00000-55d0a1a20000 r--p 00000000 fe:00 131 /usr/bin/my program
55d0a1a20000-55d0a1b00000 r-xp 00020000 fe:00 131 /usr/bin/sleep
7ffd0b5e5000-7ffd0b5e7000 r-xp 00000000 00:00 0 [vdso]
7f0000000000-7f0000001000 rwxp 00000000 00:00 0
7f0000002000-7f0000003000 r-xp 00001000 fe:00 99                         /opt/my app/lib.so (deleted)
`
	list, err := parseMaps(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []door.Mapping{
		{Executable: true, From: 0x55d0a1a20000, To: 0x55d0a1b00000, Offset: 0x20000, Path: "/usr/bin/sleep"},
		{Executable: true, From: 0x7ffd0b5e5000, To: 0x7ffd0b5e7000, Path: "[vdso]"},
		{Executable: true, From: 0x7f0000000000, To: 0x7f0000001000},
		{
			Executable: true, From: 0x7f0000002000, To: 0x7f0000003000, Offset: 0x1000, Path: "/opt/my app/lib.so",
			Deleted: true,
		},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := parseMaps(strings.NewReader("55d0-xyz r-xp 0 fe:00 131 /bin/sleep\n")); err == nil {
		t.Error("a bad address was taken")
	}
}

// TestUserFrame names a function of this program by an address in it.
func TestUserFrame(t *testing.T) {
	s := New("/proc", nil)
	pc, _, _, _ := runtime.Caller(0)
	got := s.UserFrames(uint32(os.Getpid()), uint64(pc))[0]
	if !strings.HasSuffix(got.Name, "TestUserFrame") || got.Kind != stacks.Native || got.Module == "" {
		t.Errorf("got %+v", got)
	}
	if got := s.UserFrames(uint32(os.Getpid()), 1)[0]; got.Kind != stacks.Unknown {
		t.Errorf("address 1: %+v", got)
	}
}

// TestReadable demangles names of C++ and both manglings of Rust, and leaves C and Go alone.
func TestReadable(t *testing.T) {
	for mangled, want := range map[string]string{
		"_ZN13ObjectMonitor5enterEP10JavaThread": "ObjectMonitor::enter",
		"_ZN4core3fmt5write17h0123456789abcdefE": "core::fmt::write",
		"_RNvCs1234_7mycrate3foo":                "mycrate::foo",
		"__inet_hash_connect":                    "__inet_hash_connect",
		"main.(*server).handle":                  "main.(*server).handle",
		"_Z" + strings.Repeat("N", maxMangled):   "_Z" + strings.Repeat("N", maxMangled),
	} {
		if got := New("/proc", nil).readable(1, door.Mapping{}, mangled); got != want {
			t.Errorf("%s: %s, want %s", mangled, got, want)
		}
	}
}

// TestOpenInRoot follows no link out of a process's root, and does not wait for a FIFO.
func TestOpenInRoot(t *testing.T) {
	testenv.Need(t, testenv.Root)
	root, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("host"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.WriteFile(filepath.Join(root, "inside"), []byte("own"), 0o600),
		os.Symlink("/inside", filepath.Join(root, "link")),
		os.Symlink(outside, filepath.Join(root, "escape")), unix.Mkfifo(filepath.Join(root, "fifo"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	proc := t.TempDir() // a procfs of one process, whose root is a directory
	if err := os.MkdirAll(filepath.Join(proc, "7"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root, filepath.Join(proc, "7", "root")); err != nil {
		t.Fatal(err)
	}
	status := "Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n"
	if err := os.WriteFile(filepath.Join(proc, "7", "status"), []byte(status), 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(proc, nil)
	for path, want := range map[string]bool{"/inside": true, "/link": true, "/escape": false, "/fifo": false} {
		f, err := s.openInRoot(7, path)
		if err == nil {
			_, err = identify(f)
			_ = f.Close()
		}
		if got := err == nil; got != want {
			t.Errorf("%s: opened %v, want %v: %v", path, got, want, err)
		}
	}
}

// TestMapBudget is attack 13: all maps together have a bound, and what is left out is reported.
func TestMapBudget(t *testing.T) {
	var text bytes.Buffer
	for text.Len() < 15<<20 {
		fmt.Fprintf(&text, "%x 10 a method whose name is so long that its line has 80 bytes or more\n", text.Len())
	}
	s := New(t.TempDir(), nil)
	file := filepath.Join(t.TempDir(), "perf.map")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	take := func(pid uint32) error {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return s.takeMap(pid, f)
	}
	for pid := range uint32(2) {
		if err := take(pid); err != nil {
			t.Fatal(err)
		}
	}
	if err := take(2); err == nil || !strings.Contains(err.Error(), "with the maps of other processes") {
		t.Errorf("a third of 15 MiB: %v", err)
	}
	if err := os.Truncate(file, maxMapFile+1); err != nil {
		t.Fatal(err)
	}
	if err := take(3); err == nil || !strings.Contains(err.Error(), "read of one map") {
		t.Errorf("one that is too large: %v", err)
	}
	if len(s.compiled) != 2 {
		t.Errorf("%d maps were taken, want 2", len(s.compiled))
	}
}

func FuzzReadBinary(f *testing.F) {
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := readBinary(bytes.NewReader(data), door.NewTableBudget())
		if err == nil {
			b.function(uint64(len(data)))
			b.calls(uint64(len(data)))
		}
	})
}
