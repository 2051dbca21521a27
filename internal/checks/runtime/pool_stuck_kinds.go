package runtime

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// A stuckKind is what to say about threads that stand in one kind of wait.
type stuckKind struct {
	what     string // they do
	cures    []stuckCure
	placebos []string
	disproof string
}

// A stuckCure is a remedy after which nobody stands there.
type stuckCure struct{ action, risk, before, after string }

func (k *stuckKind) remedies(stand quantity.Value) (out []check.Remedy) {
	for _, c := range k.cures {
		out = append(out, check.Remedy{
			Action: c.action, Risk: c.risk, Before: c.before, After: c.after,
			Effect: fmt.Sprintf("threads that stand there from %s to none", stand.Text()),
		})
	}
	return out
}

const stuckElsewhere = "jcmd PID Thread.print, several times, shows the threads elsewhere."

// stuckKinds are the waits that the check is about. Pools, queues, the network and files have checks of their own.
var stuckKinds = map[hotcode.Wait]*stuckKind{
	hotcode.ForSleep: {
		what: "sleep",
		cures: []stuckCure{{
			action: "Take the sleep out of the work: have what it waits for call back, or plan the next attempt with " +
				"a timer (ScheduledExecutorService.schedule) and give the thread back.",
			risk:   "what came after the sleep now runs on another thread",
			before: "while (!ready()) Thread.sleep(1000); answer();",
			after:  "onReady(() -> answer());",
		}},
		placebos: []string{"More threads: they sleep, too.", "A faster CPU: nothing runs meanwhile."},
		disproof: "the sleep is what the task is for, and nothing waits for its thread.",
	},
	hotcode.ForWakeUp: {
		what: "are parked or in Object.wait",
		cures: []stuckCure{{
			action: "Find the thread that should wake them (notify, unpark, signal), and why it does not; give the " +
				"wait a time limit. A park with a time limit that nobody wakes is a sleep: plan the work with a timer.",
			risk: "a limit turns a late wake-up into a failure",
		}},
		placebos: []string{"More threads: they come to wait there, too."},
		disproof: "it is the place where they wait for work.",
	},
	hotcode.ForCarried: {
		what: "are carriers pinned by a virtual thread that waits",
		cures: []stuckCure{{
			action: "Take the wait out of the synchronized block, or make the block a ReentrantLock, for which a " +
				"virtual thread leaves its carrier; JDK 24 does so for synchronized, too (JEP 491). " +
				"-Djdk.tracePinnedThreads=full (until JDK 23) and the event jdk.VirtualThreadPinned name the place.",
			risk:   "a ReentrantLock must be unlocked in finally",
			before: "synchronized (this) { reply = remote.call(); }",
			after:  "lock.lock(); try { reply = remote.call(); } finally { lock.unlock(); }",
		}, {
			action: "As a stopgap, more carriers (-Djdk.virtualThreadScheduler.parallelism): as many waits at once.",
			risk:   "the kernel has that many threads more to run",
		}},
		placebos: []string{"More virtual threads: they wait for a carrier.", "More CPUs: nothing runs meanwhile."},
		disproof: "the event jdk.VirtualThreadPinned of JFR does not occur under the same load.",
	},
	hotcode.ForLock: {
		what: "wait for a lock",
		cures: []stuckCure{{
			action: "Find the thread that has the lock (jcmd PID Thread.print -l) and what it waits for meanwhile; " +
				"do that outside of the lock.",
			risk:   "what the lock kept together may come apart",
			before: "synchronized (this) { reply = remote.call(); cache.put(key, reply); }",
			after:  "reply = remote.call(); synchronized (this) { cache.put(key, reply); }",
		}, {
			action: "Take it with a time limit (tryLock), so that one holder does not stop all.",
			risk:   "a thread that does not get it has to do without",
		}},
		placebos: []string{"More threads: they wait for the same lock."},
		disproof: stuckElsewhere,
	},
	hotcode.ForFuture: {
		what: "wait for another thread's result",
		cures: []stuckCure{{
			action: "See where the results are made. If in the same pool, they are queued behind the threads that " +
				"wait for them, and never come: give the inner tasks a pool of their own, or continue when they are " +
				"done (thenApply, thenCompose) instead of waiting.",
			risk:   "two pools together have more threads; what continues runs on another thread",
			before: "pool.submit(() -> merge(pool.submit(part).get()));",
			after:  "CompletableFuture.supplyAsync(part, pool).thenApply(this::merge);",
		}, {
			action: "Wait with a time limit (get(2, SECONDS)), and cancel what comes too late.",
			risk:   "a late result becomes none",
		}},
		placebos: []string{
			"A few more threads: tasks that each wait for one of their own pool fill any number of them.",
			"A longer queue: the results stand in it.",
		},
		disproof: "the results come, and what makes them takes that long by itself.",
	},
	hotcode.ForThreads: {
		what: "wait for other threads at a latch, a barrier or a join",
		cures: []stuckCure{{
			action: "Find the thread that should count down or arrive: it failed before (countDown belongs in " +
				"finally), waits for a thread of this pool, or the latch counts more than there are.",
			risk: "none",
		}, {
			action: "Wait with a time limit (await(2, SECONDS)), and say what was missing.",
			risk:   "a late arrival becomes a failure",
		}},
		placebos: []string{"More threads: they come to wait there, too."},
		disproof: stuckElsewhere,
	},
	hotcode.ForPermit: {
		what: "wait for a rate limiter",
		cures: []stuckCure{{
			action: "Refuse what is over the limit at once (tryAcquire without waiting, answer 429), or put it into " +
				"a bounded queue; hold no thread until its turn comes.",
			risk: "callers must try again later",
		}, {
			action: "Raise the limit to what is behind it, if that can take more.",
			risk:   "what is behind is loaded more",
		}},
		placebos: []string{"More threads: they wait for the same permits."},
		disproof: "the limit is what the program is for, and nothing else needs these threads.",
	},
	hotcode.ForItem: {
		what: "wait for an item of a queue while they serve a request",
		cures: []stuckCure{{
			action: "Find the thread that should put it there: it is slow, has failed, or stands behind these " +
				"threads; give the wait a time limit (poll(2, SECONDS)).",
			risk: "a late item becomes none",
		}, {
			action: "Answer when the item comes instead of holding the thread (asynchronous servlet, DeferredResult).",
			risk:   "order and thread-locals change with the thread",
		}},
		placebos: []string{"More threads: they come to wait there, too."},
		disproof: stuckElsewhere,
	},
	hotcode.ForChild: {
		what: "wait for a child process",
		cures: []stuckCure{{
			action: "See what the child does (it may wait for somebody to read its output); keep it alive and talk " +
				"to it, or do its work in the process.",
			risk: "a child that stays keeps its memory",
		}},
		placebos: []string{"More threads: each waits for a child of its own."},
		disproof: "the children end at once.",
	},
}

