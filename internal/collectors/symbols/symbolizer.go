// Package symbols names addresses of code, and walks copied stacks of programs that keep no frame pointers. It loads
// nothing into the kernel: it reads the files that are mapped into a process, the map of what its runtime compiled,
// and a few places of its memory.
//
// All of that may be hostile. It is opened through package door, everything has a bound, and a parser that fails
// costs only the names of that one file.
package symbols

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ianlancetaylor/demangle"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/jvm/perfmap"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// maxHeldFiles bounds the files that stay open while addresses are named. A host runs some 100 programs with as many
// libraries, and a process may have 1024 files open without asking for more.
const maxHeldFiles = 256

// The names of frames without a symbol. The module tells code that was made at run time from the rest.
const (
	unknownFrame  = stacks.Unnamed
	unknownKernel = "[unknown kernel function]"
	noFile        = "[no file]"
)

// A Symbolizer names addresses: those of the kernel as the kernel does, those of a process from the files that are
// mapped into it, read through its own root, and from the map of a runtime that compiles. It says so where it has no
// name. It is not safe for concurrent use.
type Symbolizer struct {
	proc     string
	kernel   map[uint64]KernelFunction
	maps     map[uint32][]door.Mapping
	compiled map[uint32]*perfmap.Map
	mapRoom  int64 // what compiled takes of maxMaps
	binaries map[mappedFile]*objectFile
	files    map[fileID]*objectFile
	called   map[returned]bool
	named    map[place][]stacks.Frame
	left     *door.TableBudget
	held     []io.Closer // files whose names are read when they are asked for
	// what has no names, with the reason: its tables are too large, or perfdoctor failed on them
	nameless []string
	opaque   map[string]bool // names that could not be made readable
	until    time.Time       // when no further file is read; zero before the first
	spent    time.Duration   // in reading names
	late     bool            // names were left out for that
	met      *Walker         // of these processes; nil if stacks are not walked
	parsers
}

// parsers read bytes that belong to a process. Each runs behind the firewall: only what it fails on has no names.
type parsers struct {
	elf      func(io.ReaderAt, *door.TableBudget) (*objectFile, error)
	perfMap  func(io.Reader) (*perfmap.Map, error)
	demangle func(string) string
}

// mappedFile is a file as one process has it. Processes share most files, which are read once.
type mappedFile struct {
	pid     uint32
	path    string
	deleted bool
}

type fileID struct{ device, inode uint64 }

// readTime bounds the time in which files are read, 10 to 100 ms each for the largest: on a host with hundreds of
// programs the rest stays without names. Those with the most samples come first. It begins with the first file: on a
// slow machine the kernel's list and a JVM's answer take longer than this, and otherwise no function of any program
// would get a name.
const readTime = time.Second

// New returns a Symbolizer for addresses of the kernel, each with the function that the kernel says it is in, and for
// any address of the processes in the procfs at proc.
func New(proc string, kernel map[uint64]KernelFunction) *Symbolizer {
	return &Symbolizer{
		proc: proc, kernel: kernel, maps: map[uint32][]door.Mapping{}, compiled: map[uint32]*perfmap.Map{},
		binaries: map[mappedFile]*objectFile{}, files: map[fileID]*objectFile{}, called: map[returned]bool{},
		named: map[place][]stacks.Frame{},
		left:  door.NewTableBudget(), opaque: map[string]bool{},
		parsers: parsers{elf: readBinary, perfMap: perfmap.Parse, demangle: demangled},
	}
}

// Learn takes over what a walker met while processes ran: their files and what these say about frames, and the
// mappings of the processes that have ended since.
func (s *Symbolizer) Learn(w *Walker, ended []uint32) {
	s.met = w
	for _, pid := range ended {
		if list := w.names.maps[pid]; len(list) > 0 {
			s.maps[pid] = list
		}
	}
}

