package cgroup

import (
	"os"
	"strconv"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// BenchmarkSample is where the figures of Collector.Overhead come from.
func BenchmarkSample(b *testing.B) {
	pid, _ := nested(b)
	h := host.Local()
	target, err := h.Resolve(b.Context(), host.Selector{PID: pid})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("four-levels", func(b *testing.B) {
		s := &source{levels: target.Cgroups, reader: newReader()}
		rec := recording.NewBuilder()
		for b.Loop() {
			if err := s.Sample(b.Context(), rec.Appender()); err != nil {
				b.Fatal(err)
			}
		}
	})
	const tree = "/sys/fs/cgroup/cpu/perfdoctor-bench-"
	for i := range 100 {
		dir := tree + strconv.Itoa(i)
		cpuGroup(b, dir)
		if err := os.WriteFile(dir+"/cpu.cfs_quota_us", []byte("20000"), 0); err != nil {
			b.Fatal(err)
		}
	}
	s, err := openHost(b.Context(), h)
	if err != nil {
		b.Fatal(err)
	}

	b.Run("host-100-groups", func(b *testing.B) {
		rec := recording.NewBuilder()
		for b.Loop() {
			if err := s.Sample(b.Context(), rec.Appender()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("walk-100-groups", func(b *testing.B) {
		for b.Loop() {
			if err := s.walk(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