const stuckElsewhereInGo = "another second finds the goroutines elsewhere."

// stuckKindsInGo are what to say about goroutines instead.
var stuckKindsInGo = map[hotcode.Wait]*stuckKind{
	hotcode.ForSleep: {
		what: "sleep",
		cures: []stuckCure{{
			action: "Take the sleep out of what a request does: wait for the event itself (a channel, a context), " +
				"or answer and go on in another goroutine.",
			risk:   "what came after the sleep now happens at another time",
			before: "for !ready() { time.Sleep(time.Second) }",
			after:  "select { case <-ready: case <-ctx.Done(): return ctx.Err() }",
		}},
		placebos: []string{"More CPUs: nothing runs meanwhile."},
		disproof: "the sleep is what the request asks for.",
	},
	hotcode.ForWakeUp: {
		what: "wait in a select or for a condition",
		cures: []stuckCure{{
			action: "Find the goroutines that should send or signal, and what they do meanwhile; give the wait a " +
				"limit (context.WithTimeout).",
			risk: "a limit turns a late answer into a failure",
		}},
		placebos: []string{"More goroutines that ask: they come to wait there, too."},
		disproof: stuckElsewhereInGo,
	},
	hotcode.ForItem: {
		what: "wait for something from a channel",
		cures: []stuckCure{{
			action: "Find the goroutines that should send it, and what they do meanwhile; run more of those if they " +
				"wait, too, or make them faster.",
			risk: "more of them ask more of what is behind",
		}, {
			action: "Give the wait a limit (select with ctx.Done()).",
			risk:   "a late answer becomes a failure",
		}},
		placebos: []string{"A longer channel: what is late stands in it."},
		disproof: stuckElsewhereInGo,
	},
	hotcode.ForFuture: {
		what: "wait for what another goroutine asked for (singleflight)",
		cures: []stuckCure{{
			action: "Find what the first of them waits for; keep its result, or give it a limit.",
			risk:   "an old result is served",
		}},
		placebos: []string{"More goroutines: they share the same wait."},
		disproof: stuckElsewhereInGo,
	},
	hotcode.ForThreads: {
		what: "wait for other goroutines (WaitGroup)",
		cures: []stuckCure{{
			action: "Find what the others do meanwhile: the slowest of them sets the time of all.",
			risk:   "none",
		}, {
			action: "Give them a limit (errgroup.WithContext), and go on with what has come.",
			risk:   "a late part is missing",
		}},
		placebos: []string{"More CPUs, where the others wait."},
		disproof: stuckElsewhereInGo,
	},
	hotcode.ForPermit: {
		what: "wait for a rate limiter",
		cures: []stuckCure{{
			action: "Refuse what is over the limit at once (Limiter.Allow, answer 429).",
			risk:   "callers must try again later",
		}, {
			action: "Raise the limit to what is behind it, if that can take more.",
			risk:   "what is behind is loaded more",
		}},
		placebos: []string{"More goroutines: they wait for the same permits."},
		disproof: "the limit is what the program is for.",
	},
}