// KernelFrame names an address of the kernel. An address that [New] was not given is in an unknown function.
func (s *Symbolizer) KernelFrame(at uint64) stacks.Frame {
	if f, ok := s.kernel[at]; ok {
		return stacks.Frame{Name: f.Name, Module: f.Module, Kind: stacks.Kernel}
	}
	return stacks.Frame{Name: unknownKernel, Kind: stacks.Kernel}
}

// A place is an address of a process.
type place struct {
	pid uint32
	at  uint64
}

// UserFrames names an address of a process; for a return address, pass one less. It returns the function, or the
// methods that were compiled into one, the innermost first. Do not change the frames: most stacks have the same ones,
// so each is named once.
func (s *Symbolizer) UserFrames(pid uint32, at uint64) []stacks.Frame {
	frames, known := s.named[place{pid, at}]
	if !known {
		frames = s.nameFrames(pid, at)
		s.named[place{pid, at}] = frames
	}
	return frames
}

func (s *Symbolizer) nameFrames(pid uint32, at uint64) []stacks.Frame {
	if m := s.compiled[pid]; m != nil {
		if e, ok := m.Find(at); ok {
			return compiledFrames(e)
		}
	}
	m, ok := s.mappingOf(pid, at)
	switch {
	case !ok:
		return []stacks.Frame{{Name: unknownFrame, Kind: stacks.Unknown}}
	case m.Path == "":
		return []stacks.Frame{{Name: unknownFrame, Module: noFile, Kind: stacks.Unknown}}
	case !strings.HasPrefix(m.Path, "/"):
		return []stacks.Frame{{Name: m.Path, Kind: stacks.Native}} // [vdso]: the kernel's own code for programs
	}
	f := stacks.Frame{Name: unknownFrame, Module: filepath.Base(m.Path), Kind: stacks.Native}
	if b := s.binaryOf(pid, m); b != nil {
		if calls := s.goFrames(pid, m, b, at); len(calls) > 0 {
			return calls
		}
		sym, ok := s.functionIn(pid, m, b, at)
		if !ok && b.chooses && !b.asked && time.Now().Before(s.until) {
			s.note(m, firewall.Run(elfOf(pid), func() error { s.nameLocals(pid, m, b); return nil }))
			sym, ok = s.functionIn(pid, m, b, at)
		}
		if !ok {
			sym, ok = s.placed(pid, m, b, at)
		}
		if ok && sym.name != "" { // else reading the name failed
			f.Name = s.readable(pid, m, sym.name)
		}
	}
	return []stacks.Frame{f}
}

// goFrames returns the functions of Go at an address, the innermost first: the compiler puts small ones into their
// callers.
func (s *Symbolizer) goFrames(pid uint32, m door.Mapping, b *objectFile, at uint64) (frames []stacks.Frame) {
	s.ask(pid, m, b, func() {
		for _, c := range b.calls(at - m.From + m.Offset) {
			frames = append(frames, stacks.Frame{
				Name: c.Name, Module: filepath.Base(m.Path), Line: c.Line, Kind: stacks.Native,
			})
		}
	})
	return frames
}

// ask looks something up in a mapped file. If that fails, the file's tables are not used again.
func (s *Symbolizer) ask(pid uint32, m door.Mapping, b *objectFile, what func()) {
	if err := firewall.Run(elfOf(pid), func() error { what(); return nil }); err != nil {
		b.table, b.functions = nil, nil
		s.note(m, err)
	}
}

// placed names a function without a symbol by where it begins, according to .eh_frame, and by the nearest function
// with a symbol: compilers keep the functions of a source file together.
func (s *Symbolizer) placed(pid uint32, m door.Mapping, b *objectFile, at uint64) (sym symbol, ok bool) {
	if s.met == nil {
		return symbol{}, false
	}
	s.note(m, firewall.Run(elfOf(pid), func() error {
		t := s.met.tableOf(pid, m)
		if t == nil {
			return nil
		}
		address, known := t.Address(at - m.From + m.Offset)
		if !known {
			return nil
		}
		if sym.at, ok = t.Function(address); ok {
			sym.name = stacks.Placed(sym.at, s.readable(pid, m, b.nearest(sym.at)))
		}
		return nil
	}))
	return sym, ok
}

