package jvm

import (
	"fmt"
	"sync"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/jvm/hsperf"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// lookPeriod is how often the cause of the last collection is looked at. HotSpot keeps only one: of two collections within this time the
// first's is mostly not known. A look takes 20 us, a thousandth of a CPU.
const lookPeriod = 20 * time.Millisecond

// causes counts the collections of a JVM by kind and cause, while it runs.
type causes struct {
	stop chan struct{}
	done chan struct{}

	mu     sync.Mutex
	counts map[[2]string]float64 // by kind and cause; "" is a cause that is not known
	now    moment
}

// moment is what the counters say at one look.
type moment struct {
	kinds       map[string]int64 // collections so far, by kind
	cause, last string           // of the collection that runs, "" for none; and of the one before
	parallel    bool             // the collector is Parallel
}

// noGC is GCCause::to_string(_no_gc) in src/hotspot/share/gc/shared/gcCause.cpp.
const noGC = "No GC"

func causeNames() map[string]bool {
	names := map[string]bool{"sun.gc.cause": true, "sun.gc.lastCause": true, "sun.gc.collector.1.name": true, "sun.gc.policy.name": true}
	for n := range 3 {
		names[fmt.Sprintf("sun.gc.collector.%d.invocations", n)] = true
	}
	return names
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
		if s, err := read(); err == nil { // what is wrong with them, the next sample says
			c.look(momentOf(s))
		}
		select {
		case <-c.stop:
			return
		case <-tick.C:
		}
	}
}

func momentOf(s hsperf.Snapshot) moment {
	m := moment{
		kinds: map[string]int64{}, cause: s.Texts["sun.gc.cause"], last: s.Texts["sun.gc.lastCause"], parallel: gcName(s) == "Parallel",
	}
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
	cause := causeOf(before, m, all, rose["young"] == 1 && rose["full"] == 1)
	for kind, n := range rose {
		c.counts[[2]string{kind, cause}] += float64(n)
	}
}

// causeOf gives the cause of what was collected between two looks, "" where it is not known. It is that of the operation which was the
// last to end, or of one that ran at both looks: the count rises at the end of a collection, before its cause becomes the last one. An
// operation is one collection, or in Parallel a young and a full one (ScavengeBeforeFullGC).
func causeOf(before, now moment, collections int64, pair bool) string {
	switch {
	case collections > 1 && !(pair && now.parallel):
		return ""
	case now.cause == "" && now.last != noGC:
		return now.last
	case now.cause == before.cause:
		return now.cause
	}
	return ""
}

// append appends what was counted so far.
func (c *causes) append(a *recording.Appender, pid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a.None(metric.JVMGCsByCause)
	for key, n := range c.counts {
		cause := key[1]
		if cause == "" {
			cause = metric.UnknownCause
		}
		a.Counter(metric.JVMGCsByCause, n, pid, key[0], cause)
	}
}
