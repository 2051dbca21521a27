package checks

import (
	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/quantity"
)

// runnableThreads gives the mean number of threads that ran or wanted to. The reader of /proc/stat is running while it reads, and is
// taken off.
func runnableThreads(p *check.Pass) (quantity.Value, bool) {
	s := p.Gauge(metric.ProcsRunning)
	if len(s) == 0 {
		return quantity.Value{}, false
	}
	return quantity.Of("runnable threads, mean", max(0, s[0].Mean()-1), quantity.Threads), true
}

// runnablePerCPU is the length of the run queues, counting what runs.
func runnablePerCPU(p *check.Pass) (runnable, perCPU quantity.Value, ok bool) {
	runnable, ok = runnableThreads(p)
	cpus := p.Gauge(metric.CPUsOnline)
	if !ok || len(cpus) == 0 || cpus[0].Last() < 1 {
		return runnable, perCPU, false
	}
	perCPU = runnable.Per(quantity.Of("CPUs", cpus[0].Last(), quantity.CPUs)).As(threadsPerCPU).Named("run queue, with what runs")
	return runnable, perCPU, true
}

const threadsPerCPU = quantity.Unit("threads per CPU")
