// Package python reads what the threads of a CPython interpreter run: the functions of its scripts, by name, file and
// line. It reads the memory of the process from outside (process_vm_readv(2)), with the right to trace it: nothing is
// attached, stopped or written.
//
// A thread runs on while its frames are read, so each is checked to be one, and a stack that came apart is given up
// ([ErrChanged]). Everything has a bound, as whoever owns the process owns what it holds.
package python

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// ErrNone says that a process is no CPython interpreter.
var ErrNone = errors.New("it is no CPython interpreter")

// A Process is a CPython interpreter. It is not safe for use by several at once.
type Process struct {
	Version Version

	read     memory
	layout   layout
	runtime  uint64 // address of _PyRuntime
	codeType uint64 // address of PyCode_Type
	codes    map[uint64]*code
	tables   int // bytes that the lines of codes take
	block    block
	look     int    // how often threads were listed
	tidAt    uint64 // offset of a thread's id in its struct pthread, once it is known
}

// interpreterFile matches the names of the files that an interpreter is in: a library, or the program itself.
var interpreterFile = regexp.MustCompile(`^(?:libpython([23])\.([0-9]{1,2})[a-z]*\.so[.0-9]*|` +
	`python(?:([23])(?:\.([0-9]{1,2}))?)?[a-z]*)$`)

// Open looks into the process whose directory in /proc is dir. The error is [ErrNone] for what is no interpreter;
// others say why one cannot be read.
func Open(dir string, pid int) (*Process, error) {
	files, err := interpreters(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files { // a library comes first: the program that loads it has no interpreter in itself
		p := &Process{Version: f.version, read: memoryOf(pid), codes: map[uint64]*code{}}
		err := p.find(dir, f)
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, ErrNone) {
			return nil, fmt.Errorf("%s: %w", path.Base(f.name), err)
		}
	}
	return nil, ErrNone
}

// An interpreter is a mapped file that may hold one, where it begins.
type interpreter struct {
	name, link string // link is below /proc/PID
	from       uint64
	version    Version // 0.0 where the name does not say
}

func interpreters(dir string) ([]interpreter, error) {
	maps, err := door.Maps(dir)
	if err != nil {
		return nil, err
	}
	defer maps.Close()
	return parseMaps(maps)
}

// parseMaps finds the first mapping of each file that may hold an interpreter, libraries first.
func parseMaps(r io.Reader) (list []interpreter, err error) {
	for m, err := range door.ParseMaps(r) {
		if err != nil {
			return nil, fmt.Errorf("maps: %w", err)
		}
		match := interpreterFile.FindStringSubmatch(path.Base(m.Path))
		if match == nil || !strings.HasPrefix(m.Path, "/") || m.Offset != 0 { // not where the file begins
			continue
		}
		f := interpreter{ // map_files has the addresses without leading zeros (proc(5))
			name: m.Path, link: fmt.Sprintf("map_files/%x-%x", m.From, m.To), from: m.From,
			version: versionOf(match[1:]),
		}
		if match[1] != "" {
			list = append([]interpreter{f}, list...)
		} else {
			list = append(list, f)
		}
		if len(list) == maxInterpreters {
			break
		}
	}
	return list, nil
}

// maxInterpreters bounds the mappings that are looked into: a process has a program and a library.
const maxInterpreters = 8

// versionOf reads the numbers in a file's name: those of a library, or those of a program.
func versionOf(numbers []string) (v Version) {
	for i := 0; i < len(numbers); i += 2 {
		if numbers[i+1] == "" {
			continue
		}
		v.Major, _ = strconv.Atoi(numbers[i]) // digits, as they matched
		v.Minor, _ = strconv.Atoi(numbers[i+1])
	}
	return v
}

// find looks up where the interpreter's data lie, and how they are laid out.
func (p *Process) find(dir string, f interpreter) error {
	file, err := door.OpenMagic(dir, f.link)
	if err != nil {
		return err
	}
	defer file.Close()
	object, err := door.ELF(file)
	if err != nil {
		return err
	}
	if object.Class != elf.ELFCLASS64 || object.Data != elf.ELFDATA2LSB {
		return errors.New("it is no program of 64 bits, the lowest byte first")
	}
	at, err := symbols(object, "_PyRuntime", "PyCode_Type", "Py_Version")
	if err != nil {
		return err
	}
	bias := f.from - base(object)
	if at["_PyRuntime"] == 0 || at["PyCode_Type"] == 0 {
		return ErrNone
	}
	p.runtime, p.codeType = at["_PyRuntime"]+bias, at["PyCode_Type"]+bias
	version := uint64(0)
	if at["Py_Version"] != 0 { // since 3.11
		version = at["Py_Version"] + bias
	}
	return p.choose(version)
}

// choose takes the layout that the interpreter describes itself, or that of its version, which is at an address since
// 3.11.
func (p *Process) choose(version uint64) error {
	text := make([]byte, described)
	if err := p.read(p.runtime, text); err != nil {
		return err
	}
	if string(text[:len(cookie)]) == cookie {
		var err error
		p.layout, p.Version, err = describedLayout(text)
		return err
	}
	if version != 0 {
		number, err := p.read.word(version)
		if err != nil {
			return err
		}
		p.Version = Version{int(number >> 24 & 0xff), int(number >> 16 & 0xff)}
	}
	l, known := layoutOf(p.Version)
	if !known {
		return fmt.Errorf("CPython %s is not known: 3.8 to 3.14 are", p.Version)
	}
	p.layout = l
	return nil
}

// symbols gives the values of data that a file exports, or has a symbol for.
func symbols(f *elf.File, names ...string) (map[string]uint64, error) {
	out := map[string]uint64{}
	for _, kind := range []elf.SectionType{elf.SHT_DYNSYM, elf.SHT_SYMTAB} {
		err := door.EachSymbol(f, kind, door.NewTableBudget(), func(s door.Symbol) {
			for _, name := range names {
				if s.Name == name && s.Index != elf.SHN_UNDEF && s.Kind == elf.STT_OBJECT {
					out[name] = s.Value
				}
			}
		})
		if err != nil {
			return nil, err
		}
		if len(out) >= 2 {
			break
		}
	}
	return out, nil
}

// base gives the address that the file asks for its first page, which the program's loader adds the mapping's to.
func base(f *elf.File) uint64 {
	const page = 4096 // at least; segments of larger pages begin at a multiple of it, too
	for _, s := range f.Progs {
		if s.Type == elf.PT_LOAD {
			return (s.Vaddr - s.Off) &^ (page - 1)
		}
	}
	return 0
}
