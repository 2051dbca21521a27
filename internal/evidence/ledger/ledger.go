// Package ledger accounts for a target's time: the wall-clock time of all of its threads in the window, in parts that
// add up. A finding explains a part of it; the unexplained rest is shown too.
package ledger

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// A Part is what a thread does with its time.
type Part string

// The parts. The kernel counts the first four; the others are sampled and share the rest.
const (
	User      Part = "user"
	System    Part = "system"
	Ready     Part = "ready"       // to run, without a CPU: throttled by its quota, too
	Unsampled Part = "unexplained" // no sample says what it waited for

	Disk     Part = "disk"    // uninterruptible: a read or write of a device
	Memory   Part = "memory"  // a page
	Lock     Part = "lock"    // that another thread holds
	Futex    Part = "futex"   // a lock, a condition or an empty queue: the kernel cannot tell
	Answer   Part = "answer"  // of a destination
	Message  Part = "message" // of a destination that was not asked
	Connect  Part = "connect"
	Room     Part = "room"    // the peer takes no more
	Request  Part = "request" // of a client, or the next client
	Socket   Part = "socket"  // whose other end is not known
	Pipe     Part = "pipe"
	File     Part = "file"
	FileLock Part = "file lock"
	Child    Part = "child"    // that ends in the window, or its output
	Watch    Part = "watching" // over children, for the whole window: a supervisor
	Sleep    Part = "sleep"
	Events   Part = "events" // of any of several descriptors
	Signal   Part = "signal"
	Stopped  Part = "stopped" // by a signal
	Traced   Part = "traced"  // by a debugger
	Other    Part = "other"
)

// Idle reports whether a thread in this wait has nothing to do by itself: whoever wakes it brings the work. A futex
// may be either.
func (p Part) Idle() bool {
	switch p {
	case Request, Message, Events, Signal, Socket, Sleep, Watch:
		return true
	}
	return false
}

// Work reports whether a thread in this part has work for sure.
func (p Part) Work() bool { return !p.Idle() && p != Futex }

// waits maps the label "for" of [metric.ThreadStateTime] to parts.
var waits = map[string]Part{
	"mutex": Lock, "futex": Futex, "answer": Answer, "connect": Connect, "room": Room, "request": Request,
	"client": Request, "socket": Socket, "message": Message, "pipe": Pipe, "file": File, "lock": FileLock,
	"child": Child, "sleep": Sleep,
	"events": Events, "signal": Signal, "memory": Memory,
}

// A Place is one thing that threads of a pool wait for.
type Place struct {
	Part    Part    `json:"part"`
	Call    string  `json:"syscall,omitempty"`
	On      string  `json:"on,omitempty"` // destination, own port, process, file, lock
	Seconds float64 `json:"seconds"`
	Threads int     `json:"threads"`         // that were seen there
	Still   int     `json:"still,omitempty"` // those of them that stood there for the whole window
	// Holders are the threads that held the lock while others waited for it, the longest holder first, at most
	// [shownHolders]; none if the lock does not record its holder.
	Holders []Holder `json:"holders,omitempty"`

	busy float64
}

// Busy returns the time of the threads that were seen there, in seconds, without the time in which they took requests
// and events.
func (p Place) Busy() float64 { return p.busy }

// A Holder is a thread that holds a lock others wait for.
type Holder struct {
	Thread string  `json:"thread"` // its id
	Share  float64 `json:"share"`  // of the time waited for the lock
}

// shownHolders bounds the holders kept for a lock: those that held it less are not the ones to look at first.
const shownHolders = 3

// A Pool is the threads with one name in processes of one program: pre-fork workers are one pool, as are the sessions
// of a database.
type Pool struct {
	Program   string  `json:"program"`
	Name      string  `json:"name"`
	Processes int     `json:"processes"`
	Threads   float64 `json:"threads"` // at any moment, mean
	Wall      float64 `json:"seconds"` // of its threads
	// Workers is the part of Wall of threads that could work: all but a process's first thread if that only waits for
	// the others.
	Workers float64          `json:"worker_seconds"`
	Parts   map[Part]float64 `json:"parts"` // their sum is Wall
	Places  []Place          `json:"places,omitempty"`

	pids    map[string]bool
	threads map[string]*times
	holders map[string]map[string]float64 // for each lock, how long others waited while a thread held it
}

