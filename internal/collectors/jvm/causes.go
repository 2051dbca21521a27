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

// lookPeriod is how often the cause of the last collection is looked at. HotSpot keeps only one: of two collections
// within this time the first's is mostly not known. A look takes 5 us with its wakeup, all of them a thousandth of a
// CPU; a full collection of a small heap takes as long as that between two.
const lookPeriod = 5 * time.Millisecond

// asked are the causes of collections that somebody asked for, which are of the whole heap
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
	counts map[[2]string]float64 // by kind and cause; "" is a cause that is not known
	now    moment
	fault  error // which ended the looks
}

// moment is what the counters say at one look.
type moment struct {
	kinds       map[string]int64 // collections so far, by kind
	cause, last string           // of the collection that runs, "" for none; and of the one before
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

// appendCauses begins to count, and later appends what was counted.
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

// countCauses begins to count. What it reads must not be closed before [causes.close].
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
		} // what else is wrong with the counters, the next sample says
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

// look counts what was collected since the last look.
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

// causeOf gives the cause of n collections of a kind, of all that were between two looks, "" where it is not known.
// That of a single one is of the operation which was the last to end, or of one that ran at both looks: the count rises
// at the end of a collection, before its cause becomes the last one. A full one among others is that which was asked
// for, if one was seen that was, before or after the others; in Parallel a young one may belong to it
// (ScavengeBeforeFullGC).
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

// append appends what was counted so far.
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
