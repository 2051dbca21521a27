package asprof

import (
	"context"
	"testing"
	"time"
)

// maxStart is the time from attaching to the first sample, on an idle machine.
const maxStart = time.Second

func session(tb testing.TB, b *busyJVM, o Options) (stop func()) {
	tb.Helper()
	s, err := Start(context.Background(), b.inspect(tb), o)
	must(tb, err)
	return func() {
		f, err := s.Stop(context.Background())
		must(tb, err)
		f.Close()
	}
}

// BenchmarkStart is the time from attaching to an idle JVM until the profiler runs: with the library to be loaded, and
// later.
func BenchmarkStart(bench *testing.B) {
	for bench.Loop() {
		bench.StopTimer()
		b := startThreads(bench, 0, nil)
		o := defaults(bench)
		bench.StartTimer()
		began := time.Now()
		stopFirst := session(bench, b, o)
		first := time.Since(began)
		stopFirst()
		began = time.Now()
		session(bench, b, o)()
		again := time.Since(began)
		bench.ReportMetric(float64(first.Microseconds())/1e3, "ms-first")
		bench.ReportMetric(float64(again.Microseconds())/1e3, "ms-later-start-and-stop")
		if first > maxStart {
			bench.Errorf("%v to the first sample, more than %v", first, maxStart)
		}
	}
}