// A Ledger is the account of a target.
type Ledger struct {
	Window float64 `json:"window_seconds"`
	Passes int     `json:"passes"` // in which all threads were looked at
	Pools  []*Pool `json:"pools"`  // the pool with the most non-idle time first
}

// times are the measured times of one thread.
type times struct {
	pid                 string
	still               bool // it stood in one place for the whole window
	user, system, ready float64
	sampled             map[placeKey]float64 // waits
	seen                float64              // sampled time, running included
}

type placeKey struct {
	part     Part
	call, on string
}

func (x placeKey) compare(y placeKey) int {
	return cmp.Or(cmp.Compare(x.part, y.part), cmp.Compare(x.call, y.call), cmp.Compare(x.on, y.on))
}

// Of builds the ledger of a recording's target; ok is false if neither samples nor the scheduler's events show what
// its threads waited for. The events are exact and replace the samples of their threads, except for waits that began
// before the window and did not end.
func Of(rec *recording.Recording) (l *Ledger, ok bool) {
	b := builder{programs: programs(rec), names: fullNamesOf(rec), pools: map[string]*Pool{}}
	b.sampled(rec)
	b.traced(rec)
	if len(b.pools) == 0 {
		return nil, false
	}
	b.counted(rec)
	b.markStill(rec)
	l = &Ledger{Window: rec.Meta.Duration}
	if passes := rec.Gauge(metric.ThreadStatePasses); len(passes) > 0 {
		l.Passes = int(passes[0].Last())
	}
	for _, pool := range b.pools {
		if pool.close(l.Window); pool.Wall > 0 {
			l.Pools = append(l.Pools, pool)
		}
	}
	slices.SortFunc(l.Pools, func(x, y *Pool) int {
		return cmp.Or(cmp.Compare(y.Working(), x.Working()), cmp.Compare(y.Wall, x.Wall),
			strings.Compare(x.Program+x.Name, y.Program+y.Name))
	})
	return l, true
}

// inOrder iterates over a map in the order of its keys: sums of the same numbers in another order differ in their
// last digit.
func inOrder[K comparable, V any](m map[K]V, compare func(x, y K) int) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, key := range slices.SortedFunc(maps.Keys(m), compare) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}

// Working returns the time of the pool's threads that is not idle by itself.
func (p *Pool) Working() float64 {
	total := 0.0
	for part, n := range inOrder(p.Parts, cmp.Compare) {
		if part.Work() {
			total += n
		}
	}
	return total
}

// Computing returns the time in which the pool's threads run or wait for a CPU.
func (p *Pool) Computing() float64 { return p.Parts[User] + p.Parts[System] + p.Parts[Ready] }

// Working returns the sum of [Pool.Working] over all pools.
func (l *Ledger) Working() float64 { return l.sum((*Pool).Working) }

// Computing returns the sum of [Pool.Computing] over all pools.
func (l *Ledger) Computing() float64 { return l.sum((*Pool).Computing) }

func (l *Ledger) sum(of func(*Pool) float64) (total float64) {
	for _, pool := range l.Pools {
		total += of(pool)
	}
	return total
}

// programs returns the name of each process, which is the name of its first thread.
func programs(rec *recording.Recording) map[string]string {
	names := map[string]string{}
	for _, s := range rec.Counter(metric.ProcessCPU) {
		names[s.Label("pid")] = s.Label("comm")
	}
	return names
}

type builder struct {
	programs map[string]string
	names    fullNames
	pools    map[string]*Pool
}

// pool finds the pool of a thread.
func (b *builder) pool(id threadID, comm string) *Pool {
	name := b.names.of(id, comm)
	program := cmp.Or(b.programs[id.pid], name)
	key := program + "\x00" + name
	p := b.pools[key]
	if p == nil {
		p = &Pool{
			Program: program, Name: name, Parts: map[Part]float64{}, pids: map[string]bool{},
			threads: map[string]*times{}, holders: map[string]map[string]float64{},
		}
		b.pools[key] = p
	}
	p.pids[id.pid] = true
	return p
}

