package ebpf

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// names keeps the names of processes as they were first seen, so that the labels of a series do not change.
type names struct {
	proc string // the procfs in which processes are named
	seen map[uint32]string
}

func newNames(proc string) names { return names{proc: proc, seen: map[uint32]string{}} }

// of returns the process's own name, or if it has ended, that of the thread that a program saw.
func (n names) of(pid uint32, comm []byte) string {
	if name, ok := n.seen[pid]; ok {
		return name
	}
	if b, err := os.ReadFile(filepath.Join(n.proc, strconv.FormatUint(uint64(pid), 10), "comm")); err == nil {
		comm = bytes.TrimRight(b, "\n")
	}
	name, _, _ := bytes.Cut(comm, []byte{0})
	n.seen[pid] = string(name)
	return string(name)
}
