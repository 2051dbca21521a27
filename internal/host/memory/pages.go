package memory

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

const (
	// maxScanned bounds the searched memory, in bytes: 256 MiB take a fifth of a second.
	maxScanned = 256 << 20
	// scanned is how much is searched at once: as much as fits a cache.
	scanned = 256 << 10
	// pagePresent is the bit of an entry of /proc/PID/pagemap for a page that is in memory
	// (Documentation/admin-guide/ mm/pagemap.rst). Absent pages are not read: the kernel would fetch them from swap,
	// or make them.
	pagePresent = 1 << 63
	// maxFound bounds what a search keeps: coroutines, say. A server with more requests at once has several processes.
	maxFound = 10_000
	// maxTries bounds the candidate words, at a microsecond each: memory that its owner has filled with them would
	// take half a minute.
	maxTries = 50_000
)

// Search finds objects in the private memory of the process whose directory in procfs is dir, by a word that they
// hold so many bytes (behind) after their beginning, such as the address of their type. read reports whether there is
// an object at an address, and found holds the objects by address. whole is false if there was more memory than is
// searched.
func Search[T any](r Reader, dir string, words []uint64, behind uint64, read func(at uint64) (T, bool)) (
	found map[uint64]T, whole bool, err error,
) {
	found = map[uint64]T{}
	tries := 0
	whole, err = r.pages(dir, func(address uint64, piece []byte) {
		for i := 0; i+8 <= len(piece); i += 8 {
			if !slices.Contains(words, binary.LittleEndian.Uint64(piece[i:])) {
				continue
			}
			if tries++; tries > maxTries || len(found) >= maxFound {
				return
			}
			at := address + uint64(i) - behind
			if x, ok := read(at); ok {
				found[at] = x
			}
		}
	})
	return found, whole && tries <= maxTries && len(found) < maxFound, err
}

// Words calls do for each word of that memory, with its address.
func (r Reader) Words(dir string, do func(at, word uint64)) error {
	_, err := r.pages(dir, func(address uint64, piece []byte) {
		for i := 0; i+8 <= len(piece); i += 8 {
			do(address+uint64(i), binary.LittleEndian.Uint64(piece[i:]))
		}
	})
	return err
}

// pages calls do for the present pages of the private memory of the process whose directory in procfs is dir, in
// consecutive pieces. whole is false if there is more than is read.
func (r Reader) pages(dir string, do func(address uint64, piece []byte)) (whole bool, err error) {
	text, err := door.Maps(dir)
	if err != nil {
		return false, err
	}
	defer text.Close()
	present, err := os.Open(dir + "/pagemap")
	if err != nil {
		return false, fmt.Errorf("see which pages are in memory: %w", err)
	}
	defer present.Close()
	left := maxScanned
	space := make([]byte, scanned)
	for m, err := range door.ParseMaps(text) {
		if err != nil {
			return false, err
		}
		if m.Executable || m.Path != "" && m.Path != "[heap]" && !strings.HasPrefix(m.Path, "[anon:") {
			continue
		}
		if left -= r.pagesIn(m, present, space, left, do); left <= 0 {
			return false, nil
		}
	}
	return true, nil
}

// pagesIn calls do for the present pages of a mapping, as far as the room goes, and returns how many bytes it read.
func (r Reader) pagesIn(m door.Mapping, present *os.File, space []byte, room int, do func(uint64, []byte)) (n int) {
	const page = 4096
	entries := make([]byte, 8*scanned/page)
	for from := m.From; from < m.To && n < room; from += scanned {
		pages := min(m.To-from, scanned) / page
		if _, err := present.ReadAt(entries[:8*pages], int64(8*(from/page))); err != nil {
			continue
		}
		for i := uint64(0); i < pages; {
			j := i
			for j < pages && binary.LittleEndian.Uint64(entries[8*j:])&pagePresent != 0 {
				j++
			}
			piece := space[:(j-i)*page]
			if len(piece) > 0 && r(from+i*page, piece) == nil {
				do(from+i*page, piece)
				n += len(piece)
			}
			i = j + 1
		}
	}
	return n
}