// of returns a thread's times. A thread without an id stands for many that were summed up.
func (p *Pool) of(id threadID) *times {
	t := p.threads[id.tid]
	if t == nil {
		t = &times{pid: id.pid, sampled: map[placeKey]float64{}}
		p.threads[id.tid] = t
	}
	return t
}

// inWindow returns the share of the sampled time that lies in the window. Sampling begins while other collectors are
// opened and ends when its turn comes, which takes a second if the CPUs are full. A thread seen for longer than the
// window lived through all of it, and shows how much longer sampling lasted.
func inWindow(rec *recording.Recording) float64 {
	seen, longest := map[threadID]float64{}, rec.Meta.Duration
	for _, s := range rec.Gauge(metric.ThreadStateTime) {
		if id := threadOf(s.Series); id.tid != "" {
			seen[id] += s.Last()
			longest = max(longest, seen[id])
		}
	}
	if longest == 0 {
		return 1
	}
	return rec.Meta.Duration / longest
}

func (b *builder) sampled(rec *recording.Recording) {
	part := inWindow(rec)
	for _, s := range rec.Gauge(metric.ThreadStateTime) {
		id := threadOf(s.Series)
		p := b.pool(id, s.Label("comm"))
		t := p.of(id)
		seconds := part * s.Last()
		t.seen += seconds
		if s.Label("state") == "running" {
			continue
		}
		at := placeOf(s)
		if lock, holder, known := strings.Cut(at.on, metric.HeldBy); known && at.part == Lock {
			at.on = lock
			p.heldBy(lock, holder, seconds)
		}
		t.sampled[at] += seconds
	}
}

// heldBy adds time that others waited for a lock while a thread held it.
func (p *Pool) heldBy(lock, holder string, seconds float64) {
	if p.holders[lock] == nil {
		p.holders[lock] = map[string]float64{}
	}
	p.holders[lock][holder] += seconds
}

// holdersOf returns a lock's holders, as in [Place.Holders].
func (p *Pool) holdersOf(lock string) []Holder {
	total := 0.0
	var out []Holder
	for thread, seconds := range inOrder(p.holders[lock], cmp.Compare) {
		total += seconds
		out = append(out, Holder{thread, seconds})
	}
	for i := range out {
		out[i].Share /= total
	}
	slices.SortStableFunc(out, func(x, y Holder) int { return cmp.Compare(y.Share, x.Share) })
	return out[:min(len(out), shownHolders)]
}

// traced adds the waits that the scheduler's events show.
func (b *builder) traced(rec *recording.Recording) {
	seen := map[*times]map[placeKey]float64{} // what samples say of threads that have events
	for _, s := range rec.Gauge(metric.ThreadWaitTime) {
		if isRingWorker(s.Label("comm")) {
			continue // events do not distinguish an idle one from a page fault; its state does
		}
		id := threadOf(s.Series)
		t := b.pool(id, s.Label("comm")).of(id)
		if seen[t] == nil {
			seen[t] = maps.Clone(t.sampled)
			clear(t.sampled)
		}
		part := cmp.Or(waits[s.Label("for")], callParts[s.Label("syscall")], Other)
		switch on := s.Label("on"); {
		case s.Label("syscall") == "":
			part = Memory
		case part == Socket && on != "" && !strings.HasPrefix(on, ":"): // UDP: the side that connects asks
			part = Answer
		}
		t.sampled[placeKey{part, s.Label("syscall"), s.Label("on")}] += s.Last()
	}
	for t, samples := range seen {
		t.haltBy(samples)
		t.nameBy(samples)
	}
}

// haltBy subtracts from the waits the time in which the thread was stopped or traced. Only samples show it: a stopped
// thread stays in the system call in which it waited, and the scheduler sees it wait.
func (t *times) haltBy(samples map[placeKey]float64) {
	all := 0.0
	for _, n := range inOrder(samples, placeKey.compare) {
		all += n
	}
	for _, part := range []Part{Stopped, Traced} {
		halted := samples[placeKey{part: part}]
		if halted == 0 {
			continue
		}
		total := 0.0
		for key, n := range inOrder(t.sampled, placeKey.compare) {
			if key.part != Stopped && key.part != Traced {
				t.sampled[key] = n * (1 - halted/all)
				total += n * halted / all
			}
		}
		t.sampled[placeKey{part: part}] += total
	}
}

