package scripts

import (
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

const (
	// taskShare is the part of a CPU that the search for coroutines may take: one of 100 MiB takes 50 ms. taskPeriod is
	// how often there is one at most. maxTasks bounds those that are kept of one, each of which is a series.
	taskShare  = 0.01
	taskPeriod = 500 * time.Millisecond
	maxTasks   = 500
	// firstWait bounds the time from the first search to the second, so that a window of five seconds has some.
	firstWait = time.Second
)

// A task is a coroutine, or an asynchronous function, at an await: its address, and its calls, the innermost first.
type task struct {
	address uint64
	calls   []stacks.Frame
}

// tasks samples what those of a process wait for. A nil one samples nothing.
type tasks struct {
	// find gives them. whole is false where some may be missing.
	find       func() (list []task, whole bool, err error)
	last, next time.Time
	looked     bool
	list       []task         // as they were found last
	numbers    map[uint64]int // by address
}

// tasksBy makes one of a process, whose samples last until the end of the window.
func (s *source) tasksBy(find func() (list []task, whole bool, err error)) *tasks {
	now := time.Now()
	t := &tasks{find: find, last: now, next: now.Add(taskPeriod), numbers: map[uint64]int{}}
	s.searches = append(s.searches, t)
	return t
}

// pass looks where they stand, if it is time. Each stands there since the look before.
func (t *tasks) pass(s *source) {
	began, now := collect.ThreadCPU(), time.Now()
	if t == nil || now.Before(t.next) {
		return
	}
	list, whole, err := t.find()
	if err != nil || !whole {
		s.lost++
	}
	t.list = list
	t.add(s, now)
	wait := max(time.Duration(float64(collect.ThreadCPU()-began)/taskShare), taskPeriod)
	if !t.looked { // which learns what to look for: those after it take a quarter of the time
		wait = min(wait, firstWait)
	}
	t.next, t.looked = now.Add(wait), true
}

// add adds the time since it was called last to where the tasks stood when one looked last.
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

// numberOf counts those of a process, for which an address is too large.
func (t *tasks) numberOf(address uint64) int {
	if t.numbers[address] == 0 {
		t.numbers[address] = len(t.numbers) + 1
	}
	return t.numbers[address]
}
