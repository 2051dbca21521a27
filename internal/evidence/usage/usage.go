// Package usage accounts for the CPU time of processes that come and go.
//
// A process that was read twice shows by itself what it used in between. A process that began after the first reading
// of all processes has used what its own first reading shows. A process that ended shows up in its parent's counter
// of children once the parent has waited for it: with its whole life, and with what its own children had used. What
// was read of it before is subtracted there, so each second counts once, whether the process was ever read or not.
// Two kinds of processes remain unseen: children that nobody waits for because their parent ignores SIGCHLD
// (kernel/exit.c, wait_task_zombie), and children that still run at the last reading and were never read.
package usage

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// The values of the label member of [metric.ProcessCPU].
const (
	MemberTarget = "target"
	MemberHost   = "host"
)

// A Split is CPU time by mode, in seconds.
type Split struct{ User, System float64 }

// Sum returns the time in both modes.
func (s Split) Sum() float64 { return s.User + s.System }

func (s Split) plus(o Split) Split { return Split{s.User + o.User, s.System + o.System} }

// rest returns s minus o, at least zero. What one mode lacks is taken from the other: the kernel splits the time of a
// process by its ticks, and splits the time of its ended children anew (cputime_adjust, kernel/sched/cputime.c).
func (s Split) rest(o Split) Split {
	user, system := s.User-o.User, s.System-o.System
	return Split{max(0, user+min(0, system)), max(0, system+min(0, user))}
}

// Times returns s with both modes multiplied.
func (s Split) Times(by float64) Split { return Split{s.User * by, s.System * by} }

func (s *Split) add(mode string, n float64) {
	switch mode {
	case "user":
		s.User += n
	case "system":
		s.System += n
	}
}

// A Process is one process, from its first reading to its last.
type Process struct {
	PID    int
	Comm   string // as it was read last: exec changes it
	Parent int    // 0 where that was not recorded
	Began  bool   // after the first reading of all
	Ended  bool   // before the last
	Used   Split  // in the window, as far as its own readings show
	// Children is what its ended children and their descendants used in the window, as far as it was not read from
	// them.
	Children float64

	last            Split // its own and its children's time at its last reading, since it began
	firstAt, lastAt time.Duration
}

// A Tree is what all processes with one value of the label member used.
type Tree struct {
	Processes []*Process // by pid
	Window    float64    // seconds from the first reading to the last
	Used      Split      // by all
	// Unread is the part of Used that no process shows itself, because the process ended between two readings.
	Unread Split
	// Points is what had been used since the first reading, at each reading.
	Points []recording.Point
}

// Of builds the tree of the target's processes or of the other processes of the host. ok is false without two
// readings.
func Of(rec *recording.Recording, member string) (t *Tree, ok bool) {
	byPID := readings(rec, member)
	b := builder{
		ticks: ticks(byPID), own: map[time.Duration]Split{},
		waited: map[time.Duration]map[int]Split{}, ended: map[time.Duration]map[int]Split{},
	}
	if len(b.ticks) < 2 {
		return nil, false
	}
	parentOf := parents(rec)
	t = &Tree{Window: (b.last() - b.first()).Seconds()}
	for _, pid := range slices.Sorted(maps.Keys(byPID)) { // in order: sums are the same to the last bit
		for _, life := range lives(byPID[pid]) {
			p := b.process(pid, life)
			p.Parent = parentOf[pid]
			t.Processes = append(t.Processes, p)
		}
	}
	b.takeOff(t.Processes)
	for _, at := range b.ticks {
		unread := b.unread(at, t.Processes)
		t.Unread = t.Unread.plus(unread)
		t.Used = t.Used.plus(b.own[at]).plus(unread)
		t.Points = append(t.Points, recording.Point{At: at, Value: t.Used.Sum()})
	}
	return t, true
}

// A reading is what a process had used since it began, read at one moment.
type reading struct {
	at          time.Duration
	comm        string
	own, waited Split
	born        float64 // seconds after the recording began, negative before; only if dated
	dated       bool
}

// late is how much later than its sample's time a process may have been read: processes are listed after that time is
// taken.
const late = 0.1

// another reports whether the reading is of another process than an earlier reading with the same pid.
func (r *reading) another(before *reading) bool {
	return r.own.Sum() < before.own.Sum() || r.dated && r.born > before.at.Seconds()+late
}

// readings returns what was read of each process, in order of time.
func readings(rec *recording.Recording, member string) map[int][]*reading {
	type key struct {
		pid int
		at  time.Duration
	}
	byKey := map[key]*reading{}
	for _, s := range rec.Counter(metric.ProcessCPU, "member", member) {
		pid := number(s.Label("pid"))
		for _, p := range s.Points {
			r := byKey[key{pid, p.At}]
			if r == nil {
				r = &reading{at: p.At}
				byKey[key{pid, p.At}] = r
			}
			r.comm = s.Label("comm")
			r.own.add(s.Label("mode"), p.Value)
		}
	}
	for _, s := range rec.Counter(metric.ProcessChildrenCPU, "member", member) {
		for _, p := range s.Points {
			if r := byKey[key{number(s.Label("pid")), p.At}]; r != nil {
				r.waited.add(s.Label("mode"), p.Value)
			}
		}
	}
	for _, s := range rec.Gauge(metric.ProcessStart) {
		for _, p := range s.Points {
			if r := byKey[key{number(s.Label("pid")), p.At}]; r != nil {
				r.born, r.dated = p.At.Seconds()-p.Value, true
			}
		}
	}
	out := map[int][]*reading{}
	for k, r := range byKey {
		out[k.pid] = append(out[k.pid], r)
	}
	for _, list := range out {
		slices.SortFunc(list, func(x, y *reading) int { return cmp.Compare(x.at, y.at) })
	}
	return out
}

