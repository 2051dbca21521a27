package door

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"testing"
)

// zeros is a file that is a hole except for its beginning.
type zeros []byte

func (z zeros) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	if off < int64(len(z)) {
		copy(p, z[off:])
	}
	return len(p), nil
}

// TestELF is attack 4, a file whose table of section names claims 8 GiB. A file that claims no more than it has is
// read.
func TestELF(t *testing.T) {
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	f, err := ELF(bytes.NewReader(exe))
	if err != nil || f.Section(".text") == nil {
		t.Fatalf("this program: %v", err)
	}
	if text, err := f.Section(".text").Data(); err != nil || len(text) == 0 {
		t.Errorf("its text has %d bytes: %v", len(text), err)
	}
	// e_shoff and e_shstrndx of Elf64_Ehdr; sh_size of Elf64_Shdr.
	names := binary.LittleEndian.Uint64(exe[40:]) + 64*uint64(binary.LittleEndian.Uint16(exe[62:]))
	if elf.SectionType(binary.LittleEndian.Uint32(exe[names+4:])) != elf.SHT_STRTAB {
		t.Fatal("the names of sections are not where they should be")
	}
	binary.LittleEndian.PutUint64(exe[names+32:], 8<<30)
	if _, err := ELF(zeros(exe)); !errors.Is(err, errHeaders) {
		t.Errorf("names of 8 GiB: %v, want %v", err, errHeaders)
	}
}
