// Package collectors lists every collector.
package collectors

import (
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/cgroup"
	"github.com/perfdoctor/perfdoctor/internal/collectors/ebpf"
	"github.com/perfdoctor/perfdoctor/internal/collectors/jvm"
	"github.com/perfdoctor/perfdoctor/internal/collectors/network"
	"github.com/perfdoctor/perfdoctor/internal/collectors/perf"
	"github.com/perfdoctor/perfdoctor/internal/collectors/proc"
	"github.com/perfdoctor/perfdoctor/internal/collectors/process"
	"github.com/perfdoctor/perfdoctor/internal/collectors/sockets"
)

// All lists them in the order in which they are opened and reported.
func All() []collect.Collector {
	return slices.Concat(
		proc.Collectors(), process.Collectors(), cgroup.Collectors(), network.Collectors(), sockets.Collectors(), perf.Collectors(),
		ebpf.Collectors(),
		jvm.Collectors(),
	)
}
