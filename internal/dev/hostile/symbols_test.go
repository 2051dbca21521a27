package hostile_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
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

// TestHugeSymbolTable is attack 4. A program's symbol table has 8 GiB. The report names the program and says why its
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

// TestMangledName is attack 8: one function's name lost the whole host's profile, and the exit code was 0.
func TestMangledName(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root, testenv.BPF)
	trap(t, nil, "mangled")
	saved := filepath.Join(t.TempDir(), "saved")
	const window = 2 * time.Second
	o := perfdoctor(t, window, "diagnose", "--duration", window.String(), "--save", saved)
	if _, err := os.Stat(filepath.Join(saved, "profiles", "host-cpu.pb.gz")); err != nil {
		t.Errorf("no profile of the host: %v\n%s%s", err, o.stdout, o.stderr)
	}
}

// heavyTables is an ELF file whose tables of symbols and names have 64 MiB each, as much as is read, in a hole.
func heavyTables(t *testing.T, path string) {
	t.Helper()
	const size, at, names = 64 << 20, 64 << 10, 4096
	text := "\x00.dynsym\x00.dynstr\x00.symtab\x00.shstrtab\x00"
	section := func(name int, kind elf.SectionType, offset, size uint64, link uint32) elf.Section64 {
		return elf.Section64{
			Name: uint32(name), Type: uint32(kind), Off: offset, Size: size, Link: link, Entsize: elf.Sym64Size,
		}
	}
	head := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1},
		Type:  uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Shoff: 64, Ehsize: 64, Shentsize: 64,
		Shnum: 5, Shstrndx: 4,
	}
	sections := []elf.Section64{
		{},
		section(1, elf.SHT_DYNSYM, at, size, 2),
		section(9, elf.SHT_STRTAB, at+size, size, 0),
		section(17, elf.SHT_SYMTAB, at, size, 2),
		section(25, elf.SHT_STRTAB, names, uint64(len(text)), 0),
	}
	var b bytes.Buffer
	for _, part := range []any{head, sections} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	b.Write(make([]byte, names-b.Len()))
	b.WriteString(text)
	if err := os.WriteFile(path, b.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, at+2*size); err != nil {
		t.Skipf("a sparse file: %v", err)
	}
}

// TestHeavyTables: processes have the names of a PostgreSQL server, Python and Node.js at once, with tables as large as
// are read. Three collectors look into them in parallel.
func TestHeavyTables(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root, testenv.BPF)
	dir := openDir(t)
	for _, name := range []string{"postgres", "libpython3.%d.so.1", "libnode.so.%d"} {
		for i := range 4 {
			heavyTables(t, filepath.Join(dir, strings.ReplaceAll(name, "%d", strconv.Itoa(i+8))))
		}
	}
	nobodys := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	diagnose(t, trap(t, nobodys, "files", dir))
}
