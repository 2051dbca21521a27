package ebpf

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// maxGoTable bounds .gopclntab, in bytes: the kubelet's has 30 MB.
const maxGoTable = 64 << 20

// goFunctions reads the table that a Go program keeps for its own stack traces, also when it is stripped; nothing of
// other programs, and of one built by Go before 1.18 (2022). debug/gosym unpacks every entry, and names without a
// bound.
func goFunctions(f *elf.File, left *door.TableBudget) ([]symbol, error) {
	var table *elf.Section
	// the latter of a position-independent program
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if s := f.Section(name); s != nil {
			table = s
			break
		}
	}
	text := f.Section(".text")
	if table == nil || text == nil {
		return nil, nil
	}
	data, err := door.Section(table, maxGoTable)
	if err != nil {
		return nil, fmt.Errorf("table of Go functions: %w", err)
	}
	return parseGoTable(data, f.ByteOrder, text.SectionHeader, left), nil
}

// parseGoTable reads the header and the table of functions (src/runtime/symtab.go: pcHeader, functab, _func): pairs of
// 4-byte offsets, from the text and from the table itself, then a last offset from the text. An entry that leads out of
// the data ends it.
func parseGoTable(data []byte, order binary.ByteOrder, text elf.SectionHeader, left *door.TableBudget) []symbol {
	const (
		magic118 = 0xfffffff0 // Go 1.18
		magic120 = 0xfffffff1 // Go 1.20
		header   = 8          // magic, two zeros, instruction size, pointer size
	)
	if len(data) < header || data[7] != 8 && data[7] != 4 || !slices.Contains([]uint32{magic118, magic120},
		order.Uint32(data)) {
		return nil
	}
	word := func(i uint64) uint64 { // pointer-sized field i of the header
		at := header + i*uint64(data[7])
		switch {
		case at+8 > uint64(len(data)):
			return 0
		case data[7] == 4:
			return uint64(order.Uint32(data[at:]))
		}
		return order.Uint64(data[at:])
	}
	// The fields are: functions, files, start of the text, names, compilation units, files' names, tables of numbers,
	// functions. The start is not yet known to a file that is relocated; it begins with .text unless C's start-up does.
	count, start, nameAt, funcAt := word(0), word(2), word(3), word(7)
	if start < text.Addr || start-text.Addr >= text.Size {
		start = text.Addr
	}
	if nameAt >= uint64(len(data)) || funcAt >= uint64(len(data)) {
		return nil
	}
	names, functions := door.NameTable{Data: data[nameAt:], Left: left}, data[funcAt:]
	var list []symbol
	for i := uint64(0); i < count && (i+1)*8+4 <= uint64(len(functions)) && left.Take(); i++ {
		from, info, to := order.Uint32(functions[i*8:]), uint64(order.Uint32(functions[i*8+4:])),
			order.Uint32(functions[i*8+8:])
		if info+8 > uint64(len(functions)) {
			break
		}
		// _func begins with the offset of its entry and that of its name, of 4 bytes each.
		name := names.At(order.Uint32(functions[info+4:]))
		list = append(list, symbol{at: start + uint64(from), end: start + uint64(to), name: name})
	}
	return list
}
