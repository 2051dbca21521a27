package jvm

import (
	"context"
	"fmt"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/jvm/hsperf"
	"github.com/perfdoctor/perfdoctor/internal/jvm/jcmd"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

const (
	// fullOld is the share of the old generation in use from which on a JVM is asked what fills it: below it, a full
	// collection frees enough to go on.
	fullOld = 0.85
	// longestWalk bounds the time that the question stops the program. The JVM walks over the heap for it, and takes
	// no longer than a full collection does (measured on JDK 21 with 500 MB alive: 537 ms beside 688 with Serial, 212
	// beside 662 with Parallel, 315 beside 1,009 with G1).
	longestWalk = time.Second
	// maxClasses bounds the classes of an answer: the first few have most of the heap.
	maxClasses = 30
)

func fromHistogram() []metric.Metric {
	return []metric.Metric{metric.JVMClassBytes, metric.JVMClassObjects}
}

// fullCollections returns the number of full collections in the JVM's life, and the time in them. Z and Shenandoah
// have none: their cycles run beside the program.
func fullCollections(c hsperf.Snapshot) (times int64, spent time.Duration, ok bool) {
	const full = 1 // see gcKind
	if gcKind(c, full) != "full" {
		return 0, 0, false
	}
	times, seconds, ok := collections(c, full)
	return times, time.Duration(seconds * float64(time.Second)), ok
}

// appendClasses asks a JVM what fills its heap if full collections in the window left its old generation full. The
// question stops the JVM as long as each of these collections did.
func (m *machine) appendClasses(ctx context.Context, a *recording.Appender) {
	a.None(fromHistogram()...)
	now, err := m.read()
	if err != nil || !oldIsFull(now) {
		return
	}
	times, spent, ok := fullCollections(now)
	if !ok || m.began == nil || times <= m.began.times {
		return
	}
	each := (spent - m.began.spent) / time.Duration(times-m.began.times)
	if each > longestWalk {
		for _, of := range fromHistogram() {
			a.Missing(of, recording.StatusUnsupported,
				fmt.Sprintf("to walk over the heap stops the program for some %v, as each full collection does", each),
				"jcmd "+m.pid+" GC.class_histogram -all")
		}
		return
	}
	text, err := m.Jcmd(ctx, "GC.class_histogram -all") // without -all it collects first
	var list []jcmd.Class
	if err == nil {
		list, err = parsed(m.pid, "GC.class_histogram", text, func(s string) ([]jcmd.Class, error) {
			return jcmd.ParseHistogram(s, maxClasses)
		})
	}
	if err != nil {
		missing(a, fromHistogram(), err)
		return
	}
	for _, c := range list {
		a.Gauge(metric.JVMClassBytes, float64(c.Bytes), m.pid, c.Name)
		a.Gauge(metric.JVMClassObjects, float64(c.Objects), m.pid, c.Name)
	}
}

// oldIsFull reports whether the old generation is full, relative to the size that it may grow to.
func oldIsFull(c hsperf.Snapshot) bool {
	const old = "sun.gc.generation.1.space.0."
	used, ok := c.Longs[old+"used"]
	most, ok2 := c.Longs[old+"maxCapacity"]
	return ok && ok2 && most > 0 && float64(used) >= fullOld*float64(most)
}

// A fullCount is the number and time of a JVM's full collections when the window began.
type fullCount struct {
	times int64
	spent time.Duration
}

// begin keeps the count; a JVM that is starting has none.
func (m *machine) begin() {
	c, err := m.read()
	if err != nil {
		return
	}
	if times, spent, ok := fullCollections(c); ok {
		m.began = &fullCount{times, spent}
	}
}
