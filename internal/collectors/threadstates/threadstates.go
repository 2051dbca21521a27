// Package threadstates samples what the target's threads are in: the state, the system call, and what that waits for.
//
// It reads only files in /proc, so it works on every kernel and costs a known share of a CPU. A tracer has no event
// for a wait that began before the window and does not end; here it is seen like any other.
package threadstates

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/kernel/syscalls"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// pace: passes take 0.3 ms for 20 threads; more than 50 passes a second show nothing more in 10 s.
var pace = collect.Passes{Share: 0.01, Least: 20 * time.Millisecond, Longest: time.Second}

const (
	// maxThreads bounds the threads of one pass: 16 µs each, so 16 ms. If there are more, a pass looks at a half, a
	// quarter and so on, which stands for all. It is the same in each pass, because a time is what lies between two
	// looks.
	maxThreads = 1000
	// maxSeries bounds the series: the longest times have one. The rest is summed up by pool.
	maxSeries = 500
	// maxConnections bounds the connections that are reported: more than the threads of most pools.
	maxConnections = 200
)

// Collectors lists this package's collector.
func Collectors() []collect.Collector {
	return []collect.Collector{{
		Name: "thread-states",
		Doc:  "What the target's threads stand in: running, or in which system call they wait, and what for.",
		Overhead: "16 µs a thread and pass, of which there are so many that it takes 1 % of a CPU: 50 a second of 10 " +
			"threads, one a second of 600 and more",
		Provides: []metric.Metric{
			metric.ThreadStateTime, metric.ThreadStillTime, metric.ThreadStatePasses, metric.ConnectionWaitTime,
		},
		Pace: collect.AtEnd,
		Open: open,
	}}
}

// A place is what a thread is in, as far as that is known during the window.
type place struct {
	state, call, reason string
	link                string // of the descriptor: "socket:[123]"
	on                  string // of what is named at once
	write               bool
}

// thread is what was seen of one thread.
type thread struct {
	pid   int
	comm  string
	first time.Time // when it was first looked at
	last  time.Time
	still bool // it is where it was at first
	begin place
	now   place  // where it was last
	runs  string // how often it had been on a CPU at first, from schedstat
	times map[place]time.Duration
}

// source samples in a goroutine of its own between Open and Sample.
type source struct {
	env      collect.Env
	began    time.Time
	watch    *collect.Watch
	buf      []byte
	threads  map[host.TaskID]*thread
	sockets  sockets
	locks    fileLocks
	passes   int
	latest   time.Time // when the last pass began
	all      int       // threads there were, and those that were looked at, over all passes
	looked   int
	over     int // threads not looked at in a pass, at most
	memories map[int]*door.Memory
	list     listing
}

// A listing is the threads of the target as they were listed last.
type listing struct {
	at   time.Time
	born string // see [host.Host.LastBorn]
	all  []threadOf
	pid  int // of one of the processes
}

const (
	// listingOld is when a listing is too old even if nothing was born since: it still has what has ended.
	listingOld = 250 * time.Millisecond
	// longListingOld is when a listing of more than maxThreads is too old, whatever was born: listing 10,000 takes 4
	// ms, and a pass looks at only some of them.
	longListingOld = time.Second
)

// serves reports whether the listing will do for another pass; born is who was born last.
func (l *listing) serves(born string) bool {
	if len(l.all) > maxThreads {
		return time.Since(l.at) < longListingOld
	}
	return born != "" && born == l.born && time.Since(l.at) < listingOld
}

func open(ctx context.Context, env collect.Env) (collect.Source, error) {
	if env.Target.Kind == host.KindHost {
		return nil, collect.Unavailable(recording.StatusUnsupported,
			"name a target with --pid, --comm, --cgroup or --container",
			"it is read for a target only, and the whole host was diagnosed")
	}
	s := &source{
		env: env, began: time.Now(), buf: make([]byte, 1024), threads: map[host.TaskID]*thread{}, sockets: newSockets(),
		locks: newFileLocks(), memories: map[int]*door.Memory{},
	}
	s.watch = env.Watch(ctx, "states of threads", pace, func(ctx context.Context) (idle bool, err error) {
		return false, s.pass(ctx)
	})
	return s, nil
}

// pass looks at each thread once, or at some of them if there are many.
func (s *source) pass(ctx context.Context) error {
	latest := time.Now()
	if err := s.listThreads(ctx); err != nil {
		return err
	}
	if !s.lookAt(ctx, s.list.all) {
		return nil
	}
	if s.list.pid != 0 && s.sockets.fresh && time.Now().After(s.sockets.next) {
		s.findSockets(ctx, s.list.pid) // a client's connection may be gone at the end
	}
	s.seeHolders(ctx)
	s.passes++
	s.latest = latest
	return nil
}

