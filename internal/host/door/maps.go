package door

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
)

// maxMapsLine bounds a line of /proc/PID/maps: a path has at most 4096 bytes, each escaped as four.
const maxMapsLine = 32 << 10

// A Mapping is a part of a process's memory: a line of /proc/PID/maps (show_map_vma in fs/proc/task_mmu.c).
type Mapping struct {
	From, To   uint64 // addresses, From below To
	Offset     uint64 // of From in the file, in bytes
	Executable bool
	// Path is the path of a file, with a leading slash; or what the kernel or prctl(2) calls the memory, such as
	// "[vdso]" and "[anon:x]"; or "".
	Path    string
	Deleted bool // the path leads to no file any more, or to another
}

// ParseMaps returns the mappings in the text that [Maps] opens, in the order of their addresses. A line that does not
// parse ends the sequence with an error that has the line's number.
func ParseMaps(maps io.Reader) iter.Seq2[Mapping, error] {
	return func(yield func(Mapping, error) bool) {
		sc := bufio.NewScanner(maps)
		sc.Buffer(make([]byte, 4096), maxMapsLine)
		for n := 1; sc.Scan(); n++ {
			m, err := parseMapping(sc.Bytes())
			if err != nil {
				yield(Mapping{}, fmt.Errorf("line %d: %w", n, err))
				return
			}
			if !yield(m, nil) {
				return
			}
		}
		if err := sc.Err(); err != nil {
			yield(Mapping{}, err)
		}
	}
}

// parseMapping reads "7f4575000000-7f4575270000 rwxp 00000000 fe:00 131" and, after spaces, a name that may hold
// spaces itself.
func parseMapping(line []byte) (m Mapping, err error) {
	var fields [5][]byte // addresses, rights, offset, device, inode
	for i := range fields {
		fields[i], line, _ = bytes.Cut(bytes.TrimLeft(line, " "), []byte{' '})
	}
	if len(fields[1]) != 4 || len(fields[4]) == 0 {
		return m, errors.New("not a mapping")
	}
	low, high, _ := bytes.Cut(fields[0], []byte{'-'})
	var errs [3]error
	m.From, errs[0] = strconv.ParseUint(string(low), 16, 64)
	m.To, errs[1] = strconv.ParseUint(string(high), 16, 64)
	m.Offset, errs[2] = strconv.ParseUint(string(fields[2]), 16, 64)
	if errors.Join(errs[:]...) != nil || m.From >= m.To { // their text is the process's
		return m, errors.New("bad addresses")
	}
	m.Executable = fields[1][2] == 'x'
	name, deleted := bytes.CutSuffix(bytes.TrimLeft(line, " "), []byte(" (deleted)"))
	m.Path, m.Deleted = string(name), deleted
	return m, nil
}
