package python

import (
	"encoding/binary"
	"regexp"

	"github.com/perfdoctor/perfdoctor/internal/host/memory"
)

// greenletFile matches the library that gevent and eventlet are made with.
var greenletFile = regexp.MustCompile(`^_greenlet\..*\.so$`)

// A greenletLayout says how to find the outermost frame of a greenlet that was switched away from. An object
// (PyFrameObject) keeps it, which the switch makes of it.
type greenletLayout struct {
	// frame is where that object has the address of the frame; 0 until 3.10, where the object is the frame itself.
	frame uint64
	// owner is where a frame says whose it is: 0 is a thread's (enum _frameowner). Until 3.10 the byte at runs has the
	// given value in a frame that runs.
	owner uint64
	runs  uint64
	value byte
}

// HasGreenlets reports whether the program uses greenlets, each with a stack of its own, and whether they can be
// found.
func (p *Process) HasGreenlets() bool {
	files, err := memory.Files(p.dir, greenletFile.MatchString)
	return err == nil && len(files) > 0 && p.frameType != 0
}

// Greenlets finds the stacks of greenlets that were switched away from. No list has them, and their object has another
// form in each version of the library. But a frame that belongs to a thread, runs, and is on no thread's stack is one
// of theirs. whole is false if there was more memory than is searched.
func (p *Process) Greenlets() (list []Coroutine, whole bool, err error) {
	running := map[uint64]bool{}
	if err := p.onThreads(running); err != nil {
		return nil, false, err
	}
	found, whole, err := memory.Search(p.read, p.dir, []uint64{p.frameType}, typeOffset, p.switched)
	if err != nil {
		return nil, false, err
	}
	if err := p.onThreads(running); err != nil { // those that were switched to meanwhile
		return nil, false, err
	}
	inner, stacks := map[uint64]bool{}, map[uint64][]Call{}
	for _, frame := range found {
		if running[frame] {
			continue
		}
		calls, frames := p.chain(frame)
		stacks[frame] = calls
		for _, f := range frames[min(1, len(frames)):] { // the callers of that frame
			inner[f] = true
		}
	}
	for frame, calls := range stacks {
		if !inner[frame] && len(calls) > 0 {
			list = append(list, Coroutine{Address: frame, Calls: calls})
		}
	}
	return list, whole, nil
}

// onThreads adds the frames that threads run.
func (p *Process) onThreads(frames map[uint64]bool) error {
	threads, err := p.Threads(func(int) bool { return true })
	if err != nil {
		return err
	}
	for _, t := range threads {
		frame, err := p.innermost(t)
		if err != nil {
			continue // it has ended
		}
		_, list := p.chain(frame)
		for _, f := range list {
			frames[f] = true
		}
	}
	return nil
}

// chain returns the calls from a frame on, the innermost first, with the addresses of their frames, as far as they can
// be read: the part of a greenlet's stack that lies on the C stack is away until the greenlet is switched to.
func (p *Process) chain(frame uint64) (calls []Call, frames []uint64) {
	_ = p.walk(frame, func(at uint64, c Call, own bool) { // what was read before an error is valid
		frames = append(frames, at)
		if !own {
			calls = append(calls, c)
		}
	})
	return calls, frames
}

// switched reads the frame that an object belongs to; ok is false unless it is a thread's frame that runs.
func (p *Process) switched(at uint64) (frame uint64, ok bool) {
	const head = 120 // of the object, which is the frame until 3.10
	var b [head]byte
	if p.read(at, b[:]) != nil || !isObject(b[:]) {
		return 0, false
	}
	g := &p.layout.greenlet
	if g.frame == 0 {
		return at, b[g.runs] == g.value
	}
	frame = binary.LittleEndian.Uint64(b[g.frame:])
	var f [frameSize]byte
	if frame == 0 || p.read(frame, f[:]) != nil || f[g.owner] != 0 {
		return 0, false
	}
	_, own, err := p.call(f[:])
	return frame, err == nil && !own
}
