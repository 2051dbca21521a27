// Package usage is the account of the CPU time of processes that come and go.
//
// A process that was read twice tells by itself what it used between. One that began after the first reading of all has
// used what its own first reading shows. One that ended shows in its parent's counter of children, as soon as that has
// waited for it: with all of its life, and with what its own children had used. What had been read of it before is
// taken off there, so that each second counts once, whether anybody ever read the process or not. What remains unseen
// are children that nobody waits for, because their parent ignores SIGCHLD (kernel/exit.c, wait_task_zombie), and those
// that still run at the last reading without having been read.
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

// Sum is the time in both modes.
func (s Split) Sum() float64 { return s.User + s.System }

func (s Split) plus(o Split) Split { return Split{s.User + o.User, s.System + o.System} }

// rest is what the other leaves of it, at least nothing. What one mode lacks is taken from the other: the kernel splits
// the time of a process by its ticks, and that of its ended children anew (cputime_adjust, kernel/sched/cputime.c).
func (s Split) rest(o Split) Split {
	user, system := s.User-o.User, s.System-o.System
	return Split{max(0, user+min(0, system)), max(0, system+min(0, user))}
}

// Times multiplies both.
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
	Used   Split  // in the window, as far as it was read itself
	// Children is what its children that ended used in the window, and theirs, as far as none of them was read.
	Children float64

	last            Split // its own and its children's time at its last reading, since it began
	firstAt, lastAt time.Duration
}

// A Tree is what the processes of one membership used together.
type Tree struct {
	Processes []*Process // by pid
	Window    float64    // seconds from the first reading to the last
	Used      Split      // by all
	// Unread is the part of it that no process shows itself: of those that ended between two readings.
	Unread Split
	// Points are what had been used at each reading since the first.
	Points []recording.Point
}

// Of makes the account of the target's processes or of the host's others. ok is false without two readings.
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
	for _, pid := range slices.Sorted(maps.Keys(byPID)) { // sums of one recording are the same to the last bit
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

// A reading is what was read of a process at one moment, since it began.
type reading struct {
	at          time.Duration
	comm        string
	own, waited Split
	born        float64 // seconds after the recording began, negative before; only if dated
	dated       bool
}

// late is how much later than its sample's time a process may have been read: it is listed after that was taken.
const late = 0.1

// another tells that the reading is of another process than an earlier one with the same pid.
func (r *reading) another(before *reading) bool {
	return r.own.Sum() < before.own.Sum() || r.dated && r.born > before.at.Seconds()+late
}

// readings gives what was read of each process, in order of time.
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

// parents gives the parent of each process, as it was recorded last.
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

// lives cuts the readings of a pid where it was given to another process.
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

// A builder adds up what processes show, by the reading at which they show it.
type builder struct {
	ticks         []time.Duration
	own           map[time.Duration]Split
	waited, ended map[time.Duration]map[int]Split // by the pid of who waits
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
	if p.Began { // all that it shows is of the window
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

// next gives the first moment of a reading after another.
func (b *builder) next(at time.Duration) time.Duration {
	i, found := slices.BinarySearch(b.ticks, at)
	if found {
		i++
	}
	return b.ticks[min(i, len(b.ticks)-1)]
}

// nobody stands for who waited where parents were not recorded.
const nobody = 0

// deepest is how far ancestors are sought: deeper trees of processes that all ended in one window are none.
const deepest = 64

// takeOff puts what was read of processes that ended against the nearest ancestor that was there afterwards: it has
// waited for them, or for one that had.
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

// waits gives the process that is there at a reading, or else its nearest ancestor that is.
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

// unread gives what processes of the list waited for at a reading and nobody had read, and adds it to those that wait.
// What was read of children of nobody known is taken off all. What was read of children that nobody has waited for yet
// is taken off at the next reading.
func (b *builder) unread(at time.Duration, list []*Process) (sum Split) {
	b.carry(at)
	for _, p := range list {
		n := b.waited[at][p.PID].rest(b.ended[at][p.PID])
		delete(b.waited[at], p.PID) // of two processes with one pid the first has it
		sum = sum.plus(n)
		if !p.Ended {
			p.Children += n.Sum()
		}
	}
	return sum.rest(b.ended[at][nobody])
}

// carry moves what is more than was waited for at a reading to the next one.
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
