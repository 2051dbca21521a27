package waits

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// nativeDeadlock is about mutexes of the C library, which name their holder. Java's monitors have a rule of their own.
var nativeDeadlock = &check.Check{
	Name:  "deadlock",
	Stage: check.Runtime,
	Event: true,
	Doc: `Threads hold locks that the next one waits for, in a ring

Each of the threads waits for a lock that another of them holds, so none of them ever goes on.

Measured: threads that stood in a wait for a mutex of the C library for the whole window, and the thread that each
mutex names as its owner. Locks of other kinds (Python, Go, Rust, conditions) name no owner, and are not seen here.

Fix: end the process to go on now; then take locks in one order everywhere. Won't help: more threads. Disproof: one of
the threads runs again.`,
	URL:   "https://man7.org/linux/man-pages/man3/pthread_mutex_lock.3p.html",
	Needs: []metric.Metric{metric.ThreadStillTime},
	Run:   runNativeDeadlock,
}

// A lockWait is a thread that stands in a wait for a lock.
type lockWait struct{ pid, tid, comm, lock, holder string }

func runNativeDeadlock(p *check.Pass) error {
	waits := map[string]lockWait{}
	for _, s := range p.Gauge(metric.ThreadStillTime, "for", "mutex") {
		lock, holder, ok := strings.Cut(s.Label("on"), metric.HeldBy)
		if ok {
			waits[s.Label("tid")] = lockWait{s.Label("pid"), s.Label("tid"), s.Label("comm"), lock, holder}
		}
	}
	p.Read(quantity.Of("threads that stood in a wait for a held lock", float64(len(waits)), quantity.Threads))
	seen := map[string]bool{}
	for _, tid := range slices.Sorted(maps.Keys(waits)) {
		if ring := ringFrom(waits, tid); ring != nil && !seen[ring[0].tid] {
			for _, w := range ring {
				seen[w.tid] = true
			}
			p.Report(deadlockFinding(ring))
		}
	}
	return nil
}

// ringFrom follows the holders from a thread. It returns nil if they do not lead back to it.
func ringFrom(waits map[string]lockWait, start string) []lockWait {
	var ring []lockWait
	for tid := start; len(ring) <= len(waits); {
		w, ok := waits[tid]
		if !ok {
			return nil
		}
		ring = append(ring, w)
		if tid = w.holder; tid == start {
			return ring
		}
	}
	return nil
}

func deadlockFinding(ring []lockWait) check.Finding {
	var notes []string
	for _, w := range ring {
		notes = append(notes, fmt.Sprintf("thread %s (%s) waits for the lock %s, which thread %s holds", w.tid, w.comm,
			w.lock, w.holder))
	}
	return check.Finding{
		Subject:  check.Subject{Kind: "pid", ID: ring[0].pid + " (" + ring[0].comm + ")"},
		Severity: check.Critical,
		Weight:   1,
		Summary: fmt.Sprintf("%s wait for each other's locks, in a ring: they never go on",
			quantity.Of("", float64(len(ring)), quantity.Threads).Text()),
		Evidence: []quantity.Value{quantity.Of("threads in the ring", float64(len(ring)), quantity.Threads)},
		Notes:    notes,
		Remedies: []check.Remedy{{
			Action: "Restart the process, then take these locks in one order everywhere (their code: gdb -p, thread " +
				"apply all bt).",
			Risk:   "what it was doing is lost",
			Effect: "the threads of the ring work again",
		}},
		Placebos: []string{"More threads: those that need one of these locks stand there too."},
		Disproof: "one of these threads runs again (ps -L -o tid,time changes).",
	}
}
