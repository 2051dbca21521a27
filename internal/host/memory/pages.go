package memory

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

const (
	// maxScanned bounds the memory that is searched, in bytes: 256 MiB take a fifth of a second.
	maxScanned = 256 << 20
	// scanned is what is searched at once: as much as fits a cache.
	scanned = 256 << 10
	// pagePresent is the bit of an entry of /proc/PID/pagemap for a page that is in memory (Documentation/admin-guide/
	// mm/pagemap.rst). What is not there is not read: it would be fetched from swap, or made.
	pagePresent = 1 << 63
)

// Pages gives the pages of the own memory of the process whose directory in procfs is dir, those that are there, in
// pieces that follow each other. whole is false where there is more than is read.
func (r Reader) Pages(dir string, do func(address uint64, piece []byte)) (whole bool, err error) {
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

// pagesIn gives the present pages of a mapping, as far as the room goes, and how many bytes it read.
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
