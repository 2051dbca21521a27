package scripts

import (
	"errors"

	"github.com/perfdoctor/perfdoctor/internal/collectors/scripts/python"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A pythonReader reads the threads of CPython.
type pythonReader struct {
	process *python.Process
	threads []python.Thread
	frames  []stacks.Frame // reused
}

func (r *pythonReader) name() string { return "CPython " + r.process.Version.String() }

func (r *pythonReader) list(ids func(int) bool) (list []int, err error) {
	if r.threads, err = r.process.Threads(ids); err != nil {
		return nil, changed(err, python.ErrChanged)
	}
	for _, t := range r.threads {
		list = append(list, t.ID)
	}
	return list, nil
}

func (r *pythonReader) stack(i int) ([]stacks.Frame, error) {
	found, err := r.process.Stack(r.threads[i])
	r.frames = r.frames[:0]
	for _, c := range found {
		r.frames = append(r.frames, frameOf(c))
	}
	return r.frames, changed(err, python.ErrChanged)
}

func (r *pythonReader) wantsLock(_ int, address uint64) bool { return r.process.IsLock(address) }

func (r *pythonReader) tasks() (list []task, whole bool, err error) {
	return tasksOf(r.process.Coroutines())
}

func (r *pythonReader) greenlets() (list []task, whole bool, err error) {
	return tasksOf(r.process.Greenlets())
}

func tasksOf(found []python.Coroutine, whole bool, err error) ([]task, bool, error) {
	var list []task
	for _, c := range found {
		list = append(list, taskOf(c.Address, c.Calls, frameOf))
	}
	return list, whole, err
}

// changed returns [errChanged] for an interpreter's own error that says so.
func changed(err, own error) error {
	if errors.Is(err, own) {
		return errChanged
	}
	return err
}

// frameOf names a function as CPython itself does in a file for perf (Python/perf_trampoline.c).
func frameOf(c python.Call) stacks.Frame {
	return stacks.Frame{Name: "py::" + c.Function + ":" + c.File, Line: c.Line, Kind: stacks.Interpreted}
}