// listThreads lists the target's threads, unless none was born since the last listing: listing them takes longer than
// looking at them.
func (s *source) listThreads(ctx context.Context) error {
	born := s.env.Host.LastBorn()
	if s.list.serves(born) {
		return nil
	}
	members, err := s.env.Host.LateMembers(ctx, s.env.Target)
	if err != nil {
		return fmt.Errorf("list the target's processes: %w", err)
	}
	s.list = listing{at: time.Now(), born: born}
	for _, m := range members {
		for _, tid := range s.env.Host.TIDs(m.PID) {
			s.list.all = append(s.list.all, threadOf{m.PID, tid})
		}
	}
	if len(members) > 0 {
		s.list.pid = members[0].PID
	}
	return nil
}

type threadOf struct{ pid, tid int }

// lookAt looks at each of the threads, or at some of them if there are many; ended is false if the context was done
// before that.
func (s *source) lookAt(ctx context.Context, all []threadOf) (ended bool) {
	tids := map[int]bool{}
	for _, t := range all {
		tids[t.tid] = true
	}
	s.over = max(s.over, len(all)-maxThreads)
	stride := 1
	for len(all)/stride > maxThreads {
		stride *= 2
	}
	looked := 0
	for _, t := range all {
		if ctx.Err() != nil {
			return false
		}
		if t.tid%stride == 0 && looked < maxThreads { // a program may choose its ids
			looked++
			s.look(t, tids)
		}
	}
	s.all, s.looked = s.all+len(all), s.looked+looked
	return true
}

// look adds the time since the thread was last looked at to where it is now. A thread that has ended, or may not be
// looked at, is left out.
func (s *source) look(at threadOf, tids map[int]bool) {
	st, buf, err := s.env.Host.ReadStat(at.pid, at.tid, s.buf)
	s.buf = buf
	if err != nil {
		return
	}
	p, ok := s.standing(at, st.State, tids)
	if !ok {
		return
	}
	now := time.Now()
	id := st.Task()
	t := s.threads[id]
	if t == nil {
		t = &thread{
			pid: at.pid, first: now, last: now, still: true, begin: p, runs: s.runs(at),
			times: map[place]time.Duration{},
		}
		if s.passes == 0 {
			t.first, t.last = s.began, s.began
		}
		s.threads[id] = t
	}
	t.comm = st.Comm
	t.times[p] += now.Sub(t.last)
	t.last, t.now = now, p
	t.still = t.still && p == t.begin
}

// standing says what a thread in this state is in.
func (s *source) standing(at threadOf, state byte, tids map[int]bool) (p place, ok bool) {
	switch state {
	case 'R':
		return place{state: "running"}, true
	case 'T':
		return place{state: "stopped"}, true
	case 't':
		return place{state: "traced"}, true
	case 'S':
		p.state = "waiting"
	case 'D':
		p.state = "disk"
	default: // it ends
		return place{}, false
	}
	text, err := host.ReadRecord(s.process(at.pid)+"/task/"+strconv.Itoa(at.tid)+"/syscall", s.buf)
	if err != nil {
		return place{}, false
	}
	c, err := syscalls.Parse(text)
	if err != nil {
		return place{}, false
	}
	if c.Running { // it runs by now
		return place{state: "running"}, true
	}
	p.call = c.Name
	s.classify(&p, at, c, tids)
	return p, true
}

// classify says what the call waits for, unless that is a socket's.
func (s *source) classify(p *place, at threadOf, c syscalls.Entry, tids map[int]bool) {
	p.reason = cmp.Or(kinds[c.Name], forOther)
	p.write = writes[c.Name]
	fd := c.Args[0]
	switch {
	case c.Name == "":
		p.reason = forMemory
	case p.reason == forPoll && c.Args[1] == 0, (c.Name == "select" || c.Name == "pselect6") && c.Args[0] == 0:
		p.reason = forSleep
	case p.reason == forPoll:
		var one bool
		if fd, p.write, one = s.polled(at.pid, c); !one {
			p.reason = forEvents
			return
		}
		p.reason = forPipe
		p.link = s.link(at.pid, fd)
	case p.reason == forFutex:
		s.ofFutex(p, at, c, tids)
	case p.reason == forChild:
		p.on = s.childOf(at.pid, c)
	case hasDescriptor(p.reason):
		p.link = s.link(at.pid, fd)
		if p.reason == forLock && p.link != "" {
			s.locks.waits[lockWait{at.pid, fd, p.link}] = true
		}
	}
	if n, ok := inode(p.link, "socket"); ok {
		s.sockets.want(n)
	}
}

func (s *source) ofFutex(p *place, at threadOf, c syscalls.Entry, tids map[int]bool) {
	p.on = fmt.Sprintf("%#x", c.Args[0])
	if tid, isLock := s.lockHolder(at.pid, c, tids); isLock {
		p.reason = forMutex
		if tid != 0 {
			p.on += metric.HeldBy + strconv.Itoa(tid)
		}
	}
}

