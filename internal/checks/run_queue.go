package checks

import (
	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
)

// runnableThreads gives the mean number of threads that ran or wanted to. The reader of /proc/stat is running while it reads, and is
// taken off.
func runnableThreads(p *check.Pass) (quantity.Value, bool) {
	s, ok := first(p.Gauge(metric.ProcsRunning))
	if !ok {
		return quantity.Value{}, false
	}
	return quantity.Of("runnable threads, mean", max(0, s.Mean()-1), quantity.Threads), true
}

// runnablePerCPU is the length of the run queues, counting what runs.
func runnablePerCPU(p *check.Pass) (runnable, perCPU quantity.Value, ok bool) {
	runnable, ok = runnableThreads(p)
	cpus, known := onlineCPUs(p)
	if !ok || !known {
		return runnable, perCPU, false
	}
	perCPU = runnable.Per(cpus).As(threadsPerCPU).Named("run queue, with what runs")
	return runnable, perCPU, true
}

const threadsPerCPU = quantity.Unit("threads per CPU")
