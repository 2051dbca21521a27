package perf

import (
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// BenchmarkSample and BenchmarkOpen give the figures of Collector.Overhead.
func BenchmarkSample(b *testing.B) {
	c := startChild(b, "touch")
	s := openTarget(b, c.env())
	rec := recording.NewBuilder()
	for b.Loop() {
		if err := s.Sample(b.Context(), rec.Appender()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	c := startChild(b, "touch")
	env := c.env()
	for b.Loop() {
		s := newSource(metric.ScopeTarget)
		s.env = env
		if err := s.openMembers(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