// nameBy divides waits whose cause the events do not show by what samples say of the same system call.
func (t *times) nameBy(samples map[placeKey]float64) {
	for key, n := range inOrder(t.sampled, placeKey.compare) {
		if key.on != "" {
			continue
		}
		total := 0.0
		for other, m := range inOrder(samples, placeKey.compare) {
			if other.call == key.call && other.on != "" {
				total += m
			}
		}
		if total == 0 {
			continue
		}
		delete(t.sampled, key)
		for other, m := range samples {
			if other.call == key.call && other.on != "" {
				t.sampled[other] += n * m / total
			}
		}
	}
}

// callParts maps system calls to the parts of waits that the events call "other".
var callParts = map[string]Part{
	"nanosleep": Sleep, "clock_nanosleep": Sleep, "wait4": Child, "waitid": Child, "pause": Signal,
	"rt_sigtimedwait": Signal, "rt_sigsuspend": Signal, "epoll_wait": Events, "epoll_pwait": Events,
	"epoll_pwait2": Events, "poll": Events, "ppoll": Events, "select": Events, "pselect6": Events,
	"io_uring_enter": Events, "io_getevents": Disk, "fsync": Disk, "fdatasync": Disk, "msync": Disk, "syncfs": Disk,
	"sync": Disk, "sync_file_range": Disk,
}

// isRingWorker reports whether a thread is one that io_uring created in the program ("iou-wrk-PID", io_uring/io-wq.c,
// and "iou-sqp-PID", io_uring/sqpoll.c). Such a thread is never in a system call, and waits for its next piece of
// work, not for a page.
func isRingWorker(comm string) bool { return strings.HasPrefix(comm, "iou-") }

// placeOf returns what a series of [metric.ThreadStateTime] waits for.
func placeOf(s recording.GaugeSeries) placeKey {
	switch s.Label("state") {
	case "stopped":
		return placeKey{part: Stopped}
	case "traced":
		return placeKey{part: Traced}
	}
	part := cmp.Or(waits[s.Label("for")], Other)
	worker := isRingWorker(s.Label("comm"))
	switch {
	case s.Label("state") == "disk" && (part != Memory || worker):
		part = Disk
	case part == Memory && worker:
		part = Events
	}
	return placeKey{part, s.Label("syscall"), s.Label("on")}
}

// counted adds what the kernel counted for each thread.
func (b *builder) counted(rec *recording.Recording) {
	for _, s := range rec.Counter(metric.ThreadCPU) {
		n, _ := s.Increase()
		t := b.thread(threadOf(s.Series), s.Label("comm"))
		if t == nil {
			continue
		}
		if s.Label("mode") == "user" {
			t.user += n
		} else {
			t.system += n
		}
	}
	for _, s := range rec.Counter(metric.ThreadRunDelay) {
		if t := b.thread(threadOf(s.Series), s.Label("comm")); t != nil {
			n, _ := s.Increase()
			t.ready += n
		}
	}
}

// thread returns a sampled thread, or the sum of threads that it is part of; nil if it was not sampled.
func (b *builder) thread(id threadID, comm string) *times {
	p := b.pool(id, comm)
	if t := p.threads[id.tid]; t != nil {
		return t
	}
	return p.threads[""]
}

// close turns what was measured of the pool's threads into parts that add up to their wall-clock time. CPU time and
// waits for a CPU are counted exactly; samples say what the rest was.
func (p *Pool) close(window float64) {
	places := map[placeKey]*Place{}
	p.eventsAlone(window)
	for tid, t := range inOrder(p.threads, cmp.Compare) {
		p.add(tid, t, places)
	}
	p.Workers = p.Wall
	for tid, t := range inOrder(p.threads, cmp.Compare) {
		if tid == t.pid && len(p.threads) > 1 && (t.still && t.watches() ||
			p.hasOthers(t) && t.working() < mainIdle*window) {
			p.Workers -= t.seen
		}
	}
	for part, n := range p.Parts {
		if n == 0 {
			delete(p.Parts, part)
		}
	}
	for _, place := range places {
		if place.Part == Lock {
			place.Holders = p.holdersOf(place.On)
		}
		p.Places = append(p.Places, *place)
	}
	slices.SortFunc(p.Places, func(x, y Place) int {
		if c := cmp.Compare(y.Seconds, x.Seconds); c != 0 {
			return c
		}
		return strings.Compare(x.Call+x.On, y.Call+y.On)
	})
	p.Processes = len(p.pids)
	if window > 0 {
		p.Threads = p.Wall / window
	}
}