func number(pid string) int {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return 0
	}
	return n
}

// parents returns the parent of each process, as it was recorded last.
func parents(rec *recording.Recording) map[int]int {
	out, when := map[int]int{}, map[int]time.Duration{}
	for _, s := range rec.Info(metric.ProcessInfo) {
		pid, at := number(s.Label("pid")), s.Points[len(s.Points)-1].At
		if _, known := out[pid]; !known || at > when[pid] {
			out[pid], when[pid] = number(s.Label("parent")), at
		}
	}
	return out
}

func ticks(byPID map[int][]*reading) []time.Duration {
	var out []time.Duration
	for _, list := range byPID {
		for _, r := range list {
			out = append(out, r.at)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// lives splits the readings of a pid where the pid went to another process.
func lives(list []*reading) [][]*reading {
	var out [][]*reading
	from := 0
	for i := 1; i <= len(list); i++ {
		if i == len(list) || list[i].another(list[i-1]) {
			out = append(out, list[from:i])
			from = i
		}
	}
	return out
}

// A builder adds up the CPU time that processes show, by reading.
type builder struct {
	ticks         []time.Duration
	own           map[time.Duration]Split
	waited, ended map[time.Duration]map[int]Split // by the pid of the waiting parent
	lives         map[int][]*Process
}

func (b *builder) first() time.Duration { return b.ticks[0] }
func (b *builder) last() time.Duration  { return b.ticks[len(b.ticks)-1] }

// process adds one process, from its first reading to its last.
func (b *builder) process(pid int, life []*reading) *Process {
	begin, end := life[0], life[len(life)-1]
	p := &Process{
		PID: pid, Comm: end.comm, Ended: end.at < b.last(), last: end.own.plus(end.waited),
		firstAt: begin.at, lastAt: end.at,
		Began: begin.at > b.first() && begin.dated && begin.born >= b.first().Seconds(),
	}
	before := begin
	if p.Began { // all that it shows is in the window
		before = &reading{}
	}
	for _, r := range life {
		own := r.own.rest(before.own)
		b.own[r.at] = b.own[r.at].plus(own)
		p.Used = p.Used.plus(own)
		put(b.waited, r.at, pid, r.waited.rest(before.waited))
		before = r
	}
	return p
}

func put(into map[time.Duration]map[int]Split, at time.Duration, pid int, n Split) {
	if into[at] == nil {
		into[at] = map[int]Split{}
	}
	into[at][pid] = into[at][pid].plus(n)
}

// next returns the time of the next reading.
func (b *builder) next(at time.Duration) time.Duration {
	i, found := slices.BinarySearch(b.ticks, at)
	if found {
		i++
	}
	return b.ticks[min(i, len(b.ticks)-1)]
}

// nobody is the pid of the waiting parent if parents were not recorded.
const nobody = 0

// deepest bounds the search for ancestors: deeper trees of processes that all end in one window do not occur.
const deepest = 64

// takeOff sets what was read of ended processes against the nearest ancestor that was there afterwards: it has waited
// for them, or for a process that had.
func (b *builder) takeOff(list []*Process) {
	b.lives = map[int][]*Process{}
	for _, p := range list {
		b.lives[p.PID] = append(b.lives[p.PID], p)
	}
	for _, p := range list {
		if p.Ended {
			at := b.next(p.lastAt)
			put(b.ended, at, b.waits(p.Parent, at), p.last)
		}
	}
}

// waits returns the process if it is there at a reading, or else its nearest ancestor that is.
func (b *builder) waits(pid int, at time.Duration) int {
	for range deepest {
		var before *Process
		for _, p := range b.lives[pid] {
			switch {
			case p.firstAt <= at && at <= p.lastAt:
				return pid
			case p.lastAt < at:
				before = p
			}
		}
		if before == nil {
			return nobody
		}
		pid = before.Parent
	}
	return nobody
}

// unread returns what processes of the list waited for at a reading without it having been read, and adds it to these
// processes. What was read of children without a known parent is subtracted from all. What was read of children that
// nobody has waited for yet is subtracted at the next reading.
func (b *builder) unread(at time.Duration, list []*Process) (sum Split) {
	b.carry(at)
	for _, p := range list {
		n := b.waited[at][p.PID].rest(b.ended[at][p.PID])
		delete(b.waited[at], p.PID) // the first of two processes with one pid gets it
		sum = sum.plus(n)
		if !p.Ended {
			p.Children += n.Sum()
		}
	}
	return sum.rest(b.ended[at][nobody])
}

// carry moves what exceeds the time waited for at a reading to the next reading.
func (b *builder) carry(at time.Duration) {
	next := b.next(at)
	if next == at {
		return
	}
	for _, pid := range slices.Sorted(maps.Keys(b.ended[at])) {
		if left := b.ended[at][pid].rest(b.waited[at][pid]); pid != nobody && left.Sum() > 0 {
			put(b.ended, next, b.waits(pid, next), left)
		}
	}
}
