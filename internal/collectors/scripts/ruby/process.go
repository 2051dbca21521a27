// Package ruby reads what the threads of a Ruby process run: the methods of its scripts, by name, file and line, and
// Ruby's own methods that they call. It reads the memory of the process from outside (process_vm_readv(2)), which
// takes the right to trace it. It attaches, stops and writes nothing.
//
// Ruby exports the address of its virtual machine, or the address is found among Ruby's data. Where the threads are in
// the machine, and what differs from version to version, is found by its content as far as possible; the rest is known
// for MRI 3.0 to 3.4 (vm_core.h). The threads run on meanwhile, so each frame is checked to be one. Everything has a
// bound, since whoever owns the process controls its memory.
package ruby

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/host/memory"
)

// ErrNone says that a process does not run Ruby.
var ErrNone = errors.New("it does not run Ruby")

// A Process runs Ruby. It is not safe for use by several at once.
type Process struct {
	Version string // 3.1.2

	read    memory.Reader
	layout  layout
	machine uint64 // address of the pointer to the virtual machine; 0: not found yet
	data    []span // of the file, which the process may write to
	// names of Ruby's own classes, by the addresses of the variables that lead to them, and by their own addresses;
	// the latter is nil until a class is asked for
	variables, classes map[uint64]string

	began    bool // the virtual machine is there
	searches int  // for it
	searched time.Time

	pthread place  // of a thread's pthread_t
	symbols uint64 // address of the list of the names of methods; 0: not found
	sought  bool   // the list has been looked for
	methods map[key]*method
	lines   int // known lines, of all methods
	cores   map[coreKey]string
}

// A span is a range of addresses.
type span struct{ from, size uint64 }

// runtimeFile matches the names of the files that contain Ruby: a library, or the program itself.
var runtimeFile = regexp.MustCompile(`^(?:libruby[-.0-9a-z]*\.so[.0-9]*|ruby[-.0-9]*)$`)

// classVariable matches the variables that hold Ruby's own classes and modules.
var classVariable = regexp.MustCompile(`^rb_[cm]([A-Z][A-Za-z]*)$`)

const (
	machineName = "ruby_current_vm_ptr"
	versionName = "ruby_version"
)

// Open looks into the process whose directory in /proc is dir. The error is [ErrNone] if the process has no Ruby;
// other errors say why it cannot be read.
func Open(dir string, pid int) (*Process, error) {
	files, err := memory.Files(dir, runtimeFile.MatchString)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		at, err := f.Symbols(func(name string) bool {
			return name == machineName || name == versionName || classVariable.MatchString(name)
		}, versionName)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Base, err)
		}
		if at[versionName] == 0 {
			continue
		}
		p := &Process{
			read: memory.Of(pid), machine: at[machineName], variables: map[uint64]string{},
			methods: map[key]*method{}, cores: map[coreKey]string{},
		}
		for name, variable := range at {
			if class := classVariable.FindStringSubmatch(name); class != nil {
				p.variables[variable] = class[1]
			}
		}
		if p.data, err = dataOf(f); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Base, err)
		}
		return p, p.choose(at[versionName])
	}
	return nil, ErrNone
}

// maxData bounds the data of a file that is searched, in bytes: Ruby 3.3 has 81 KiB, and each word that may be an
// address takes some microseconds.
const maxData = 256 << 10

// dataOf returns where the data of a file are.
func dataOf(f memory.File) (list []span, err error) {
	object, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer object.Close()
	for _, name := range []string{".data", ".bss"} {
		if s := object.Section(name); s != nil && s.Size <= maxData {
			list = append(list, span{s.Addr + object.Bias, s.Size})
		}
	}
	return list, nil
}

// versionText matches a version. Its first two numbers say how things are laid out.
var versionText = regexp.MustCompile(`^([0-9]{1,2})\.([0-9]{1,2})\.[0-9]{1,3}`)

// choose takes the layout of the version. The version's text is at the given address.
func (p *Process) choose(version uint64) error {
	var text [16]byte
	if err := p.read(version, text[:]); err != nil {
		return err
	}
	numbers := versionText.FindSubmatch(text[:])
	if numbers == nil {
		return errors.New("its version cannot be read")
	}
	p.Version = string(numbers[0])
	major, _ := strconv.Atoi(string(numbers[1])) // digits, as they matched
	minor, _ := strconv.Atoi(string(numbers[2]))
	if major != 3 || minor > 4 {
		return fmt.Errorf("version %s of Ruby is not known: 3.0 to 3.4 are", p.Version)
	}
	p.layout = layoutOf(minor)
	return nil
}

// A layout has the offsets that differ between versions, in bytes.
type layout struct {
	frame       uint64 // size of a frame (rb_control_frame_t in vm_core.h)
	thread      uint64 // of the address of the stack, in a thread (ec in rb_thread_struct)
	native      uint64 // of the address of its structure for the kernel's thread; 0 if that is the thread itself
	lines       int    // of the lines, in a body (insns_info in rb_iseq_constant_body)
	line        uint64 // size of a line (iseq_insn_info_entry in iseq.h); its first four bytes are its number
	text        int    // of the text of a short string (RString)
	textHasSize bool   // the size of a short string is where that of a long one is, and not among the flags
}

// layoutOf returns the layout of Ruby 3.minor. A frame gained jit_return in 3.1 and lost bp in 3.3; a thread got nt in
// 3.2, when what is before the lines of a body and the size of a short string moved; a line gained node_id in 3.1.
func layoutOf(minor int) layout {
	l := layout{frame: 64, thread: 48, native: 40, lines: 112, line: 12, text: 24, textHasSize: true}
	if minor == 0 || minor > 2 {
		l.frame = 56
	}
	if minor == 0 {
		l.line = 8
	}
	if minor < 2 {
		l.thread, l.native, l.lines, l.text, l.textHasSize = 40, 0, 120, 16, false
	}
	return l
}

const word = 8

func word64(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

func word32(b []byte, at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }

// class returns the name of one of Ruby's own classes, "" for any other.
func (p *Process) class(at uint64) string {
	if p.classes == nil {
		p.classes = map[uint64]string{}
		for variable, name := range p.variables {
			if class, err := p.read.Word(variable); err == nil && class != 0 {
				p.classes[class] = name
			}
		}
	}
	return p.classes[at]
}

// isCore reports whether a file is one of Ruby's own: these have names such as <internal:numeric>.
func isCore(file string) bool { return strings.HasPrefix(file, "<internal:") }
