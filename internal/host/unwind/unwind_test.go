package unwind

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// nested compiles the program that takes a dump of itself.
func nested(t testing.TB, flags ...string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "nested")
	args := append([]string{"-O2", "-fomit-frame-pointer", "-o", bin, "testdata/nested.c"}, flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return bin
}

// A process is what a walk needs of one: its code by address.
type process struct {
	t     testing.TB
	maps  []door.Mapping
	files map[string]*Table
}

func (p *process) find(pc uint64) (*Table, uint64, bool) {
	for _, m := range p.maps {
		if pc < m.From || pc >= m.To || !m.Executable || !strings.HasPrefix(m.Path, "/") {
			continue
		}
		table, known := p.files[m.Path]
		if !known {
			f, err := os.Open(m.Path)
			if err != nil {
				p.t.Fatal(err)
			}
			p.t.Cleanup(func() { _ = f.Close() })
			if table, err = Read(f); err != nil {
				p.t.Fatal(err)
			}
			p.files[m.Path] = table
		}
		at, ok := table.Address(pc - m.From + m.Offset)
		return table, at, ok
	}
	return nil, 0, false
}

// dumped runs the program, and reads its dump.
func dumped(t testing.TB, bin string, size int) (r Registers, stack []byte, p *process) {
	t.Helper()
	out, err := exec.Command(bin, strconv.Itoa(size)).Output()
	if err != nil {
		t.Fatal(err)
	}
	const whole = 8192
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(out[8*i:]) }
	p = &process{t: t, files: map[string]*Table{}}
	for m, err := range door.ParseMaps(bytes.NewReader(out[40+whole:])) {
		if err != nil {
			t.Fatal(err)
		}
		p.maps = append(p.maps, m)
	}
	return Registers{PC: word(0), SP: word(1), FP: word(2), LR: word(3)}, out[40 : 40+word(4)], p
}

// names returns the functions of the program itself. A function of another file has the name of its file.
func (p *process) names(bin string, addresses []uint64) (out []string) {
	f, err := elf.Open(bin)
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, pc := range addresses {
		i := slices.IndexFunc(p.maps, func(m door.Mapping) bool { return pc >= m.From && pc < m.To })
		if p.maps[i].Path != bin {
			out = append(out, filepath.Base(p.maps[i].Path))
			continue
		}
		at := pc - p.maps[i].From + p.maps[i].Offset // each segment lies at its offset here
		for _, s := range symbols {
			if elf.ST_TYPE(s.Info) == elf.STT_FUNC && at >= s.Value && at < s.Value+s.Size {
				out = append(out, s.Name)
			}
		}
	}
	return slices.Compact(out)
}

// TestWalk: the whole chain of a real program, with frames of all kinds, through the C library and back.
func TestWalk(t *testing.T) {
	testenv.Need(t, testenv.Tool("gcc"))
	for name, flags := range map[string][]string{
		"plain": nil, "keeps frame pointers": {"-fno-omit-frame-pointer"}, "for size": {"-Os"}, "unoptimised": {"-O0"},
	} {
		t.Run(name, func(t *testing.T) {
			bin := nested(t, flags...)
			r, stack, p := dumped(t, bin, 8192)
			addresses, whole := Walk(r, stack, p.find)
			got := p.names(bin, addresses)
			want := []string{"spin", "c", "b", "less", "libc.so.6", "a", "main", "libc.so.6"}
			if diff := cmp.Diff(want, got); diff != "" || !whole {
				t.Errorf("whole: %v, -want +got:\n%s", whole, diff)
			}
			if addresses[0] != r.PC {
				t.Errorf("the innermost is %#x, not %#x", addresses[0], r.PC)
			}
		})
	}
}

// TestWalkOnlySP: the frame pointer of a thread in a system call is not known. Functions that are left by it are found
// by their calls.
func TestWalkOnlySP(t *testing.T) {
	testenv.Need(t, testenv.Tool("gcc"))
	if runtime.GOARCH != "amd64" {
		t.Skip("calls of arm64 leave no return address on the stack")
	}
	for name, flag := range map[string]string{
		"keeps frame pointers": "-fno-omit-frame-pointer", "unoptimised": "-O0", "plain": "-O2",
	} {
		t.Run(name, func(t *testing.T) {
			r, stack, p := dumped(t, nested(t, flag), 8192)
			want, _ := Walk(r, stack, p.find)
			r.OnlySP, r.FP, r.LR = true, 0, 0
			got, whole := Walk(r, stack, p.find)
			if diff := cmp.Diff(want, got); diff != "" || !whole {
				t.Errorf("whole: %v, -by the frame pointer +by calls:\n%s", whole, diff)
			}
		})
	}
}

