package memory

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime/debug"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// maxFiles bounds the files of a process to look into: a runtime is in its program and a library.
const maxFiles = 8

// A File is mapped by a process, from its first byte on.
type File struct {
	Base string // its name without the directory, as the process gave it
	dir  string // in /proc
	link string // below dir
	from uint64 // address
}

// Files returns the mapped files with a matching name of the process whose directory in /proc is dir, in the order of
// their addresses.
func Files(dir string, matches func(base string) bool) ([]File, error) {
	maps, err := door.Maps(dir)
	if err != nil {
		return nil, err
	}
	defer maps.Close()
	return parseMaps(maps, dir, matches)
}

// Executable returns the program that a process runs.
func Executable(dir string) (File, error) {
	exe, err := door.Executable(dir)
	if err != nil {
		return File{}, err
	}
	base := path.Base(strings.TrimSuffix(exe, " (deleted)"))
	files, err := Files(dir, func(name string) bool { return name == base })
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: its program is mapped nowhere", dir)
	}
	if err != nil {
		return File{}, err
	}
	return files[0], nil
}

// parseMaps finds the first mapping of each file.
func parseMaps(r io.Reader, dir string, matches func(base string) bool) (list []File, err error) {
	for m, err := range door.ParseMaps(r) {
		if err != nil {
			return nil, fmt.Errorf("maps: %w", err)
		}
		if base := path.Base(m.Path); strings.HasPrefix(m.Path, "/") && m.Offset == 0 && matches(base) {
			list = append(list, File{ // map_files has the addresses without leading zeros (proc(5))
				Base: base, dir: dir, link: fmt.Sprintf("map_files/%x-%x", m.From, m.To), from: m.From,
			})
		}
		if len(list) == maxFiles {
			break
		}
	}
	return list, nil
}

// An Object is an open file of a process.
type Object struct {
	*elf.File
	// Bias is what to add to an address in the file to get one in the process.
	Bias uint64

	file *os.File
}

// Close closes the file.
func (o *Object) Close() error { return o.file.Close() }

// Open opens the file through the door. The file must be a 64-bit, little-endian one.
func (f File) Open() (*Object, error) {
	file, err := door.OpenMagic(f.dir, f.link)
	if err != nil {
		return nil, err
	}
	object, err := door.ELF(file)
	if err == nil && (object.Class != elf.ELFCLASS64 || object.Data != elf.ELFDATA2LSB) {
		err = errors.New("it is no program of 64 bits, the lowest byte first")
	}
	if err != nil {
		_ = file.Close() // nothing was written
		return nil, err
	}
	return &Object{File: object, Bias: f.from - firstPage(object), file: file}, nil
}

// BuildInfo returns what Go's linker wrote into the file about how it was built.
func (o *Object) BuildInfo() (*debug.BuildInfo, error) { return door.BuildInfo(o.file) }

// Symbols returns the addresses of the data with wanted names, from the symbols that the file exports. If a required
// name is not among those, it takes all symbols of the file. It opens the file once.
func (f File) Symbols(wanted func(name string) bool, required ...string) (map[string]uint64, error) {
	object, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer object.Close()
	out := map[string]uint64{}
	for _, kind := range []elf.SectionType{elf.SHT_DYNSYM, elf.SHT_SYMTAB} {
		err := door.EachSymbol(object.File, kind, door.NewTableBudget(), func(s door.Symbol) {
			if s.Kind != elf.STT_OBJECT || s.Index == elf.SHN_UNDEF || s.Value == 0 {
				return
			}
			if name := s.Name(); wanted(name) {
				out[strings.Clone(name)] = s.Value + object.Bias // a name keeps those around it
			}
		})
		if err != nil {
			return nil, err
		}
		if hasAll(out, required) {
			break
		}
	}
	return out, nil
}

func hasAll(found map[string]uint64, required []string) bool {
	for _, name := range required {
		if found[name] == 0 {
			return false
		}
	}
	return true
}

// firstPage returns the address that the file asks for its first page. The program's loader adds the mapping's
// address to it.
func firstPage(f *elf.File) uint64 {
	const page = 4096 // at least; segments of larger pages begin at a multiple of it, too
	for _, s := range f.Progs {
		if s.Type == elf.PT_LOAD {
			return (s.Vaddr - s.Off) &^ (page - 1)
		}
	}
	return 0
}