// functionIn returns the function at an address of a process, in the file that is mapped there. A file system may take
// long for each name: after readTime no more are read.
func (s *Symbolizer) functionIn(pid uint32, m door.Mapping, b *objectFile, at uint64) (sym symbol, ok bool) {
	if s.spent > readTime {
		s.late = true
		return symbol{}, false
	}
	began := time.Now()
	s.ask(pid, m, b, func() { sym, ok = b.function(at - m.From + m.Offset) })
	s.spent += time.Since(began)
	return sym, ok
}

// Close ends the reading of files. Frames that were named stay.
func (s *Symbolizer) Close() {
	for _, f := range s.held {
		_ = f.Close() // nothing was written
	}
	s.held = nil
}

// maxMangled bounds the names that are demangled: C++ names can be made to unfold without an end.
const maxMangled = 2000

// readable undoes the mangling of C++ and Rust (Itanium C++ ABI, Rust RFC 2603), and leaves other names alone.
//
// The library has panicked on names that no compiler writes, such as _ZN1AcvT_cvT_IiEEv. Such a name just stays
// mangled.
func (s *Symbolizer) readable(pid uint32, m door.Mapping, name string) string {
	if len(name) > maxMangled || !strings.HasPrefix(name, "_Z") && !strings.HasPrefix(name, "_R") || s.opaque[name] {
		return name
	}
	text := name
	err := firewall.Run(fmt.Sprintf("a mangled name of pid %d", pid),
		func() error { text = s.demangle(name); return nil })
	if err != nil {
		s.opaque[name] = true
		s.note(m, err)
	}
	return text
}

// demangled returns a name of at most 4096 bytes, the limit for a frame's name, without parameters: the parameters of
// a C++ template take hundreds of bytes at each level of a recursion, and tell a reader nothing.
func demangled(name string) string {
	return demangle.Filter(name, demangle.NoParams, demangle.NoTemplateParams, demangle.MaxLength(12))
}

func (s *Symbolizer) mappingOf(pid uint32, at uint64) (door.Mapping, bool) {
	list := s.mapsOf(pid)
	i, exact := slices.BinarySearchFunc(list, at, func(m door.Mapping, at uint64) int {
		return cmp.Compare(m.From, at)
	})
	if !exact {
		i--
	}
	if i < 0 || at >= list[i].To {
		return door.Mapping{}, false
	}
	return list[i], true
}

// mapsOf returns the mappings of a process. Of one that has just ended, the kernel has none: then they are those with
// which its stacks were walked.
func (s *Symbolizer) mapsOf(pid uint32) []door.Mapping {
	list, ok := s.maps[pid]
	if !ok {
		list = s.readMaps(pid)
		if len(list) == 0 && s.met != nil {
			list = s.met.names.maps[pid]
		}
		s.maps[pid] = list // even if it has none: its addresses stay unknown
	}
	return list
}

func (s *Symbolizer) readMaps(pid uint32) []door.Mapping {
	f, err := door.Maps(s.pidPath(pid, ""))
	if err != nil {
		return nil
	}
	defer f.Close()
	list, err := firewall.Parse("the mappings", func() ([]door.Mapping, error) { return parseMaps(f) })
	if err != nil {
		return nil
	}
	slices.SortFunc(list, func(a, b door.Mapping) int { return cmp.Compare(a.From, b.From) })
	return list
}