// eventsAlone sets the time of threads that only events show. If some threads were summed up instead of looked at,
// these threads are among them.
func (p *Pool) eventsAlone(window float64) {
	rest := p.threads[""]
	for tid, t := range inOrder(p.threads, cmp.Compare) {
		if t.seen != 0 {
			continue
		}
		t.seen = t.counted() + t.waited()
		if tid != "" {
			t.seen = min(t.seen, window) // events begin before the window
		}
		if rest != nil && t != rest {
			rest.seen -= t.seen
		}
	}
	if rest != nil && rest.seen <= 0 {
		delete(p.threads, "")
	}
}

// counted returns what the kernel counted for the thread.
func (t *times) counted() float64 { return t.user + t.system + t.ready }

// waited returns how long the thread waited by samples or events, before that is scaled to what was counted.
func (t *times) waited() (sum float64) {
	for _, n := range inOrder(t.sampled, placeKey.compare) {
		sum += n
	}
	return sum
}

// add adds the time of one thread to the pool, and its waits to the places.
func (p *Pool) add(tid string, t *times, places map[placeKey]*Place) {
	counted, sampled, wall := t.counted(), t.waited(), t.seen
	shrink := 1.0
	if counted > wall && counted > 0 { // the threads ran before they were first seen, or ticks were rounded up
		shrink = wall / counted
	}
	p.Parts[User] += t.user * shrink
	p.Parts[System] += t.system * shrink
	p.Parts[Ready] += t.ready * shrink
	p.Wall += wall
	rest := max(0, wall-counted)
	if sampled == 0 {
		p.Parts[Unsampled] += rest
		return
	}
	takes := 0.0
	for key, n := range inOrder(t.sampled, placeKey.compare) {
		if key.part == Events || key.part == Request {
			takes += rest * n / sampled
		}
	}
	for key, n := range inOrder(t.sampled, placeKey.compare) {
		part := rest * n / sampled
		if key.part == Child && t.still {
			key.part = Watch
		}
		p.Parts[key.part] += part
		place := places[key]
		if place == nil {
			place = &Place{Part: key.part, Call: key.call, On: key.on}
			places[key] = place
		}
		place.Seconds += part
		place.busy += wall - takes
		if tid != "" {
			place.Threads++
		}
		if t.still {
			place.Still++
		}
	}
}

// markStill marks the threads that stood in one place all the time.
func (b *builder) markStill(rec *recording.Recording) {
	for _, s := range rec.Gauge(metric.ThreadStillTime) {
		id := threadOf(s.Series)
		if t := b.pool(id, s.Label("comm")).threads[id.tid]; t != nil {
			t.still = true
		}
	}
}

// watches reports whether the thread waits for nothing but a child, a signal or a timer, as the first process of
// several workers does.
func (t *times) watches() bool {
	for key := range t.sampled {
		if key.part != Child && key.part != Signal && key.part != Sleep {
			return false
		}
	}
	return len(t.sampled) > 0
}

// Has reports whether a thread belongs to the pool.
func (p *Pool) Has(tid string) bool { return p.threads[tid] != nil }

// PIDs returns the pids of the pool's processes.
func (p *Pool) PIDs() []string {
	var out []string
	for pid := range p.pids {
		out = append(out, pid)
	}
	slices.SortFunc(out, func(x, y string) int {
		a, _ := strconv.Atoi(x)
		b, _ := strconv.Atoi(y)
		return cmp.Compare(a, b)
	})
	return out
}

// Title names the pool: "java/http-nio-8080-exec", or the program alone if the pool has the same name.
func (p *Pool) Title() string {
	if p.Name == "" || p.Name == metric.PoolOf(p.Program) {
		return p.Program
	}
	return p.Program + "/" + p.Name
}

// TakesRequests reports whether a thread of the target was seen to wait for a request on a connection that it serves.
func (l *Ledger) TakesRequests(tid int) bool {
	for _, p := range l.Pools {
		if t := p.threads[strconv.Itoa(tid)]; t != nil {
			for key := range t.sampled {
				if key.part == Request && !strings.HasPrefix(key.call, "accept") {
					return true
				}
			}
		}
	}
	return false
}

