package goroutines

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/host/gotable"
	"github.com/perfdoctor/perfdoctor/internal/host/memory"
)

const (
	// atOnce is how many goroutines a pass looks at, 3 µs each. If there are more, the others have their turn in the
	// next pass.
	atOnce = 1000
	// maxGoroutines bounds the goroutines that a program may claim to have: a million need 2 GiB for their stacks.
	maxGoroutines = 1 << 22
	// maxData bounds the variables of a program that are searched for the list of goroutines, in bytes: the kubelet's
	// take 0.3 MB.
	maxData = 64 << 20
	// maxCandidates bounds the candidates for the list, each of them a read of memory: a slice is three words that
	// fit together, and a program's variables hold some hundreds of slices.
	maxCandidates = 10_000
	// dataAtOnce is how much of the variables is read at once, in bytes.
	dataAtOnce = 64 << 10
	// maxDepth bounds the frames that are read of a stack, the innermost first, like async-profiler's own bound for
	// Java.
	maxDepth = 128
	// stackAtOnce is how much of a stack is read at once, in bytes: a goroutine starts with 2 KiB.
	stackAtOnce = 2 << 10
	// maxNames bounds the code addresses whose functions are kept.
	maxNames = 1 << 16
)

// errNone says that a process is not a Go program.
var errNone = errors.New("it is no program in Go")

// A program is a running Go program. It is not safe for concurrent use.
type program struct {
	pid     int
	module  string // its file's base name
	version string // of Go

	file   *memory.Object
	read   memory.Reader
	table  *gotable.Table
	layout layout
	list   uint64                    // address of runtime.allgs, a slice of pointers
	called map[uint64][]gotable.Call // functions by code address
	entry  map[uint64]string         // what goroutines were started with, by start function
	block  int                       // the block of the list that was looked at last
	blocks int                       // in the list
	looks  int
	ended  bool
	stack  []byte
	data   []byte
}

// openProgram looks into the process whose directory in /proc is dir. left is what remains for the functions of all
// programs. The error is [errNone] if the process is not a Go program.
func openProgram(dir string, pid int, left *door.TableBudget) (*program, error) {
	file, err := memory.Executable(dir)
	if err != nil {
		return nil, err
	}
	object, err := file.Open()
	if err != nil {
		return nil, err
	}
	p := &program{
		pid: pid, module: file.Base, file: object, read: memory.Of(pid),
		called: map[uint64][]gotable.Call{}, entry: map[uint64]string{},
		stack: make([]byte, stackAtOnce), block: rand.IntN(maxGoroutines / atOnce), // start anywhere
	}
	if err := p.prepare(left); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *program) close() { _ = p.file.Close() } // nothing was written

// prepare reads how the program was built, and finds its list of goroutines.
func (p *program) prepare(left *door.TableBudget) (err error) {
	if p.file.Section(".go.buildinfo") == nil {
		return errNone
	}
	info, err := p.file.BuildInfo()
	if err != nil {
		return fmt.Errorf("how it was built: %w", err)
	}
	p.version = info.GoVersion
	if p.layout, err = layoutOf(p.version); err != nil {
		return err
	}
	if p.table, err = gotable.Open(p.file.File, left); err != nil {
		return err
	}
	if p.table == nil {
		return errors.New("it has no table of functions")
	}
	return p.findList()
}

// findList looks for runtime.allgs among the program's variables. A stripped program has no symbol for it, but what
// it points to cannot be anything else: goroutines that each have their own address in sched.g, and the first has the
// number 1.
func (p *program) findList() error {
	section := p.file.Section(".bss")
	if section == nil {
		return errors.New("it has no variables")
	}
	if section.Size > maxData {
		return fmt.Errorf("its variables have %d bytes, at most %d are looked through", section.Size, maxData)
	}
	const slice = 24
	begin, left := section.Addr+p.file.Bias, maxCandidates
	words := make([]byte, dataAtOnce+slice)
	for at := uint64(0); at+slice <= section.Size && left > 0; at += dataAtOnce {
		piece := words[:min(uint64(len(words)), section.Size-at)]
		if err := p.read(begin+at, piece); err != nil {
			return fmt.Errorf("its variables: %w", err)
		}
		for i := 0; i+slice <= len(piece) && left > 0; i += 8 {
			first, n, most := word(piece, i), word(piece, i+8), word(piece, i+16)
			if first == 0 || first%8 != 0 || n == 0 || n > most || most > maxGoroutines {
				continue
			}
			left--
			if p.isList(first) {
				p.list = begin + at + uint64(i)
				return nil
			}
		}
	}
	return errors.New("its list of goroutines was not found")
}

func (p *program) isList(first uint64) bool {
	g, err := p.read.Word(first)
	if err != nil || g == 0 || g%8 != 0 {
		return false
	}
	var head [headSize]byte
	return p.read(g, head[:]) == nil && word(head[:], schedG) == g && word(head[:], int(p.layout.id)) == 1
}

func word(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

// look calls do for goroutines, or for some of them if there are many: each says how many one stands for. Frames are
// the innermost first, and nil for a running goroutine, whose stack changes. The runtime's own goroutines are left
// out. lost is how many could not be read because they changed meanwhile.
func (p *program) look(do func(g *goroutine)) (each float64, lost int, err error) {
	var slice [16]byte
	if err := p.read(p.list, slice[:]); err != nil {
		return 0, 0, err
	}
	first, n := word(slice[:], 0), int(min(word(slice[:], 8), maxGoroutines))
	if n == 0 {
		return 1, 0, nil
	}
	p.blocks = (n + atOnce - 1) / atOnce
	p.block = (p.block + 1) % p.blocks
	p.looks++
	size := (n + p.blocks - 1) / p.blocks
	from := p.block * size
	pointers := p.buffer(8 * max(0, min(size, n-from)))
	if err := p.read(first+uint64(8*from), pointers); err != nil {
		return 0, 0, err
	}
	var g goroutine
	for i := 0; i < len(pointers); i += 8 {
		switch err := p.goroutine(word(pointers, i), &g); {
		case errors.Is(err, memory.ErrNowhere) || errors.Is(err, errChanged):
			lost++
		case err != nil:
			return 0, lost, err
		case g.state != gone && !g.runtimes():
			do(&g)
		}
	}
	return float64(p.blocks), lost, nil
}

func (p *program) buffer(size int) []byte {
	if cap(p.data) < size {
		p.data = make([]byte, size)
	}
	return p.data[:size]
}
