package memory

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// maxFiles bounds the files of a process that are looked into: a runtime is in its program and a library.
const maxFiles = 8

// A File is mapped by a process, from its first byte on.
type File struct {
	Base string // its name without the directory, as the process gave it
	dir  string // in /proc
	link string // below dir
	from uint64 // address
}

// Files gives the files of the process whose directory in /proc is dir that have a name which matches, in the order of
// their addresses.
func Files(dir string, matches func(base string) bool) ([]File, error) {
	maps, err := door.Maps(dir)
	if err != nil {
		return nil, err
	}
	defer maps.Close()
	return parseMaps(maps, dir, matches)
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

// Symbols gives the addresses of the data of the names that are wanted: those that the file exports, and all that it
// has where one that is required is not among them. The file is opened through the door, once.
func (f File) Symbols(wanted func(name string) bool, required ...string) (map[string]uint64, error) {
	file, err := door.OpenMagic(f.dir, f.link)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	object, err := door.ELF(file)
	if err != nil {
		return nil, err
	}
	if object.Class != elf.ELFCLASS64 || object.Data != elf.ELFDATA2LSB {
		return nil, errors.New("it is no program of 64 bits, the lowest byte first")
	}
	bias := f.from - firstPage(object)
	out := map[string]uint64{}
	for _, kind := range []elf.SectionType{elf.SHT_DYNSYM, elf.SHT_SYMTAB} {
		err := door.EachSymbol(object, kind, door.NewTableBudget(), func(s door.Symbol) {
			if s.Kind == elf.STT_OBJECT && s.Index != elf.SHN_UNDEF && s.Value != 0 && wanted(s.Name) {
				out[s.Name] = s.Value + bias
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

// firstPage gives the address that the file asks for its first page, which the program's loader adds the mapping's to.
func firstPage(f *elf.File) uint64 {
	const page = 4096 // at least; segments of larger pages begin at a multiple of it, too
	for _, s := range f.Progs {
		if s.Type == elf.PT_LOAD {
			return (s.Vaddr - s.Off) &^ (page - 1)
		}
	}
	return 0
}