// stuckKindsInPython are what to say about Python threads that have a request in hand.
var stuckKindsInPython = map[hotcode.Wait]*stuckKind{
	hotcode.ForSleep: {
		what: "sleep",
		cures: []stuckCure{{
			action: "Take the sleep out of what a thread does for a request: wait for what it waits for, or plan the " +
				"next attempt with a timer.",
			risk: "what is tried again without a pause is asked more often",
		}, {
			action: "If the line calls SQLite, it sleeps while another connection writes: PRAGMA journal_mode=WAL, " +
				"short transactions, one writer.",
			risk: "WAL needs all processes on one host",
		}},
		placebos: []string{"More CPUs: nobody computes meanwhile.", "More threads: they sleep, too."},
		disproof: "the sleep is what the request is for.",
	},
	hotcode.ForFuture: {
		what: "wait for the result of a pool",
		cures: []stuckCure{{
			action: "Give the pool as many workers as requests wait for it (max_workers, processes), if what they " +
				"wait for can take more; or make what they do shorter.",
			risk:   "what the workers ask gets more requests at once",
			before: "pool = ThreadPoolExecutor(2)",
			after:  "pool = ThreadPoolExecutor(40)",
		}, {
			action: "Wait with a limit (result(timeout=2)), and answer that it is too late.",
			risk:   "a late result becomes none",
		}},
		placebos: []string{"More threads that serve: they wait for the same workers."},
		disproof: "another second finds workers of the pool without work.",
	},
	hotcode.ForThreads: {
		what: "wait for other threads to end",
		cures: []stuckCure{{
			action: "Find what the others do meanwhile: the slowest of them sets the time of all.",
			risk:   "none",
		}},
		placebos: []string{"More CPUs, where the others wait."},
		disproof: "another second finds the threads elsewhere.",
	},
}
