package ebpf

import (
	"bytes"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/stacks"
)

// TestParseKallsyms reads lines of Linux 6.18.
func TestParseKallsyms(t *testing.T) {
	const text = `0000000000000000 A fixed_percpu_data
ffffffff81000000 T _text
ffffffff81000040 t __startup_64
ffffffff82a00000 D init_task
ffffffffc0a01000 t nf_conntrack_in	[nf_conntrack]
`
	list, err := parseKallsyms(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []symbol{
		{at: 0xffffffff81000000, name: "_text"},
		{at: 0xffffffff81000040, name: "__startup_64"},
		{at: 0xffffffffc0a01000, name: "nf_conntrack_in"},
	}
	if diff := cmp.Diff(want, list, cmp.AllowUnexported(symbol{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if s, ok := find(list, 0xffffffff81000047); !ok || s.name != "__startup_64" {
		t.Errorf("found %+v, %v", s, ok)
	}
	if s, ok := find(list, 0xffffffff80ffffff); ok {
		t.Errorf("below all symbols: found %+v", s)
	}
	for _, bad := range []string{"zz T _text\n", "ffffffff81000000\n"} {
		if _, err := parseKallsyms(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestParseMaps(t *testing.T) {
	const text = `55d0a1a00000-55d0a1a20000 r--p 00000000 fe:00 131 /usr/bin/my program
55d0a1a20000-55d0a1b00000 r-xp 00020000 fe:00 131 /usr/bin/sleep
7ffd0b5e5000-7ffd0b5e7000 r-xp 00000000 00:00 0 [vdso]
7f0000000000-7f0000001000 rwxp 00000000 00:00 0
`
	list, err := parseMaps(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []mapping{{from: 0x55d0a1a20000, to: 0x55d0a1b00000, offset: 0x20000, path: "/usr/bin/sleep"}}
	if diff := cmp.Diff(want, list, cmp.AllowUnexported(mapping{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := parseMaps(strings.NewReader("55d0-xyz r-xp 0 fe:00 131 /bin/sleep\n")); err == nil {
		t.Error("a bad address was taken")
	}
}

// TestUserFrame names a function of this program by an address in it.
func TestUserFrame(t *testing.T) {
	s := &symbolizer{proc: "/proc", maps: map[uint32][]mapping{}, binaries: map[string]*objectFile{}}
	pc, _, _, _ := runtime.Caller(0)
	got := s.userFrame(uint32(os.Getpid()), uint64(pc))
	if !strings.HasSuffix(got.Name, "TestUserFrame") || got.Kind != stacks.Native || got.Module == "" {
		t.Errorf("got %+v", got)
	}
	if got := s.userFrame(uint32(os.Getpid()), 1); got.Kind != stacks.Unknown {
		t.Errorf("address 1: %+v", got)
	}
}

func FuzzParseKallsyms(f *testing.F) {
	f.Add([]byte("ffffffff81000000 T _text\nffffffffc0a01000 t nf_conntrack_in\t[nf_conntrack]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parseKallsyms(bytes.NewReader(data))
		for i := 1; err == nil && i < len(list); i++ {
			if list[i-1].at > list[i].at {
				t.Fatal("not in order")
			}
		}
	})
}

func FuzzParseMaps(f *testing.F) {
	f.Add([]byte("55d0a1a20000-55d0a1b00000 r-xp 00020000 fe:00 131 /usr/bin/sleep\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parseMaps(bytes.NewReader(data))
		for _, m := range list {
			if err == nil && !strings.HasPrefix(m.path, "/") {
				t.Fatalf("%+v", m)
			}
		}
	})
}

func FuzzReadBinary(f *testing.F) {
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := readBinary(bytes.NewReader(data))
		if err == nil {
			b.function(uint64(len(data)))
		}
	})
}
