package ebpf

import (
	"bufio"
	"bytes"
	"cmp"
	"debug/elf"
	"debug/gosym"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/stacks"
)

// A symbol is a function's name at its address.
type symbol struct {
	at   uint64
	end  uint64 // 0: unknown
	name string
}

// find gives the symbol that an address is in.
func find(list []symbol, at uint64) (symbol, bool) {
	i, exact := slices.BinarySearchFunc(list, at, func(s symbol, at uint64) int { return cmp.Compare(s.at, at) })
	if !exact {
		i--
	}
	if i < 0 || list[i].end != 0 && at >= list[i].end {
		return symbol{}, false
	}
	return list[i], true
}

// parseKallsyms reads /proc/kallsyms (kernel/kallsyms.c): address, type, name and module of each symbol; it keeps functions only.
func parseKallsyms(r io.Reader) ([]symbol, error) {
	list := make([]symbol, 0, 1<<16) // about half of the 120,000 lines of a distribution's kernel
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		address, rest, ok := bytes.Cut(sc.Bytes(), []byte{' '})
		kind, rest, ok2 := bytes.Cut(rest, []byte{' '})
		if !ok || !ok2 || len(kind) != 1 {
			return nil, fmt.Errorf("kallsyms: bad line %.80q", sc.Text())
		}
		if !bytes.ContainsAny(kind, "tTwW") {
			continue
		}
		at, err := strconv.ParseUint(string(address), 16, 64)
		if err != nil {
			return nil, fmt.Errorf("kallsyms: %w", err)
		}
		if at == 0 {
			continue // hidden from this user (kernel.kptr_restrict)
		}
		name, _, _ := bytes.Cut(rest, []byte{'\t'})
		list = append(list, symbol{at: at, name: string(name)})
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("kallsyms: %w", err)
	}
	slices.SortStableFunc(list, func(a, b symbol) int { return cmp.Compare(a.at, b.at) })
	return list, nil
}

// A mapping is a part of a file in a process's memory, from /proc/PID/maps (fs/proc/task_mmu.c).
type mapping struct {
	from, to, offset uint64
	path             string
}

// parseMaps keeps what is executable and of a file.
func parseMaps(r io.Reader) ([]mapping, error) {
	var list []mapping
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		fields := strings.Fields(sc.Text())
		if len(fields) < 5 {
			return nil, fmt.Errorf("maps: bad line %.80q", sc.Text())
		}
		if len(fields) < 6 || !strings.Contains(fields[1], "x") || !strings.HasPrefix(fields[5], "/") {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		m := mapping{path: fields[5]}
		var errs [3]error
		m.from, errs[0] = strconv.ParseUint(from, 16, 64)
		m.to, errs[1] = strconv.ParseUint(to, 16, 64)
		m.offset, errs[2] = strconv.ParseUint(fields[2], 16, 64)
		if err := errors.Join(errs[:]...); err != nil {
			return nil, fmt.Errorf("maps: %w", err)
		}
		list = append(list, m)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("maps: %w", err)
	}
	return list, nil
}

// An objectFile is the functions of an ELF file, and where its parts are loaded.
type objectFile struct {
	functions []symbol
	loads     []elf.ProgHeader
}

// maxSymbols bounds what is read of one file: libjvm.so has 120,000.
const maxSymbols = 1 << 20

// readBinary reads the symbol tables of an ELF file; a stripped one has only those of its dynamic symbols.
func readBinary(r io.ReaderAt) (*objectFile, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, err
	}
	b := &objectFile{}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			b.loads = append(b.loads, p.ProgHeader)
		}
	}
	for _, read := range []func() ([]elf.Symbol, error){f.Symbols, f.DynamicSymbols} {
		list, err := read()
		if errors.Is(err, elf.ErrNoSymbols) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, s := range list {
			if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Value != 0 && s.Name != "" && len(b.functions) < maxSymbols {
				b.functions = append(b.functions, symbol{at: s.Value, end: s.Value + max(s.Size, 1), name: s.Name})
			}
		}
	}
	if f.Section(".symtab") == nil {
		own, err := goFunctions(f)
		if err != nil {
			return nil, err
		}
		b.functions = append(b.functions, own...)
	}
	slices.SortStableFunc(b.functions, func(a, b symbol) int { return cmp.Compare(a.at, b.at) })
	return b, nil
}

