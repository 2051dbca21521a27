// Package collectors lists every collector.
package collectors

import (
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/asprof"
	"github.com/perfdoctor/perfdoctor/internal/collectors/cgroup"
	"github.com/perfdoctor/perfdoctor/internal/collectors/jvm"
	"github.com/perfdoctor/perfdoctor/internal/collectors/network"
	"github.com/perfdoctor/perfdoctor/internal/collectors/perf"
	"github.com/perfdoctor/perfdoctor/internal/collectors/proc"
	"github.com/perfdoctor/perfdoctor/internal/collectors/process"
	"github.com/perfdoctor/perfdoctor/internal/collectors/sockets"
)

// Options are what a user may choose of how collectors work. The zero value is what a diagnosis does by itself.
type Options struct {
	JVM asprof.Options // of the profiles of a JVM
}

// All lists them in the order in which they are opened and reported.
func All(o Options) []collect.Collector {
	return slices.Concat(
		proc.Collectors(), process.Collectors(), cgroup.Collectors(), network.Collectors(), sockets.Collectors(), perf.Collectors(),
		jvm.Collectors(), asprof.Collectors(o.JVM),
	)
}
