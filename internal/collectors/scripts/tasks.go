package scripts

import (
	"context"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

const (
	// taskShare is the part of a CPU that the search for coroutines may take: one of 100 MiB takes 50 ms. taskPeriod
	// is the shortest time between two searches. maxTasks bounds the coroutines that are kept of one search: each is a
	// series.
	taskShare  = 0.01
	taskPeriod = 500 * time.Millisecond
	maxTasks   = 500
)

// taskPace is the pace of the searches.
var taskPace = collect.Passes{Share: taskShare, Least: taskPeriod, Longest: 2 * time.Second}

// A task is a coroutine, or an asynchronous function, at an await: its address, and its calls, the innermost first.
type task struct {
	address uint64
	calls   []stacks.Frame
}

// taskOf makes a task of an interpreter's own calls.
func taskOf[C any](address uint64, calls []C, frame func(C) stacks.Frame) task {
	t := task{address: address}
	for _, c := range calls {
		t.calls = append(t.calls, frame(c))
	}
	return t
}

// tasks samples what the tasks of a process wait for.
type tasks struct {
	// find returns the tasks. whole is false if some may be missing.
	find    func() (list []task, whole bool, err error)
	last    time.Time
	list    []task         // those found last
	numbers map[uint64]int // by address
}

// tasksBy begins to sample the tasks of a process, until the end of the window.
func (s *source) tasksBy(find func() (list []task, whole bool, err error)) {
	now := time.Now()
	s.searches = append(s.searches, &tasks{find: find, last: now, numbers: map[uint64]int{}})
}

// search looks where the tasks of all processes stand. It has passes of its own, since each takes as long as a hundred
// looks at threads, and would delay these.
func (s *source) search(context.Context) (idle bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.searches {
		t.look(s)
	}
	return len(s.searches) == 0, nil
}

// look notes where the tasks stand. Each is taken to stand there since the look before.
func (t *tasks) look(s *source) {
	now := time.Now()
	if now.Sub(t.last) < taskPeriod/2 && len(t.list) == 0 { // the process has just begun
		return
	}
	list, whole, err := t.find()
	if err != nil || !whole {
		s.lost++
	}
	t.list = list
	t.add(s, now)
}

// add adds the time since the last call to where the tasks stood at the last look.
func (t *tasks) add(s *source, now time.Time) {
	stride := (len(t.list) + maxTasks - 1) / maxTasks
	since := now.Sub(t.last) * time.Duration(max(stride, 1))
	t.last = now
	for i, x := range t.list {
		if i%stride != 0 || len(x.calls) == 0 {
			continue
		}
		sample := stacks.Sample{State: stacks.Sleeping, Count: 1, Value: int64(since)}
		for _, c := range x.calls {
			sample.Stack = append(sample.Stack, s.tasks.Frame(c))
		}
		sample.Thread = s.tasks.Thread(stacks.Thread{ID: t.numberOf(x.address), Name: x.calls[len(x.calls)-1].Name})
		s.tasks.Add(sample)
	}
}

// numberOf numbers the tasks of a process, since an address is too large for a thread's id.
func (t *tasks) numberOf(address uint64) int {
	if t.numbers[address] == 0 {
		t.numbers[address] = len(t.numbers) + 1
	}
	return t.numbers[address]
}