// goFunctions reads the table that a Go program keeps for its own stack traces, also when it is stripped; nothing of other
// programs.
func goFunctions(f *elf.File) ([]symbol, error) {
	text := f.Section(".text")
	table := cmp.Or(f.Section(".gopclntab"), f.Section(".data.rel.ro.gopclntab")) // the latter of a position-independent program
	if text == nil || table == nil {
		return nil, nil
	}
	data, err := table.Data() // debug/elf bounds it by the file
	if err != nil {
		return nil, fmt.Errorf("table of Go functions: %w", err)
	}
	t, err := gosym.NewTable(nil, gosym.NewLineTable(data, text.Addr))
	if err != nil {
		return nil, fmt.Errorf("table of Go functions: %w", err)
	}
	var list []symbol
	for _, fn := range t.Funcs[:min(len(t.Funcs), maxSymbols)] {
		list = append(list, symbol{at: fn.Entry, end: fn.End, name: fn.Name})
	}
	return list, nil
}

// function names the function at an offset of the file.
func (b *objectFile) function(offset uint64) (string, bool) {
	for _, p := range b.loads {
		if offset >= p.Off && offset-p.Off < p.Filesz {
			s, ok := find(b.functions, offset-p.Off+p.Vaddr)
			return s.name, ok
		}
	}
	return "", false
}

// symbolizer names addresses. What it cannot name it says so.
type symbolizer struct {
	proc     string
	kernel   []symbol
	maps     map[uint32][]mapping
	binaries map[string]*objectFile
}

func newSymbolizer(proc string) (*symbolizer, error) {
	f, err := os.Open(filepath.Join(proc, "kallsyms"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := &symbolizer{proc: proc, maps: map[uint32][]mapping{}, binaries: map[string]*objectFile{}}
	s.kernel, err = parseKallsyms(f)
	return s, err
}

func (s *symbolizer) kernelFrame(at uint64) stacks.Frame {
	if sym, ok := find(s.kernel, at); ok {
		return stacks.Frame{Name: sym.name, Kind: stacks.Kernel}
	}
	return stacks.Frame{Name: "[unknown kernel function]", Kind: stacks.Kernel}
}

// userFrame names an address of a process by the file it is mapped from, through the process's own root.
func (s *symbolizer) userFrame(pid uint32, at uint64) stacks.Frame {
	for _, m := range s.mapsOf(pid) {
		if at < m.from || at >= m.to {
			continue
		}
		f := stacks.Frame{Name: "[unknown]", Module: filepath.Base(m.path), Kind: stacks.Native}
		if b := s.binaryOf(pid, m.path); b != nil {
			if name, ok := b.function(at - m.from + m.offset); ok {
				f.Name = name
			}
		}
		return f
	}
	return stacks.Frame{Name: "[unknown]", Kind: stacks.Unknown}
}

func (s *symbolizer) mapsOf(pid uint32) []mapping {
	if list, ok := s.maps[pid]; ok {
		return list
	}
	s.maps[pid] = nil // also when it has ended: its addresses stay unknown
	f, err := os.Open(s.pidPath(pid, "maps"))
	if err != nil {
		return nil
	}
	defer f.Close()
	list, err := parseMaps(f)
	if err == nil {
		s.maps[pid] = list
	}
	return s.maps[pid]
}

func (s *symbolizer) binaryOf(pid uint32, path string) *objectFile {
	file := s.pidPath(pid, "root") + path
	if b, ok := s.binaries[file]; ok {
		return b
	}
	s.binaries[file] = nil // what cannot be read, or is no ELF file, has no names
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	if b, err := readBinary(f); err == nil {
		s.binaries[file] = b
	}
	return s.binaries[file]
}

func (s *symbolizer) pidPath(pid uint32, name string) string {
	return filepath.Join(s.proc, strconv.FormatUint(uint64(pid), 10), name)
}