// TestWalkShort: a part of the stack gives the inner part of the chain, and says that it is a part.
func TestWalkShort(t *testing.T) {
	testenv.Need(t, testenv.Tool("gcc"))
	bin := nested(t)
	r, stack, p := dumped(t, bin, 300)
	addresses, whole := Walk(r, stack, p.find)
	if got := p.names(bin, addresses); whole || len(got) < 2 || got[0] != "spin" || got[len(got)-1] == "main" {
		t.Errorf("whole: %v, %v", whole, got)
	}
	nobody := func(uint64) (*Table, uint64, bool) { return nil, 0, true }
	if addresses, whole := Walk(r, stack, nobody); len(addresses) > 0 || whole {
		t.Errorf("of code without a table: %x, %v", addresses, whole)
	}
}

// TestFramePointers: the walk leaves code without a table by its frame pointer.
func TestFramePointers(t *testing.T) {
	testenv.Need(t, testenv.Tool("gcc"))
	if runtime.GOARCH == "arm64" {
		t.Skip("the frame pointer of arm64 does not say where the stack pointer was")
	}
	bin := nested(t, "-fno-omit-frame-pointer")
	r, stack, p := dumped(t, bin, 8192)
	whole, _ := Walk(r, stack, p.find)
	first := true
	addresses, ended := Walk(r, stack, func(pc uint64) (*Table, uint64, bool) {
		table, at, ok := p.find(pc)
		if first || !strings.Contains(strings.Join(p.names(bin, []uint64{pc}), ""), "libc") {
			first, table = false, map[bool]*Table{true: table}[first]
		}
		return table, at, ok
	})
	if diff := cmp.Diff(whole, addresses[:len(whole)]); diff != "" || !ended { // then _start
		t.Errorf("ended: %v, -by tables +by frame pointers:\n%s", ended, diff)
	}
}

// TestAsReadelf: each row of real files is as readelf reads it.
func TestAsReadelf(t *testing.T) {
	for gcc, flag := range map[string]string{
		"gcc": "-fcf-protection", "aarch64-linux-gnu-gcc": "-mbranch-protection=standard", // signs return addresses
	} {
		t.Run(gcc, func(t *testing.T) {
			testenv.Need(t, testenv.Tool(gcc), testenv.Tool("readelf"))
			frames := filepath.Join(t.TempDir(), "frames.so")
			args := []string{"-shared", "-nostdlib", "-fPIC", "-O2", flag, "-fasynchronous-unwind-tables", "-o", frames}
			out, err := exec.Command(gcc, append(args, "testdata/frames.c")...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			asReadelf(t, frames)
		})
	}
	t.Run("the C library", func(t *testing.T) {
		testenv.Need(t, testenv.Tool("gcc"), testenv.Tool("readelf"))
		library, err := exec.Command("gcc", "-print-file-name=libc.so.6").Output()
		if err != nil {
			t.Fatal(err)
		}
		asReadelf(t, nested(t), strings.TrimSpace(string(library)))
	})
}

// opened returns a file and its table, until the end of the test.
func opened(t *testing.T, file string) (*os.File, *Table) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	table, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return f, table
}

func asReadelf(t *testing.T, files ...string) {
	t.Helper()
	for _, file := range files {
		_, table := opened(t, file)
		rows, unlike := 0, 0
		eachRow(t, file, table.names, func(pc uint64, want string) {
			rows++
			got := "none"
			if r := table.rule(pc); r != nil {
				got = r.asReadelf(table.names)
			}
			if got != want && unlike < 10 {
				unlike++
				t.Errorf("%s at %#x: %s, readelf has %s", filepath.Base(file), pc, got, want)
			}
		})
		t.Logf("%s: %d rows", filepath.Base(file), rows)
		if rows < 20 {
			t.Errorf("%s: %d rows", file, rows)
		}
	}
}