// binaryOf returns the functions of a mapped file; nil if it cannot be read, or is not an ELF file.
func (s *Symbolizer) binaryOf(pid uint32, m door.Mapping) *objectFile {
	key := mappedFile{pid, m.Path, m.Deleted}
	b, known := s.binaries[key]
	if known {
		return b
	}
	if s.until.IsZero() {
		s.until = time.Now().Add(readTime)
	}
	if time.Now().After(s.until) {
		return nil
	}
	s.binaries[key] = nil
	f, err := s.openMapped(pid, m)
	if err != nil && s.met != nil {
		f, err = s.met.open(pid, m)
	}
	if err != nil {
		return nil
	}
	id, err := identify(f)
	if err != nil {
		_ = f.Close() // nothing was written
		return nil
	}
	if b, known = s.files[id]; known {
		_ = f.Close() // likewise
	} else {
		b = s.hold(m, f, s.readFile(pid, m, f))
		s.files[id] = b
	}
	s.binaries[key] = b
	return b
}

// hold keeps a file open for its names, which are read when they are asked for. A file without functions is closed. It
// returns nil if too many are open.
func (s *Symbolizer) hold(m door.Mapping, f *os.File, b *objectFile) *objectFile {
	switch {
	case b == nil || b.table == nil && len(b.tables) == 0:
		_ = f.Close() // nothing was written
	case len(s.held) >= maxHeldFiles:
		_ = f.Close() // likewise
		s.note(m, fmt.Errorf("%w: of at most %d files are the functions named", door.ErrTooLarge, maxHeldFiles))
		return nil
	default:
		s.held = append(s.held, f)
	}
	return b
}

// readFile reads the functions of a file; nil if that fails.
func (s *Symbolizer) readFile(pid uint32, m door.Mapping, f *os.File) *objectFile {
	b, err := firewall.Parse(elfOf(pid), func() (*objectFile, error) { return s.elf(f, s.left) })
	if err != nil {
		s.note(m, err)
		return nil
	}
	s.note(m, firewall.Run(elfOf(pid), func() error { s.addDebugSymbols(pid, b); return nil }))
	return b
}

func elfOf(pid uint32) string { return fmt.Sprintf("an ELF file of pid %d", pid) }

// note keeps why functions of a file have no names, if the reason is a bound or a fault of perfdoctor. Most files
// just have none.
func (s *Symbolizer) note(m door.Mapping, err error) {
	if err == nil || !errors.Is(err, door.ErrTooLarge) && !firewall.IsFault(err) {
		return
	}
	s.nameless = append(s.nameless, fmt.Sprintf("names of the functions of %q: %v", m.Path, err))
}

// AppendNameless records what has no names although there may be some, and why.
func (s *Symbolizer) AppendNameless(a *recording.Appender) {
	for _, what := range s.nameless {
		a.Lost(1, what)
	}
	if s.late {
		a.Lost(1, fmt.Sprintf("names of functions: reading them took %s", readTime))
	}
}

func identify(f *os.File) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fileID{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fileID{}, fmt.Errorf("%s is no regular file", f.Name())
	}
	return fileID{st.Dev, st.Ino}, nil
}

// openMapped opens the file of a mapping. If the file was replaced, as in an upgrade, it opens the one that is still
// mapped, and the kernel requires CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN for that (proc_map_files_get_link in
// fs/proc/base.c).
func (s *Symbolizer) openMapped(pid uint32, m door.Mapping) (*os.File, error) {
	if m.Deleted {
		return door.OpenMagic(s.pidPath(pid, ""), fmt.Sprintf("map_files/%x-%x", m.From, m.To))
	}
	return s.openInRoot(pid, m.Path)
}

// openInRoot opens a file that the process may read, by its path in the process's root.
func (s *Symbolizer) openInRoot(pid uint32, path string) (*os.File, error) {
	root, err := door.Enter(s.pidPath(pid, ""))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.Open(path)
}

func (s *Symbolizer) pidPath(pid uint32, name string) string {
	return filepath.Join(s.proc, strconv.FormatUint(uint64(pid), 10), name)
}
