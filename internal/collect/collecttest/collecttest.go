// Package collecttest samples a process with one collector, for that collector's tests.
package collecttest

import (
	"context"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/host/clock"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// Once opens a collector on the process pid of this host, and returns a recording of the one sample that it takes
// after window. Any error fails the test.
func Once(
	t *testing.T, open func(context.Context, collect.Env) (collect.Source, error), pid int, window time.Duration,
) *recording.Recording {
	t.Helper()
	h := host.Local()
	target, err := h.Resolve(t.Context(), host.Selector{PID: pid})
	if err != nil {
		t.Fatal(err)
	}
	src, err := open(t.Context(), collect.Env{Host: h, Target: target})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if err := clock.Sleep(t.Context(), window); err != nil {
		t.Fatal(err)
	}
	return Sample(t, src)
}

// Sample returns a recording of one sample, which must not fail.
func Sample(t *testing.T, src collect.Source) *recording.Recording {
	t.Helper()
	b := recording.NewBuilder()
	a := b.Appender()
	if err := src.Sample(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	a.Commit()
	return b.Done(recording.Meta{})
}
