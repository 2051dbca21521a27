package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"os"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// Distributions keep what they strip from programs and libraries in separate files (packages named -dbg, -dbgsym or
// -debuginfo). Debuggers find these by the build id that the linker gave to both (Debugging with GDB, Separate Debug
// Files).
const debugDirectory = "/usr/lib/debug/.build-id/"

// noteBuildID is the type of the note with the build id; its owner is GNU (gABI of GNU).
const noteBuildID = 3

// buildID returns the id of a file, in hexadecimal digits; "" if it has none.
func buildID(f *elf.File) string {
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOTE {
			continue
		}
		data, err := sectionData(s)
		if err != nil {
			continue
		}
		if id := noteOf(data, f.ByteOrder); id != "" {
			return id
		}
	}
	return ""
}

// noteOf finds the id among notes. A note has the lengths of owner and content, the type, the owner and the content,
// the last two padded to 4 bytes.
func noteOf(data []byte, order binary.ByteOrder) string {
	padded := func(n uint32) uint64 { return (uint64(n) + 3) &^ 3 }
	for len(data) >= 12 {
		owner, content, kind := order.Uint32(data), order.Uint32(data[4:]), order.Uint32(data[8:])
		begin := 12 + padded(owner)
		end := begin + padded(content)
		if end > uint64(len(data)) {
			return ""
		}
		if kind == noteBuildID && bytes.Equal(data[12:12+owner], []byte("GNU\x00")) {
			return hex.EncodeToString(data[begin : begin+uint64(content)])
		}
		data = data[end:]
	}
	return ""
}

// addDebugSymbols adds the functions that a stripped file had, from its debug file in the process's root. A debug
// file with another id belongs to another build, and is not read.
func (s *Symbolizer) addDebugSymbols(pid uint32, b *objectFile) {
	if len(b.buildID) < 3 || len(s.held) >= maxHeldFiles { // the debug file stays open for its names
		return
	}
	f, err := s.openInRoot(pid, debugDirectory+b.buildID[:2]+"/"+b.buildID[2:]+".debug")
	if err != nil {
		return
	}
	if !s.readDebugFile(f, b) {
		_ = f.Close() // nothing was written
		return
	}
	s.held = append(s.held, f)
}

// readDebugFile adds the functions of an open debug file, and reports whether that reads names from it later.
func (s *Symbolizer) readDebugFile(f *os.File, b *objectFile) bool {
	if _, err := identify(f); err != nil {
		return false
	}
	e, err := door.ELF(f)
	if err != nil || buildID(e) != b.buildID {
		return false
	}
	t, err := door.SymbolsOf(e, elf.SHT_SYMTAB)
	if t == nil || err != nil {
		return false
	}
	known := slices.Clone(b.functions) // the dynamic symbols have the name that programs call
	return b.add(t, s.left, func(at uint64) bool {
		_, exact := search(known, at)
		return !exact
	}) == nil
}
