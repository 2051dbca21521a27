package ebpf

import (
	"bufio"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// A symbol is a function's name at its address.
type symbol struct {
	at   uint64
	end  uint64 // 0: unknown
	name string

	module string // of the kernel; empty of its core
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

// parseHex is strconv.ParseUint without a string.
func parseHex(b []byte) (n uint64, err error) {
	if len(b) == 0 || len(b) > 16 {
		return 0, errors.New("no address")
	}
	for _, c := range b {
		var digit byte
		switch {
		case c >= '0' && c <= '9':
			digit = c - '0'
		case c >= 'a' && c <= 'f':
			digit = c - 'a' + 10
		default:
			return 0, errors.New("no hexadecimal digit")
		}
		n = n<<4 | uint64(digit)
	}
	return n, nil
}

// A mapping is executable memory of a process, from /proc/PID/maps (fs/proc/task_mmu.c).
type mapping struct {
	from, to, offset uint64
	// of the file; "" of memory that no file is mapped to, where code is made at run time; or such as [vdso]
	path    string
	deleted bool // the path has no file any more, or another
}

// parseMaps keeps what is executable.
func parseMaps(r io.Reader) ([]mapping, error) {
	var list []mapping
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		m, executable, err := parseMapping(sc.Text())
		if err != nil {
			return nil, err
		}
		if executable {
			list = append(list, m)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("maps: %w", err)
	}
	return list, nil
}

func parseMapping(line string) (m mapping, executable bool, err error) {
	rest := line
	var fields [5]string // addresses, rights, offset, device, inode
	for i := range fields {
		fields[i], rest, _ = strings.Cut(strings.TrimLeft(rest, " "), " ")
	}
	if fields[4] == "" {
		return m, false, fmt.Errorf("maps: bad line %.80q", line)
	}
	if !strings.Contains(fields[1], "x") {
		return m, false, nil
	}
	from, to, _ := strings.Cut(fields[0], "-")
	var errs [3]error
	m.from, errs[0] = strconv.ParseUint(from, 16, 64)
	m.to, errs[1] = strconv.ParseUint(to, 16, 64)
	m.offset, errs[2] = strconv.ParseUint(fields[2], 16, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return m, false, fmt.Errorf("maps: bad line %.80q: %w", line, err)
	}
	m.path, m.deleted = strings.CutSuffix(strings.TrimLeft(rest, " "), " (deleted)")
	if strings.HasPrefix(m.path, "[anon:") || strings.HasPrefix(m.path, "//anon") ||
		strings.HasPrefix(m.path, "/memfd:") {
		m.path = "" // memory with a label
	}
	return m, true, nil
}

// An objectFile is the functions of an ELF file, and where its parts are loaded.
type objectFile struct {
	functions []symbol
	loads     []elf.ProgHeader
	buildID   string // of a stripped one, in hexadecimal digits
	chooses   bool   // it has functions that are chosen as it is loaded, and have no symbol of their own
	asked     bool   // about those
}

// readBinary reads the symbol tables of an ELF file; a stripped one has only those of its dynamic symbols.
func readBinary(r io.ReaderAt, left *door.TableBudget) (*objectFile, error) {
	f, err := door.ELF(r)
	if err != nil {
		return nil, err
	}
	b := &objectFile{loads: loadsOf(f)}
	if f.Section(".symtab") == nil {
		b.buildID = buildID(f)
	}
	for _, kind := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
		err := door.EachSymbol(f, kind, left, func(s door.Symbol) {
			b.chooses = b.chooses || s.Kind == elf.STT_GNU_IFUNC && s.Index != elf.SHN_UNDEF
			if s.Kind == elf.STT_FUNC && s.Value != 0 && s.Name != "" && left.Take() {
				b.functions = append(b.functions, symbol{at: s.Value, end: s.Value + max(s.Size, 1), name: s.Name})
			}
		})
		if err != nil {
			return nil, err
		}
	}
	if f.Section(".symtab") == nil {
		own, err := goFunctions(f, left)
		if err != nil {
			return nil, err
		}
		b.functions = append(b.functions, own...)
	}
	slices.SortStableFunc(b.functions, func(a, b symbol) int { return cmp.Compare(a.at, b.at) })
	return b, nil
}

// function gives the function at an offset of the file, and how far into it that is.
func (b *objectFile) function(offset uint64) (s symbol, into uint64, ok bool) {
	for _, p := range b.loads {
		if offset >= p.Off && offset-p.Off < p.Filesz {
			at := offset - p.Off + p.Vaddr
			s, ok = find(b.functions, at)
			return s, at - s.at, ok
		}
	}
	return symbol{}, 0, false
}
