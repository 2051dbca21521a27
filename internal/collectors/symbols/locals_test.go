package symbols

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// TestLocals names functions of the stripped C library through a program that uses them.
func TestLocals(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.Tool("gcc"))
	bin := filepath.Join(t.TempDir(), "locals")
	if out, err := exec.Command("gcc", "-O1", "-pthread", "-o", bin, "testdata/c/locals.c").
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pid, said := started(t, bin)
	s := New("/proc", nil)
	told := 0
	for line := ""; line != "end\n"; {
		var err error
		if line, err = said.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		var name string
		var at uint64
		if n, _ := fmt.Sscanf(line, "%s 0x%x", &name, &at); n != 2 {
			continue
		}
		told++
		if strings.Contains(name, "start") {
			at-- // a return address
		}
		got := s.UserFrames(pid, at)[0].Name
		if !slices.Contains(strings.Split(got, " or "), name) && !implements(got, name) {
			t.Errorf("%#x is %s, want %s", at, got, name)
		}
	}
	if told != 5 {
		t.Errorf("the program told %d addresses", told)
	}
}

// started runs a program that says "ready" until the test ends, and returns what else it says.
func started(t *testing.T, program string) (pid uint32, said *bufio.Reader) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program)
	_, err := cmd.StdinPipe() // the program waits for its end
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	said = bufio.NewReader(out)
	if line, err := said.ReadString('\n'); line != "ready\n" {
		t.Fatalf("%s said %q, %v", program, line, err)
	}
	return uint32(cmd.Process.Pid), said
}

// implements reports whether a name is that of one of the C library's implementations of a function, such as
// __memmove_avx512_unaligned_erms of memcpy. These names exist if the library's debug file is installed (libc6-dbg).
func implements(got, function string) bool {
	// One implementation serves both (sysdeps/x86_64/multiarch/memmove-vec-unaligned-erms.S), by either name.
	return strings.HasPrefix(got, "__"+function+"_") ||
		function == "memcpy" && strings.HasPrefix(got, "__memmove_")
}

// TestStartsOnARM finds the functions in which threads begin, in a library of the other architecture.
func TestStartsOnARM(t *testing.T) {
	testenv.Need(t, testenv.Tool("aarch64-linux-gnu-gcc"))
	path, err := exec.Command("aarch64-linux-gnu-gcc", "-print-file-name=libc.so.6").Output()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(strings.TrimSpace(string(path)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l, err := readLibrary(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range l.starts() {
		names = append(names, s.name)
		if at, ok := find(l.bounds, s.at); !ok || at.end() != s.end || s.end-s.at < 32 {
			t.Errorf("%+v", s)
		}
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"__libc_start_call_main", "start_thread"}, names); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestBase: a segment that begins within a page is mapped from the page's beginning on.
func TestBase(t *testing.T) {
	load := elf.ProgHeader{Off: 0x5a0b0, Vaddr: 0x15a0b0, Filesz: 0x1000}
	if got := base(door.Mapping{From: 0x7f000005a000, Offset: 0x5a000}, []elf.ProgHeader{load}); got != 0x7efffff00000 {
		t.Errorf("%#x", got)
	}
}

func TestUsualName(t *testing.T) {
	for want, names := range map[string][]string{
		"memcmp": {"bcmp", "__memcmpeq", "memcmp"}, "strchr": {"index", "strchr"}, "memcpy": {"memcpy"},
		"stpcpy": {"__stpcpy", "stpcpy"},
	} {
		if got := usualName(names); got != want {
			t.Errorf("%s of %v, want %s", got, names, want)
		}
	}
}

// TestCalls reads call instructions that objdump shows, backwards and forwards.
func TestCalls(t *testing.T) {
	var got []call
	add := func(c call) { got = append(got, c) }
	callsOfX86([]byte{0xe8, 0x2f, 0x74, 0x01, 0x00, 0x90, 0xe8, 0xcb, 0xfe, 0xff, 0xff}, 0x2724c, add)
	callsOfARM([]byte{0xcd, 0xd7, 0xff, 0x97, 0x1f, 0x20, 0x03, 0xd5, 0xcf, 0x02, 0x00, 0x94}, 0x7ebec, add)
	want := []call{{0x2724c, 0x3e680}, {0x27252, 0x27122}, {0x7ebec, 0x74b20}, {0x7ebf4, 0x7f730}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(call{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// smallLibrary is compiled with calls and a function that is chosen at load.
func smallLibrary(t testing.TB) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "small.so")
	cmd := exec.Command("gcc", "-shared", "-nostdlib", "-fPIC", "-O1", "-x", "c", "-o", file, "-")
	cmd.Stdin = strings.NewReader("static int one(void) { return 1; }\n" +
		"static void *choose(void) { return one; }\nint chosen(void) __attribute__((ifunc(\"choose\")));\n" +
		"void exit(int n) { for (;;); }\nint _setjmp(void) { return chosen(); }\nint __ctype_init(void) { return " +
		"_setjmp(); }\n" +
		"int __call_tls_dtors(void) { exit(1); return 2 * __ctype_init(); }\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func FuzzReadLibrary(f *testing.F) {
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	if _, err := exec.LookPath("gcc"); err == nil { // without a compiler the fuzzer has to find the rest
		library := smallLibrary(f)
		f.Add(library)
		// .eh_frame_hdr without .eh_frame
		f.Add(bytes.ReplaceAll(library, []byte(".eh_frame\x00"), []byte(".no_frame\x00")))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := readLibrary(bytes.NewReader(data))
		if err != nil {
			return
		}
		l.starts()
		for _, s := range l.chosen(l.ownSlots(0), bytes.NewReader(data), 0) {
			if s.name == "" || s.end < s.at {
				t.Fatalf("%+v", s)
			}
		}
	})
}