// runs is how often the thread has been on a CPU: the third number of schedstat (Documentation/scheduler/
// sched-stats.rst); empty where the kernel does not count.
func (s *source) runs(at threadOf) string {
	text, err := host.ReadFile(s.process(at.pid)+"/task/"+strconv.Itoa(at.tid)+"/schedstat", make([]byte, 128))
	if err != nil {
		return ""
	}
	return string(text)
}

// Close ends the passes.
func (s *source) Close() error {
	_ = s.watch.Stop() // Sample reports an error
	return nil
}

// Sample ends the passes and appends what they saw.
func (s *source) Sample(ctx context.Context, a *recording.Appender) error {
	if err := s.watch.Stop(); err != nil {
		return err
	}
	if s.passes == 0 || len(s.threads) == 0 {
		return nil
	}
	a.Gauge(metric.ThreadStatePasses, float64(s.passes))
	a.None(metric.ThreadStateTime, metric.ThreadStillTime, metric.ConnectionWaitTime)
	s.toTheEnd(time.Now())
	a.Lost(s.over, fmt.Sprintf("threads not looked at in each pass, beyond %d", maxThreads))
	s.append(ctx, a)
	return nil
}

// toTheEnd lets the threads of the last pass stay where they were until the window ends: with a thousand threads that
// pass may be a second ago.
func (s *source) toTheEnd(end time.Time) {
	for _, t := range s.threads {
		if !t.last.Before(s.latest) {
			t.times[t.now] += end.Sub(t.last)
			t.last = end
		}
	}
}

// series is one series of the metric.
type series struct {
	labels [7]string
	value  time.Duration
}

func (s *source) append(ctx context.Context, a *recording.Appender) {
	name := s.namer(ctx)
	var list []series
	for id, t := range s.threads {
		sums := map[[7]string]time.Duration{}
		for p, d := range t.times {
			sums[s.labels(id.ID, t, p, name)] += d
		}
		for labels, d := range sums {
			list = append(list, series{labels, d})
		}
		if t.still && t.runs != "" && t.begin.state != "running" && t.runs == s.runs(threadOf{t.pid, id.ID}) {
			labels := s.labels(id.ID, t, t.begin, name)
			a.Gauge(metric.ThreadStillTime, t.last.Sub(t.first).Seconds(), labels[:]...)
		}
	}
	slices.SortFunc(list, func(x, y series) int {
		return cmp.Or(cmp.Compare(y.value, x.value), slices.Compare(x.labels[:], y.labels[:]))
	})
	s.appendConnections(a)
	for _, x := range summedUp(list, float64(s.all-s.looked)/float64(max(s.looked, 1))) {
		a.Gauge(metric.ThreadStateTime, x.value.Seconds(), x.labels[:]...)
	}
}

// appendConnections appends the connections on which threads waited for answers, once their sockets are known.
func (s *source) appendConnections(a *recording.Appender) {
	sums := map[[4]string]time.Duration{}
	for _, t := range s.threads {
		for p, d := range t.times {
			n, _ := inode(p.link, "socket")
			e, known := s.sockets.known[n]
			if p.reason == forConnect || p.reason == forClient {
				continue
			}
			if reason, _ := ofSocket(e, known, s.sockets.listening, p.write); reason == forAnswer {
				sums[[4]string{strconv.Itoa(t.pid), t.comm, e.local.String(), e.remote.String()}] += d
			}
		}
	}
	longest := slices.SortedFunc(maps.Keys(sums), func(x, y [4]string) int {
		return cmp.Or(cmp.Compare(sums[y], sums[x]), slices.Compare(x[:], y[:]))
	})
	for _, key := range longest[:min(len(longest), maxConnections)] {
		a.Gauge(metric.ConnectionWaitTime, sums[key].Seconds(), key[:]...)
	}
}

// summedUp bounds the series: the rest has no thread and the name of its pool. So have the threads that were not
// looked at; others is how many of them there are for each that was.
func summedUp(list []series, others float64) []series {
	if len(list) <= maxSeries && others == 0 {
		return list
	}
	sums := map[[7]string]time.Duration{}
	for i, x := range list {
		x.labels[1], x.labels[2] = "", metric.PoolOf(x.labels[2])
		sums[x.labels] += time.Duration(others * float64(x.value))
		if i >= maxSeries {
			sums[x.labels] += x.value
		}
	}
	out := slices.Clone(list[:min(len(list), maxSeries)])
	shown := len(out)
	for labels, d := range sums {
		out = append(out, series{labels, d})
	}
	slices.SortFunc(out[shown:], func(x, y series) int { return slices.Compare(x.labels[:], y.labels[:]) })
	return out
}

// labels returns the labels of metric.ThreadStateTime.
func (s *source) labels(tid int, t *thread, p place, name func(*thread, place) (reason, on string)) [7]string {
	reason, on := name(t, p)
	return [7]string{strconv.Itoa(t.pid), strconv.Itoa(tid), t.comm, p.state, p.call, reason, on}
}
