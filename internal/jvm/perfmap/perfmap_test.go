package perfmap

import (
	"bytes"
	"debug/elf"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

func TestParse(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []Entry
	}{
		{"nothing", "", nil},
		// Compiler.perfmap of JDK 17 and 25.
		{
			"names of HotSpot",
			"0x00007f3d454001a0 0x0000000000000110 int java.lang.String.indexOf(java.lang.String, int)\n" +
				"0x7f3d45400560 0x330 StubRoutines (1)\n7f3d45400b20 10 I2C/C2I adapters(0xb)\n" +
				"7f3d45400f00 10 void A$$Lambda/0x00007f.run()\n",
			[]Entry{
				{0x7f3d454001a0, 0x110, "java.lang.String.indexOf"},
				{0x7f3d45400560, 0x330, "StubRoutines (1)"},
				{0x7f3d45400b20, 0x10, "adapters"},
				{0x7f3d45400f00, 0x10, "A$$Lambda/0x00007f.run"},
			},
		},
		{"order, empty range", "20 8 b\n10 8 a\n18 0 none\n", []Entry{{0x10, 8, "a"}, {0x20, 8, "b"}}},
		{
			"nested", "10 30 outer\n18 8 inner\n28 8 other\n", []Entry{
				{0x10, 8, "outer"}, {0x18, 8, "inner"}, {0x20, 8, "outer"}, {0x28, 8, "other"}, {0x30, 0x10, "outer"},
			},
		},
		{"nested at the beginning", "10 8 inner\n10 30 outer\n", []Entry{{0x10, 8, "inner"}, {0x18, 0x28, "outer"}}},
		{"overlapping", "10 10 a\n18 10 b\n", []Entry{{0x10, 8, "a"}, {0x18, 0x10, "b"}}},
		{"last address", "fffffffffffffff0 f x\n", []Entry{{0xfffffffffffffff0, 0xf, "x"}}},
		{"control characters", "10 8 a\x1b[2Jb\u009bc\xff\n", []Entry{{0x10, 8, "a_[2Jb_c_"}}},
	} {
		m, err := Parse(strings.NewReader(test.text))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if diff := cmp.Diff(test.want, m.Entries,
			cmp.Transformer("nil", func(e []Entry) []Entry { return append([]Entry{}, e...) })); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
	for _, bad := range []string{
		"10\n", "10 8\n", "10 8 \n", "x 8 a\n", "10 y a\n", "\n", "-1 8 a\n", "10 8 a\n10\n",
		"fffffffffffffff0 20 a\n", strings.Repeat("x", maxLine+1),
	} {
		if m, err := Parse(strings.NewReader(bad)); err == nil {
			t.Errorf("%.20q: %v", bad, m.Entries)
		}
	}
}

func TestFind(t *testing.T) {
	m := &Map{[]Entry{{0x10, 8, "a"}, {0x20, 8, "b->c"}}}
	for address, want := range map[uint64]string{
		0: "", 0xf: "", 0x10: "a", 0x17: "a", 0x18: "", 0x20: "b->c",
		0x27: "b->c", 0x28: "", ^uint64(0): "",
	} {
		got, ok := m.Find(address)
		if got.Name != want || ok != (want != "") {
			t.Errorf("%#x: %q, %t", address, got.Name, ok)
		}
	}
	if diff := cmp.Diff([]string{"c", "b"}, m.Entries[1].Frames()); diff != "" {
		t.Error(diff)
	}
}

// Whatever overlaps, each address belongs to the last of the entries that hold it, by beginning and then by size.
func TestFlattenAgreesWithSearch(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var all []Entry
		for i := range random.IntN(8) {
			all = append(all, Entry{random.Uint64N(20), 1 + random.Uint64N(10), string(rune('a' + i))})
		}
		m := &Map{flatten(append([]Entry{}, all...))}
		for address := range uint64(32) {
			want := Entry{}
			for _, e := range all {
				if address >= e.Start && address < e.End() && (want.Size == 0 || e.Start > want.Start ||
					(e.Start == want.Start && e.Size < want.Size)) {
					want = e
				}
			}
			got, _ := m.Find(address)
			if got.Name != want.Name && !sameRange(all, got.Name, want) {
				t.Fatalf("%v at %d: %q, want %q; flat: %v", all, address, got.Name, want.Name, m.Entries)
			}
		}
	}
}

// sameRange says that the entry with this name is as good an answer as want: they have the same range.
func sameRange(all []Entry, name string, want Entry) bool {
	for _, e := range all {
		if e.Name == name {
			return e.Start == want.Start && e.Size == want.Size
		}
	}
	return false
}

func FuzzParse(f *testing.F) {
	f.Add("0x10 0x30 void a.B.c(int)\n18 8 inner\n")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		var last uint64
		for _, e := range m.Entries {
			if e.Start < last || e.Size == 0 || e.Name == "" {
				t.Fatalf("%v", m.Entries)
			}
			last = e.End()
		}
		var out bytes.Buffer
		if _, err := m.WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		again, err := Parse(&out)
		if err != nil {
			t.Fatalf("its own output: %v", err)
		}
		if len(again.Entries) != len(m.Entries) {
			t.Errorf("read back %d entries of %d", len(again.Entries), len(m.Entries))
		}
	})
}

// The agent is for this architecture, needs no library and no symbol, and its stack is not executable.
func TestAgent(t *testing.T) {
	f, err := elf.NewFile(bytes.NewReader(Agent()))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	if f.Type != elf.ET_DYN || f.Machine != machine {
		t.Errorf("%v for %v", f.Type, f.Machine)
	}
	if libraries, err := f.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Errorf("needs %v, %v", libraries, err)
	}
	if symbols, err := f.ImportedSymbols(); err != nil || len(symbols) > 0 {
		t.Errorf("needs %v, %v", symbols, err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil || len(symbols) != 1 || symbols[0].Name != "Agent_OnAttach" {
		t.Errorf("offers %v, %v", symbols, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_GNU_STACK && p.Flags&elf.PF_X != 0 {
			t.Error("its stack is executable")
		}
	}
	if len(AgentID()) != 8 {
		t.Errorf("id %q", AgentID())
	}
}

// The committed objects come from the committed source.
func TestAgentIsFresh(t *testing.T) {
	testenv.Need(t, testenv.Tool("bash"))
	check := exec.Command("bash", "-c",
		`cd agent && [[ $(sed -n 's/^source: //p' sums) == $(cat agent.c build.sh | sha256sum | cut -d ' ' -f 1) ]] && grep -v : sums | sha256sum --check`)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("run make generate: %v\n%s", err, out)
	}
}
