package scripts

import (
	"github.com/perfdoctor/perfdoctor/internal/collectors/scripts/ruby"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A rubyReader reads the threads of Ruby.
type rubyReader struct {
	process *ruby.Process
	threads []ruby.Thread
	frames  []stacks.Frame // reused
}

func (r *rubyReader) name() string { return "Ruby " + r.process.Version }

func (r *rubyReader) list(ids func(int) bool) (list []int, err error) {
	if r.threads, err = r.process.Threads(ids); err != nil {
		return nil, changed(err, ruby.ErrChanged)
	}
	for _, t := range r.threads {
		list = append(list, t.ID)
	}
	return list, nil
}

func (r *rubyReader) stack(i int) ([]stacks.Frame, error) {
	found, err := r.process.Stack(r.threads[i])
	r.frames = r.frames[:0]
	for _, c := range found {
		if c.Function != "" { // otherwise its time counts for the caller
			r.frames = append(r.frames, frameOfRuby(c))
		}
	}
	return r.frames, changed(err, ruby.ErrChanged)
}

func (r *rubyReader) wantsLock(i int, address uint64) bool {
	t := r.threads[i]
	if !t.HasLockAt(address) {
		return false
	}
	calls, err := r.process.Stack(t)
	return err == nil && ruby.WantLock(calls)
}

func frameOfRuby(c ruby.Call) stacks.Frame {
	file := c.File
	if c.Core {
		file = "ruby:core"
	}
	return stacks.Frame{Name: "RUBY:" + c.Function + " " + file, Line: c.Line, Kind: stacks.Interpreted}
}
