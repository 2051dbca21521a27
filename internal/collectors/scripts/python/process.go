// Package python reads what the threads of a CPython interpreter run: the functions of its scripts, by name, file and
// line. It reads the memory of the process from outside (process_vm_readv(2)), which takes the right to trace it. It
// attaches, stops and writes nothing.
//
// A thread runs on while its frames are read. So each frame is checked to be one, and a stack that came apart is given
// up ([ErrChanged]). Everything has a bound, since whoever owns the process controls its memory.
package python

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host/memory"
)

// ErrNone says that a process is not a CPython interpreter.
var ErrNone = errors.New("it is no CPython interpreter")

// A Process is a CPython interpreter. It is not safe for use by several at once.
type Process struct {
	Version Version

	read     memory.Reader
	layout   layout
	runtime  uint64 // address of _PyRuntime
	codeType uint64 // address of PyCode_Type
	// The addresses of PyCoro_Type and PyFrame_Type, 0 where the symbol is missing.
	coroutineType, frameType uint64

	dir string // of the process in /proc

	codes  map[uint64]*code
	tables int // bytes that the lines of codes take
	block  block
	look   int // how often threads were listed
}

// interpreterFile matches the names of the files that contain an interpreter: a library, or the program itself.
var interpreterFile = regexp.MustCompile(`^(?:libpython([23])\.([0-9]{1,2})[a-z]*\.so[.0-9]*|` +
	`python(?:([23])(?:\.([0-9]{1,2}))?)?[a-z]*)$`)

// Open looks into the process whose directory in /proc is dir. The error is [ErrNone] if it is not an interpreter;
// other errors say why an interpreter cannot be read.
func Open(dir string, pid int) (*Process, error) {
	files, err := interpreters(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		p := &Process{Version: versionOf(f.Base), dir: dir, read: memory.Of(pid), codes: map[uint64]*code{}}
		err := p.find(f)
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, ErrNone) {
			return nil, fmt.Errorf("%s: %w", f.Base, err)
		}
	}
	return nil, ErrNone
}

// interpreters returns the mapped files that may contain one, libraries first: a program that loads a library contains
// no interpreter itself.
func interpreters(dir string) ([]memory.File, error) {
	files, err := memory.Files(dir, interpreterFile.MatchString)
	slices.SortStableFunc(files, func(x, y memory.File) int { return -cmp.Compare(isLibrary(x), isLibrary(y)) })
	return files, err
}

func isLibrary(f memory.File) int {
	if strings.HasPrefix(f.Base, "lib") {
		return 1
	}
	return 0
}

// versionOf reads the version in the name of a library or program. It returns 0.0 if there is none.
func versionOf(base string) (v Version) {
	numbers := interpreterFile.FindStringSubmatch(base)[1:]
	for i := 0; i < len(numbers); i += 2 {
		if numbers[i+1] == "" {
			continue
		}
		v.Major, _ = strconv.Atoi(numbers[i]) // digits, as they matched
		v.Minor, _ = strconv.Atoi(numbers[i+1])
	}
	return v
}

// find looks up where the interpreter's data are, and how they are laid out.
func (p *Process) find(f memory.File) error {
	const runtime, codeType, version = "_PyRuntime", "PyCode_Type", "Py_Version" // the last since 3.11
	const coroutineType, frameType = "PyCoro_Type", "PyFrame_Type"
	at, err := f.Symbols(func(name string) bool {
		return name == runtime || name == codeType || name == version || name == coroutineType ||
			name == frameType
	}, runtime, codeType)
	if err != nil {
		return err
	}
	if at[runtime] == 0 || at[codeType] == 0 {
		return ErrNone
	}
	p.runtime, p.codeType, p.coroutineType, p.frameType = at[runtime], at[codeType], at[coroutineType], at[frameType]
	return p.choose(at[version])
}

// choose takes the layout that the interpreter itself describes, or else that of its version. Since 3.11 the version
// is at an address.
func (p *Process) choose(version uint64) error {
	text := make([]byte, described)
	if err := p.read(p.runtime, text); err != nil {
		return err
	}
	if string(text[:len(cookie)]) == cookie {
		var err error
		p.layout, p.Version, err = describedLayout(text)
		return err
	}
	if version != 0 {
		number, err := p.read.Word(version)
		if err != nil {
			return err
		}
		p.Version = Version{int(number >> 24 & 0xff), int(number >> 16 & 0xff)}
	}
	l, known := layoutOf(p.Version)
	if !known {
		return fmt.Errorf("CPython %s is not known: 3.8 to 3.15 are", p.Version)
	}
	p.layout = l
	return nil
}

// runtimeSize bounds struct _PyRuntime, in bytes: it has 1 KiB in 3.8, and some hundred KiB since 3.12, when objects
// came into it.
const runtimeSize = 1 << 20

// IsLock reports whether threads that wait at an address want the interpreter's lock (GIL). Its mutex and condition
// are in struct _PyRuntime: until 3.11 directly (Include/internal/pycore_gil.h), and since then in the main
// interpreter's state, which is a part of it. No other lock on which threads wait for long is there. The locks of
// sub-interpreters that have one of their own are not known.
func (p *Process) IsLock(address uint64) bool {
	return address >= p.runtime && address-p.runtime < runtimeSize
}
