package jvm

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/jvm/hsperf"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// lookPeriod is how often the cause of the last collection is looked at. HotSpot keeps only one cause: if two
// collections fall within this time, the cause of the first is usually lost. A look takes 5 us with its wakeup, and
// all looks together a thousandth of a CPU; a full collection of a small heap takes as long as the time between two
// looks.
const lookPeriod = 5 * time.Millisecond

// asked are the causes of collections that somebody asked for; these collect the whole heap
// (GCCause::is_user_requested_gc and is_serviceability_requested_gc in src/hotspot/share/gc/shared/gcCause.hpp,
// JvmtiEnv).
var asked = []string{
	"System.gc()", "JvmtiEnv ForceGarbageCollection", "Heap Inspection Initiated GC", "Heap Dump Initiated GC",
	"Diagnostic Command",
}

// causes counts the collections of a JVM by kind and cause, while it runs.
type causes struct {
	stop chan struct{}
	done chan struct{}

	mu     sync.Mutex
	counts map[[2]string]float64 // by kind and cause; "" is an unknown cause
	now    moment
	fault  error // it ended the looks
}

// moment is what the counters say at one look.
type moment struct {
	kinds       map[string]int64 // collections so far, by kind
	cause, last string           // of the running collection, "" for none; and of the previous one
}

// noGC is GCCause::to_string(_no_gc) in src/hotspot/share/gc/shared/gcCause.cpp.
const noGC = "No GC"

func causeNames() map[string]bool {
	names := map[string]bool{"sun.gc.cause": true, "sun.gc.lastCause": true, "sun.gc.collector.1.name": true}
	for n := range 3 {
		names[fmt.Sprintf("sun.gc.collector.%d.invocations", n)] = true
	}
	return names
}

// appendCauses starts the count when called for the first time, and appends what was counted so far.
func (m *machine) appendCauses(a *recording.Appender) error {
	if m.causes == nil {
		read, err := m.counters.Part(causeNames())
		if err != nil {
			return err
		}
		m.causes = countCauses(read)
	}
	return m.causes.append(a, m.pid)
}

// countCauses starts the count. The counters must stay open until [causes.close].
func countCauses(read func() (hsperf.Snapshot, error)) *causes {
	c := &causes{stop: make(chan struct{}), done: make(chan struct{}), counts: map[[2]string]float64{}}
	go c.run(read)
	return c
}

func (c *causes) close() {
	close(c.stop)
	<-c.done
}

func (c *causes) run(read func() (hsperf.Snapshot, error)) {
	defer close(c.done)
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	for {
		if err := firewall.Run("the causes of its collections",
			func() error { return c.lookOnce(read) }); firewall.IsFault(err) {
			c.mu.Lock()
			c.fault = err
			c.mu.Unlock()
			return
		} // the next sample reports any other error of the counters
		select {
		case <-c.stop:
			return
		case <-tick.C:
		}
	}
}

func (c *causes) lookOnce(read func() (hsperf.Snapshot, error)) error {
	s, err := read()
	if err == nil {
		c.look(momentOf(s))
	}
	return err
}

func momentOf(s hsperf.Snapshot) moment {
	m := moment{kinds: map[string]int64{}, cause: s.Texts["sun.gc.cause"], last: s.Texts["sun.gc.lastCause"]}
	if m.cause == noGC {
		m.cause = ""
	}
	for n := range 3 {
		times, ok := s.Longs[fmt.Sprintf("sun.gc.collector.%d.invocations", n)]
		if kind := gcKind(s, n); ok && kind != "" {
			m.kinds[kind] = times
		}
	}
	return m
}

// look counts the collections since the last look.
func (c *causes) look(m moment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.now
	c.now = m
	if before.kinds == nil {
		return
	}
	rose := map[string]int64{}
	var all int64
	for kind, n := range m.kinds {
		if n > before.kinds[kind] {
			rose[kind] = n - before.kinds[kind]
			all += rose[kind]
		}
	}
	if all == 0 {
		return
	}
	for kind, n := range rose {
		cause := causeOf(before, m, kind, n, all)
		c.counts[[2]string{kind, cause}] += float64(n)
	}
}

// causeOf returns the cause of n collections of a kind, out of all between two looks; "" if it is not known. A single
// collection has the cause of the operation that ended last, or of one that ran at both looks: the count rises at the
// end of a collection, before its cause becomes the last one. If a requested collection was seen before or after the
// others, a full collection among them is that one; in Parallel a young one may belong to it (ScavengeBeforeFullGC).
func causeOf(before, now moment, kind string, n, all int64) string {
	ended := now.last
	if now.cause != "" || ended == noGC {
		ended = ""
	}
	switch {
	case n == 1 && kind == "full" && slices.Contains(asked, ended):
		return ended
	case n == 1 && kind == "full" && slices.Contains(asked, before.cause):
		return before.cause
	case all > 1:
		return ""
	case ended != "":
		return ended
	case now.cause == before.cause:
		return now.cause
	}
	return ""
}

// append appends the counts so far.
func (c *causes) append(a *recording.Appender, pid string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil {
		return fmt.Errorf("pid %s: %w", pid, c.fault)
	}
	a.None(metric.JVMGCsByCause)
	for key, n := range c.counts {
		cause := key[1]
		if cause == "" {
			cause = metric.UnknownCause
		}
		a.Counter(metric.JVMGCsByCause, n, pid, key[0], cause)
	}
	return nil
}