// eachRow returns an address and what readelf says there of the frame's address, the frame pointer and the return
// address.
func eachRow(t *testing.T, file string, names registerNames, do func(pc uint64, want string)) {
	t.Helper()
	out, err := exec.Command("readelf", "--debug-dump=frames-interp", file).Output()
	if err != nil && len(out) == 0 { // it ends with 1 where the file of debugging symbols that one names is missing
		t.Fatal(err)
	}
	fp := map[uint64]string{6: "rbp", 29: "x29"}[names.fp]
	var columns []string
	function := false
	for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); {
		words := strings.Fields(sc.Text())
		switch {
		case len(words) > 3 && (words[3] == "FDE" || words[3] == "CIE"):
			function = words[3] == "FDE"
		case len(words) > 1 && words[0] == "LOC":
			columns = words
		case len(words) > 1 && words[1] == "ZERO":
			columns = nil
		case function && len(words) == len(columns) && len(words) > 1:
			pc, err := strconv.ParseUint(words[0], 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			row := map[string]string{fp: "u", "ra": "u"}
			for i, name := range columns {
				row[name] = words[i]
			}
			base, _, _ := strings.Cut(strings.ReplaceAll(row["CFA"], "-", "+"), "+")
			if !slices.Contains([]string{"rsp", "rbp", "sp", "x29"}, base) {
				row["CFA"] = "exp" // by another register, which is not followed
			}
			do(pc, row["CFA"]+" "+row[fp]+" "+row["ra"])
		}
	}
}

// asReadelf writes a rule as readelf does.
func (r *rule) asReadelf(names registerNames) string {
	frame := fmt.Sprintf("%s%+d", map[uint64][]string{
		6: {"exp", "rsp", "rbp"}, 29: {"exp", "sp", "x29"},
	}[names.fp][r.base], r.offset)
	if r.base == baseUnknown || r.loaded || r.stub != 0 {
		frame = "exp"
	}
	of := func(s saved) string {
		if s.how == savedAt {
			return fmt.Sprintf("c%+d", s.at)
		}
		return map[howSaved]string{savedNot: "u", savedLost: "u", savedUnknown: "exp"}[s.how]
	}
	return frame + " " + of(r.fp) + " " + of(r.ra)
}

// TestFunction: a function begins where its symbol says, for any address in it.
func TestFunction(t *testing.T) {
	testenv.Need(t, testenv.Tool("gcc"))
	f, table := opened(t, nested(t))
	e, err := elf.NewFile(f)
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := e.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Size == 0 || strings.HasPrefix(s.Name, "_") {
			continue
		}
		asked++
		for _, at := range []uint64{s.Value, s.Value + s.Size/2, s.Value + s.Size - 1} {
			if begin, ok := table.Function(at); !ok || begin != s.Value {
				t.Errorf("%s at %#x: it begins at %#x (%v), want %#x", s.Name, at, begin, ok, s.Value)
			}
		}
	}
	if begin, ok := table.Function(0); asked < 2 || ok {
		t.Errorf("%d functions; at address 0 there is one that begins at %#x (%v)", asked, begin, ok)
	}
}

// TestExpressions: expressions that are followed, and others.
func TestExpressions(t *testing.T) {
	names := registerNames{fp: 6, sp: 7, ra: 16}
	for text, want := range map[string]rule{
		"\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22": {base: baseSP, offset: 8, stub: 11},
		"\x76\x78\x06":                         {base: baseFP, offset: -8, loaded: true},
		"\x77\xc0\x00\x06\x23\x08":             {base: baseSP, offset: 64, loaded: true, added: 8},
		"\x77\x08":                             {}, // not loaded
		"\x76\x78\x06\x06":                     {},
		"\x73\x00\x06":                         {base: baseUnknown, loaded: true}, // of rbx
		"":                                     {},
		"\x77\x08\x80\x00\x3f\x1a\x2a\x33\x24": {},
	} {
		m := machine{names: names, common: &common{}}
		m.expression([]byte(text))
		if diff := cmp.Diff(want, m.row, cmp.AllowUnexported(rule{}, saved{})); diff != "" {
			t.Errorf("%x: -want +got:\n%s", text, diff)
		}
	}
}