// An Asked is whom a thread of the target waits for.
type Asked struct {
	Peer    string // a destination; "" if none, or if the thread waits for requests, too
	Answers bool   // it asked for something in the window
}

// Asks returns whom a thread waits for.
func (l *Ledger) Asks(tid int) (a Asked) {
	most := 0.0
	for _, p := range l.Pools {
		t := p.threads[strconv.Itoa(tid)]
		if t == nil {
			continue
		}
		for key, seconds := range t.sampled {
			switch key.part {
			case Request:
				return Asked{}
			case Answer, Connect, Message:
				a.Answers = a.Answers || key.part != Message
				if seconds > most || seconds == most && key.on < a.Peer {
					a.Peer, most = key.on, seconds
				}
			}
		}
	}
	return a
}

// Who counts the pool's threads: "8 threads of nginx (4 processes)".
func (p *Pool) Who() string {
	n := len(p.threads)
	if p.threads[""] != nil { // it stands for many
		n = max(n, int(math.Round(p.Threads)))
	}
	text := strconv.Itoa(n) + " threads of " + p.Title()
	if n == 1 {
		text = "1 thread of " + p.Title()
	}
	if p.Processes > 1 {
		text += " (" + strconv.Itoa(p.Processes) + " processes)"
	}
	return text
}

// Split returns the parts of the pool's time, the largest first: "answer 61 %, user 30 %, futex 9 %".
func (p *Pool) Split() string {
	var parts []Part
	for part, n := range p.Parts {
		if n >= leastShown*p.Wall {
			parts = append(parts, part)
		}
	}
	slices.SortFunc(parts, func(x, y Part) int {
		return cmp.Or(cmp.Compare(p.Parts[y], p.Parts[x]), strings.Compare(string(x), string(y)))
	})
	var texts []string
	for _, part := range parts {
		texts = append(texts, string(part)+" "+quantity.Of("", p.Parts[part]/p.Wall, quantity.Ratio).Text())
	}
	return strings.Join(texts, ", ")
}

// leastShown is the share of a pool's time from which on a part is shown.
const leastShown = 0.01

// Sum returns the time at the places that match, and the place with the most of it.
func (p *Pool) Sum(is func(Place) bool) (largest Place, seconds float64) {
	for _, place := range p.Places { // the longest first
		if !is(place) {
			continue
		}
		if seconds == 0 {
			largest = place
		}
		seconds += place.Seconds
	}
	return largest, seconds
}

// Queued returns how long threads wait there for a lock or a queue, in seconds. It leaves out threads that stand
// there for the whole window: nobody waits for these.
func (p Place) Queued(window float64) float64 {
	if p.Part != Futex && p.Part != Lock {
		return 0
	}
	return max(0, p.Seconds-float64(p.Still)*window)
}

// StillText says how many threads stood at the place all the time; "" if none did.
func (p Place) StillText() string {
	if p.Still == 0 {
		return ""
	}
	return "stood there for the whole window and did not run once: " +
		quantity.Of("", float64(p.Still), quantity.Threads).Text()
}

// DNS reports whether the place is a wait for a name server: it answers on port 53 (RFC 1035).
func (p Place) DNS() bool {
	return (p.Part == Answer || p.Part == Connect) && strings.HasSuffix(p.On, ":53")
}

// Asked reports whether the place is a wait for a destination that is no name server.
func (p Place) Asked() bool { return (p.Part == Answer || p.Part == Connect) && !p.DNS() }

// mainIdle is the share of the window below which a process's first thread is not one of its workers: it waits for
// them to end.
const mainIdle = 0.01

// hasOthers reports whether the thread's process has another one in the pool.
func (p *Pool) hasOthers(of *times) bool {
	for _, t := range p.threads {
		if t != of && t.pid == of.pid {
			return true
		}
	}
	return false
}

// working returns the thread's time that is not idle by itself.
func (t *times) working() float64 {
	total := t.user + t.system + t.ready
	for key, n := range inOrder(t.sampled, placeKey.compare) {
		if key.part.Work() {
			total += n
		}
	}
	return total
}
