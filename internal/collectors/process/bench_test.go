package process

import (
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// BenchmarkSample gives the figures of Collector.Overhead.
func BenchmarkSample(b *testing.B) {
	for _, bm := range []struct {
		name, orders string
		collector    collect.Collector
		host         bool
	}{
		{"process", "threads 1", memberCollector(), false},
		{"process-500-threads", "threads 500", memberCollector(), false},
		{"threads-500-idle", "threads 500", threadCollector(), false},
		{"host-processes-without-target", "threads 1", hostCollector(), true},
		{"host-processes", "threads 1", hostCollector(), false},
	} {
		b.Run(bm.name, func(b *testing.B) {
			c := startChild(b, bm.orders)
			c.obey()
			env := wholeHost()
			if !bm.host {
				env = target(b, c.pid)
			}
			src, err := bm.collector.Open(b.Context(), env)
			if err != nil {
				b.Fatal(err)
			}
			defer src.Close()
			benchmark(b, src, func() {})
		})
	}
}

// BenchmarkSampleActive reads everything about each of 500 threads in each sample.
func BenchmarkSampleActive(b *testing.B) {
	c := startChild(b, "threads 500")
	c.obey()
	s := newThreadSource(target(b, c.pid))
	benchmark(b, collect.SourceFunc(s.sample), func() { clear(s.kept) })
}

func benchmark(b *testing.B, src collect.Source, before func()) {
	b.Helper()
	rec := recording.NewBuilder()
	for b.Loop() {
		before()
		if err := src.Sample(b.Context(), rec.Appender()); err != nil {
			b.Fatal(err)
		}
	}
}