// whatLies is a table over bytes at address 0x1000, the header of the sorted table first.
func whatLies(b []byte) *Table {
	return &Table{
		file: bytes.NewReader(b), names: registerNames{fp: 6, sp: 7, ra: 16}, address: 0x1000, entries: 4,
		loads: []elf.ProgHeader{{Vaddr: 0x1000, Filesz: uint64(len(b))}}, rules: map[uint64]*rule{},
	}
}

// FuzzRead reads any file, and any stack of a program that it belongs to.
func FuzzRead(f *testing.F) {
	f.Add([]byte("\x7fELF\x02\x01\x01"), uint64(0x1200), []byte("stack"))
	if _, err := exec.LookPath("gcc"); err == nil { // without a compiler the fuzzer has to find the rest
		b, err := os.ReadFile(nested(f))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint64(0x1200), bytes.Repeat([]byte{0x10, 0x12, 0, 0, 0, 0, 0, 0}, 64))
	}
	f.Fuzz(func(t *testing.T, data []byte, pc uint64, stack []byte) {
		table, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		walkOver(t, table, pc, stack)
	})
}

// FuzzFrames reads any header and entries.
func FuzzFrames(f *testing.F) {
	cie := "\x14\x00\x00\x00\x00\x00\x00\x00\x01zR\x00\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01\x00\x00\x00"
	fde := "\x10\x00\x00\x00\x1c\x00\x00\x00\xd0\xff\xff\xff\x40\x00\x00\x00\x00\x41\x0e\x10"
	head := "\x01\x1b\x03\x3b\x00\x00\x00\x00\x01\x00\x00\x00"
	f.Add([]byte(head+"\x00\x00\x00\x00\x24\x00\x00\x00"+cie[:len(cie)-8]+fde), uint64(0x1001), []byte("0123456789abcdef"))
	f.Fuzz(func(t *testing.T, data []byte, pc uint64, stack []byte) { walkOver(t, whatLies(data), pc, stack) })
}

func walkOver(t *testing.T, table *Table, pc uint64, stack []byte) {
	t.Helper()
	find := func(pc uint64) (*Table, uint64, bool) { return table, pc, pc != 1 }
	addresses, _ := Walk(Registers{PC: pc, SP: 0x7000, FP: 0x7010}, stack, find)
	if len(addresses) > MaxFrames || len(table.rules) > MaxFrames {
		t.Fatalf("%d frames, %d rules", len(addresses), len(table.rules))
	}
	if addresses, _ = Walk(Registers{PC: pc, SP: 0x7000, OnlySP: true}, stack, find); len(addresses) > MaxFrames {
		t.Fatalf("%d frames without a frame pointer", len(addresses))
	}
}

// TestBounds: a file costs what its entries need, whatever it claims.
func TestBounds(t *testing.T) {
	for name, size := range map[string]uint32{
		"too long": maxEntry + 1, "of 64 bits": 0xffffffff, "past the end": maxEntry,
	} {
		b := make([]byte, 64)
		binary.LittleEndian.PutUint32(b[16:], 32) // the first function's entry
		binary.LittleEndian.PutUint32(b[32:], size)
		if r := whatLies(b).rule(0x1000); r != nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	m := machine{names: registerNames{}, common: &common{codeUnit: 1}, pc: 1}
	m.run(cursor{rest: bytes.Repeat([]byte{opRemember}, maxStates+1)})
	if !m.failed {
		t.Errorf("%d states are remembered", len(m.states))
	}
}

// BenchmarkWalk walks through eleven functions of three kinds, whose rules are known.
func BenchmarkWalk(b *testing.B) {
	testenv.Need(b, testenv.Tool("gcc"))
	r, stack, p := dumped(b, nested(b), 8192)
	for b.Loop() {
		if addresses, whole := Walk(r, stack, p.find); !whole || len(addresses) < 8 {
			b.Fatalf("%d frames, whole: %v", len(addresses), whole)
		}
	}
}

// BenchmarkRule measures what is read of a file for a place that is new.
func BenchmarkRule(b *testing.B) {
	testenv.Need(b, testenv.Tool("gcc"))
	r, _, p := dumped(b, nested(b), 8192)
	table, at, _ := p.find(r.PC)
	for b.Loop() {
		clear(table.rules)
		if table.rule(at) == nil {
			b.Fatal("no rule")
		}
	}
}
