package typecheck

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Code of C2, JDK 17.0.15 on x86-64, of a loop that asks objects for two interfaces in turn. In fast the class's memory
// is loaded (4c 8b 5e 20) and compared with one interface, then with the other; the jumps lead to slow, at whose end
// what the search found is written (48 89 46 20).
const (
	fast = "4c8b5e20" + "48b90004000001000000" + "4c3bd9" + "0f85e4000000" + "48b9100c000001000000" + "4c3bd9" +
		"0f855b010000" + "4983c001"
	slow = "48b8100c000001000000" + "488b7e28" + "8b0f" + "4883c708" + "4885c0" + "f248af" + "0f8504000000" +
		"48894620" + "0f84c2feffff"
)

const (
	base     = 0x7f457cadd000
	slowAt   = 4 + 10 + 3 + 6 + 0xe4 // where the first jump leads
	scasAt   = slowAt + 10 + 4 + 2 + 4 + 3
	longCode = 0x300
)

func code(t testing.TB) *Code {
	t.Helper()
	b := bytes.Repeat([]byte{0x90}, longCode) // nop
	for at, text := range map[int]string{0: fast, slowAt: slow} {
		part, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		copy(b[at:], part)
	}
	return &Code{Memory: memory{base, b}, Regions: []Region{{base, base + longCode}}}
}

// memory is bytes at an address.
type memory struct {
	base int64
	b    []byte
}

func (m memory) ReadAt(b []byte, at int64) (int, error) {
	if at < m.base {
		return 0, io.EOF
	}
	return bytes.NewReader(m.b).ReadAt(b, at-m.base)
}

func TestPlace(t *testing.T) {
	c := code(t)
	for name, tc := range map[string]struct {
		at   int
		want Place
	}{
		"the load of the memory":            {0, Compare},
		"where the wait for the line shows": {4, Compare},
		"the jump":                          {17, Compare},
		"after the jump":                    {23, Elsewhere}, // the second jump leads to nops
		"code without type checks":          {0x60, Elsewhere},
		"the load of the list":              {scasAt - 13, Search},
		"repne scasq":                       {scasAt, Search},
		"after it":                          {scasAt + 3, Search},
		"the write":                         {scasAt + 9, Write},
		"after the write":                   {scasAt + 13, Search},
		"past the search":                   {scasAt + 19, Elsewhere},
		"the last byte":                     {longCode - 1, Elsewhere},
		"past the region":                   {longCode, Elsewhere},
		"before the region":                 {-1, Elsewhere},
	} {
		got, err := c.Place(uint64(base + tc.at))
		if err != nil || got != tc.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, tc.want)
		}
	}
}

// TestGone: code that cannot be read is not reported as elsewhere.
func TestGone(t *testing.T) {
	c := code(t)
	c.Memory = memory{base, nil}
	if place, err := c.Place(base + scasAt); !errors.Is(err, ErrUnreadable) {
		t.Errorf("%q, %v", place, err)
	}
}

const maps = `559b1a37b000-559b1a37c000 r-xp 00001000 fe:00 10027527                   /opt/jdk/bin/java
7f4575000000-7f4575270000 rwxp 00000000 00:00 0 
7f4575270000-7f457c538000 ---p 00000000 00:00 0 
7f457c538000-7f457c7a8000 rwxp 00000000 00:00 0 
7f457cac7000-7f457cd37000 rwxp 00000000 00:00 0                          [anon:code]
7f4589e23000-7f4589e31000 r-xp 00004000 fe:00 10027751                   /opt/jdk/lib/libnet.so
7f458d6f9000-7f458d6fb000 r-xp 00000000 00:00 0                          [vdso]
7ffd1a000000-7ffd1a021000 rw-p 00000000 00:00 0                          [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
`

func TestParseRegions(t *testing.T) {
	got, err := ParseRegions(strings.NewReader(maps))
	want := []Region{
		{0x7f4575000000, 0x7f4575270000},
		{0x7f457c538000, 0x7f457c7a8000},
		{0x7f457cac7000, 0x7f457cd37000},
	}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%x, %v", got, err)
	}
	for text, want := range map[string]string{
		"1000-2000 rwxp 0 00:00 0\n7f45-7f46 rwxp\n":           "line 2: not a mapping",
		"1000-2000 rwxp 0 00:00 0\n1000-3000 rwxp 0 00:00 0\n": "0x1000 is below",
	} {
		if got, err := ParseRegions(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %x, %v, want %q", text, got, err, want)
		}
	}
}

func FuzzParseRegions(f *testing.F) {
	f.Add(maps)
	f.Add("1000-2000 rwxp 0 00:00 0\n1800-3000 rwxp 0 00:00 0\n")
	f.Fuzz(func(t *testing.T, text string) {
		regions, err := ParseRegions(strings.NewReader(text))
		if err != nil {
			return
		}
		last := uint64(0)
		for _, r := range regions {
			if r.Start >= r.End || r.Start < last {
				t.Errorf("%x", regions)
			}
			last = r.End
		}
	})
}

// FuzzPlace looks at each byte of code. No access may be out of bounds, and a place in a search has one near.
func FuzzPlace(f *testing.F) {
	seed, err := hex.DecodeString(fast + slow)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed, uint64(base))
	f.Add([]byte("\x74\x00\xf2\x48\xaf"), uint64(0))
	f.Add([]byte("\x0f\x85\x00\x00\x00\x80"), ^uint64(0)-8)
	f.Fuzz(func(t *testing.T, b []byte, at uint64) {
		at, b = min(at, 1<<62), b[:min(len(b), 1024)] // what lies above is the kernel's; each byte is looked at
		c := &Code{Memory: memory{int64(at), b}, Regions: []Region{{at, at + uint64(len(b))}}}
		if len(b) == 0 {
			c.Regions = nil
		}
		for i := range b {
			place, err := c.Place(at + uint64(i))
			if err != nil || !slices.Contains(Places(), place) {
				t.Fatalf("%x at %d: %q, %v", b, i, place, err)
			}
			if place != Elsewhere && !bytes.Contains(b, scas) {
				t.Fatalf("%x at %d: %s", b, i, place)
			}
		}
	})
}
