// Package node reads what the threads of Node.js run: the functions of its scripts, by name, file and the line that
// they begin at. It walks stacks that were taken of the threads, and reads what their frames point to from the memory
// of the process. It attaches, stops and writes nothing.
//
// V8 itself says how it lays out its heap, in numbers under exported names that begin with v8dbg_, for debuggers
// (tools/gen-postmortem-metadata.py of V8). The collector may move a function before it is read. So each object is
// checked to be of the type that it should be, and everything has a bound.
package node

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/host/memory"
)

// ErrNone says that a process does not run V8.
var ErrNone = errors.New("it does not run V8")

// A Process runs V8. It is not safe for use by several at once.
type Process struct {
	// Version is the version of V8, such as 11.3.
	Version string

	dir     string // in procfs
	heap    heap
	seen    frames
	layout  layout
	shared  map[uint64]*function // by the addresses of their SharedFunctionInfo
	scripts map[uint64]*script
	text    int // bytes of source that were read
	now     time.Time

	asyncMaps []uint64 // the maps of suspended functions, as objects begin with them
}

// runtimeFile matches the names of the files that contain V8: Node's program, or its library (Debian's has one).
var runtimeFile = regexp.MustCompile(`^(?:node(?:js)?[0-9]*|libnode\.so[.0-9]*)$`)

// Open looks into the process whose directory in /proc is dir. The error is [ErrNone] if the process has no V8; other
// errors say why it cannot be read.
func Open(dir string, pid int) (*Process, error) {
	files, err := memory.Files(dir, runtimeFile.MatchString)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		at, err := f.Symbols(isWanted, firstName)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Base, err)
		}
		if at[firstName] == 0 {
			continue // such as Debian's program, which loads the library
		}
		p := &Process{
			dir:     dir,
			heap:    heap{read: memory.Of(pid), types: map[uint64]uint16{}},
			scripts: map[uint64]*script{}, shared: map[uint64]*function{},
		}
		values, err := readValues(p.heap.read, at)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Base, err)
		}
		if p.layout, err = layoutOf(values); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Base, err)
		}
		p.heap.layout = p.layout.heap
		p.Version = values.version()
		return p, nil
	}
	return nil, ErrNone
}
