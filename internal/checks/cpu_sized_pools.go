package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
)

// paramPoolFloor keeps pools out that are small on every host.
var paramPoolFloor = &check.Param{
	Name: "pool-floor", Default: 4, Unit: quantity.Threads,
	Why: "reactor-netty starts at least four event loops and HotSpot up to three compiler threads however few CPUs there are",
}

// cpuSizedPools are the starts of the names of pools that runtimes and frameworks size by the number of CPUs they
// see. Names are cut at 15 bytes by the kernel (TASK_COMM_LEN). Pools that are sized by load, such as
// http-nio-8080-exec, and Go's Ms do not belong here.
var cpuSizedPools = []string{
	"GC Thread", "ParGC Thread", "G1 Conc", "G1 Refine", "ZWorker", "Shenandoah GC", // HotSpot collectors
	"C1 CompilerThre", "C2 CompilerThre", // HotSpot compilers
	"epollEventLoopG", "nioEventLoopGro", "multiThreadIoEv", // Netty 4.1, 4.2
	"reactor-http-ep", "reactor-http-ni", "vert.x-eventloo", // on top of Netty
	"ForkJoinPool", "RxComputationTh", "akka.actor.defa", "io-compute", // JVM libraries
	"tokio-runtime-w", // Rust
	".NET Server GC",  // one a CPU
}

// hostSizedPools gives the target's pools that are sized by the number of CPUs and have at least so many threads, the
// largest first.
func hostSizedPools(p *check.Pass, atLeast quantity.Value) []quantity.Value {
	var out []quantity.Value
	for _, s := range p.Gauge(metric.ThreadPools) {
		v := quantity.Of(s.Label("pool"), s.Last(), quantity.Threads)
		known := slices.ContainsFunc(cpuSizedPools, func(name string) bool { return strings.HasPrefix(v.Label(), name) })
		if known && v.AtLeast(atLeast) && v.Above(p.Param(paramPoolFloor)) {
			out = append(out, v)
		}
	}
	slices.SortStableFunc(out, func(a, b quantity.Value) int { return cmp.Compare(b.Number(), a.Number()) })
	return out
}

func targetSubject(p *check.Pass) check.Subject {
	for _, s := range p.Info(metric.TargetInfo) {
		if pid := s.Label("pid"); pid != "" && pid != "0" {
			return pidSubject(pid, s.Label("comm"))
		}
	}
	return check.Host
}

// targetRuntime gives the target's runtime ("jvm", "go", "node" …), empty when it is not known.
func targetRuntime(p *check.Pass) string {
	for _, s := range p.Info(metric.TargetInfo) {
		if r := s.Label("runtime"); r != "" {
			return r
		}
	}
	return p.Meta.Target.Runtime
}

// tellCPUs gives the setting that tells the target's runtime how many CPUs it has.
func tellCPUs(p *check.Pass, cpus float64) string {
	n := fmt.Sprintf("%.0f", cpus)
	switch targetRuntime(p) {
	case "jvm":
		return "-XX:ActiveProcessorCount=" + n
	case "go":
		return "GOMAXPROCS=" + n
	}
	return "JVM: -XX:ActiveProcessorCount=" + n + ", Go: GOMAXPROCS=" + n + ", .NET: DOTNET_PROCESSOR_COUNT=" + n
}
