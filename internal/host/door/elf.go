package door

import (
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"io"
	"runtime/debug"
)

// maxHeaders bounds what is read of an ELF file for its headers, in bytes: 65,535 sections and their names take 6 MB.
// debug/elf reads the whole table of names, whatever size the file claims for it.
const maxHeaders = 16 << 20

var errHeaders = errors.New("its ELF headers are larger than perfdoctor reads")

// ELF reads the headers of an ELF file. The size of each section is what its file claims: before reading the content,
// look at [elf.Section.Size], which is the size after decompression.
func ELF(r io.ReaderAt) (*elf.File, error) {
	bounded := &headerReader{r: r, left: maxHeaders}
	f, err := elf.NewFile(bounded)
	bounded.read = true
	return f, err
}

// BuildInfo returns what Go's linker wrote into a file about how it was built.
func BuildInfo(r io.ReaderAt) (*debug.BuildInfo, error) {
	return buildinfo.Read(&headerReader{r: r, left: maxHeaders})
}

// headerReader fails past its bound until the headers are read. It is not for concurrent use.
type headerReader struct {
	r    io.ReaderAt
	left int
	read bool
}

// ReadAt is [io.ReaderAt].
func (h *headerReader) ReadAt(p []byte, off int64) (int, error) {
	if h.read {
		return h.r.ReadAt(p, off)
	}
	if h.left -= len(p); h.left < 0 {
		return 0, errHeaders
	}
	return h.r.ReadAt(p, off)
}
