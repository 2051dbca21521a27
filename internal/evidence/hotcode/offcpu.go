package hotcode

import (
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// offCPUWaits maps the class of a sample in an off-CPU profile to what its thread waits for. The key is the first
// word of the class: the value of the label "for" of metric.ThreadWaitTime, or for "other" the system call.
var offCPUWaits = map[string]Wait{
	"answer": ForNetwork, "connect": ForNetwork, "room": ForNetwork, "mutex": ForLock, "file": ForFile,
	"fsync": ForFile, "fdatasync": ForFile, "msync": ForFile, "syncfs": ForFile, "sync": ForFile,
	"io_getevents": ForFile, "io_uring_enter": ForWakeUp, "flock": ForLock, "fcntl": ForLock,
	// none: a page fault
	"getdents64": ForFile, "openat": ForFile, "open": ForFile, "stat": ForFile, "newfstatat": ForFile, "": ForFile,
}

// OffCPUWait returns what the threads of an off-CPU sample of this class wait for. Threads are idle if they wait for
// work: for a connection or a request of a client, an event, a time, a child, or a futex that is not a lock.
func OffCPUWait(class string) Wait {
	word, _, _ := strings.Cut(class, " ")
	if w, ok := offCPUWaits[word]; ok {
		return w
	}
	return Idle
}

// WaitsForPeer reports whether the threads of an off-CPU sample of this class wait for an answer of peer, an address
// and port.
func WaitsForPeer(class, peer string) bool {
	return OffCPUWait(class) == ForNetwork && strings.HasSuffix(class, " "+peer)
}

// A Blocked is how long threads wait in the kernel for one thing at one place of a program.
type Blocked struct {
	For     Wait
	On      string   // a destination, the address of a lock, or empty
	Path    []string // the program's functions, the innermost first
	Threads float64  // that wait here at any moment, on average
	Wakers  []Waker  // for a lock: who ended most waits
}

// A Waker ends waits for a lock.
type Waker struct {
	Thread string // its name and id
	At     string // where it ends them: the program's functions, the innermost first
	Share  float64
}

// BlockedTimes returns what threads with work wait for according to the off-CPU profile, at most n, the most first.
func BlockedTimes(rec *recording.Recording, n int) []Blocked {
	p, ok := rec.Ranked(stacks.OffCPU)
	if !ok || p.Duration <= 0 {
		return nil
	}
	type site struct{ class, path string }
	const arrow = " ← "
	var out []Blocked
	for _, g := range stacks.Group(p, func(s stacks.Sample) site {
		if OffCPUWait(s.Class) == Idle {
			return site{}
		}
		return site{s.Class, strings.Join(NativePath(p, s.Stack), arrow)}
	}) {
		if g.Key == (site{}) || len(out) == n {
			continue
		}
		_, on, _ := strings.Cut(g.Key.class, " ")
		b := Blocked{For: OffCPUWait(g.Key.class), On: on, Threads: float64(g.Value) / float64(p.Duration)}
		if g.Key.path != "" {
			b.Path = strings.Split(g.Key.path, arrow)
		}
		if b.For == ForLock {
			b.Wakers = WakersOf(rec, on, shownWakers)
		}
		out = append(out, b)
	}
	return out
}

const shownWakers = 2

// WakersOf returns the places that ended waits for a futex, the most first, each with the thread that did so most
// often.
func WakersOf(rec *recording.Recording, on string, n int) []Waker {
	total := 0.0
	byPlace := map[string]*Waker{}
	most := map[string]float64{}
	for _, s := range rec.Gauge(metric.FutexWakes, "on", on) {
		total += s.Last()
		at := strings.Join(trimPath(strings.Split(s.Label("at"), " ← ")), " ← ")
		w := byPlace[at]
		if w == nil {
			w = &Waker{At: at}
			byPlace[at] = w
		}
		w.Share += s.Last()
		if s.Last() > most[at] {
			most[at], w.Thread = s.Last(), s.Label("waker_comm")+" "+s.Label("waker")
		}
	}
	var out []Waker
	for _, w := range byPlace {
		w.Share /= total
		out = append(out, *w)
	}
	slices.SortFunc(out, func(a, b Waker) int {
		if a.Share != b.Share {
			return int(b.Share*1e6) - int(a.Share*1e6)
		}
		return strings.Compare(a.At, b.At)
	})
	return out[:min(len(out), n)]
}

// pathFrames bounds the frames shown of a stack: callers further out are the program's loop.
const pathFrames = 5

// NativePath names the program's own functions of a native stack, the innermost first, without the kernel, the C
// library and what Go's runtime does for a system call. It is empty if nothing of the program is known.
func NativePath(p *stacks.Profile, stack []int) []string {
	var names []string
	for _, i := range stack {
		f := p.Frames[i]
		if f.Kind == stacks.Kernel || stacks.IsUnnamed(f.Name) || machinery(f.Module, systemModules) {
			continue
		}
		names = append(names, f.Name)
	}
	return trimPath(names)
}

// PlaceOf returns the function of a path that is worth naming: the first that is not part of a lock itself.
func PlaceOf(path []string) string {
	for _, f := range path {
		lower := strings.ToLower(f)
		if !strings.Contains(lower, "lock") && !strings.Contains(lower, "mutex") && !strings.Contains(lower, "futex") {
			return f
		}
	}
	if len(path) == 0 {
		return ""
	}
	return path[0]
}

// trimPath removes the functions that call the kernel for the program.
func trimPath(names []string) []string {
	at := slices.IndexFunc(names, func(n string) bool { return !machinery(n, systemFunctions) })
	if at < 0 {
		return nil
	}
	names = names[at:]
	if end := slices.IndexFunc(names, func(n string) bool { return machinery(n, startFunctions) }); end >= 0 {
		names = names[:end]
	}
	var out []string
	for _, n := range names[:min(len(names), pathFrames)] {
		out = append(out, shortFunction(n))
	}
	return out
}

// shortFunction drops the path of a Go function's package: lab.(*pool).run for example.com/lab.(*pool).run.
func shortFunction(name string) string {
	head, rest, generic := strings.Cut(name, "[")
	head = head[strings.LastIndex(head, "/")+1:]
	if generic && head != "" {
		return head + "[" + rest
	}
	return head
}

var (
	systemModules   = []string{"libc.so", "libc-", "libpthread", "ld-linux", "ld-musl", "libc.musl"}
	systemFunctions = []string{
		"syscall.", "golang.org/x/sys/unix.", "internal/runtime/", "runtime.", "internal/poll.", "pthread_",
		"__pthread", "__lll",
		"__GI_", "[unknown", "sem_wait", "futex",
	}
	startFunctions = []string{"runtime.goexit", "start_thread", "clone3", "_start", "__libc_start"}
)

func machinery(name string, prefixes []string) bool {
	return name != "" && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
