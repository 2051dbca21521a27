package proc

import (
	"context"
	"errors"
	"os"
	"strconv"

	"github.com/prometheus/procfs"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func cpuCollector() collect.Collector {
	return collect.Collector{
		Name: "cpu",
		Doc: "CPU time per CPU and mode, softirqs, softnet_stat, context switches, load and run-queue delay of " +
			"the host.",
		Overhead: "about 0.2 ms a sample on 2 CPUs; grows with the number of CPUs",
		Provides: []metric.Metric{
			metric.CPUSeconds, metric.Softirqs, metric.SoftnetProcessed, metric.SoftnetDropped, metric.SoftnetSqueezed,
			metric.SoftnetRPS,
			metric.ContextSwitches, metric.Forks, metric.ProcsRunning, metric.ProcsBlocked, metric.Load,
			metric.CPURunDelay,
		},
		Open: func(_ context.Context, env collect.Env) (collect.Source, error) {
			fs, err := openFS(env)
			if err != nil {
				return nil, err
			}
			return collect.SourceFunc(func(_ context.Context, a *recording.Appender) error {
				return sampleCPU(env.Host, fs, a)
			}), nil
		},
	}
}

func sampleCPU(h *host.Host, fs procfs.FS, a *recording.Appender) error {
	st, err := fs.Stat()
	if err != nil {
		return err
	}
	// Count first: the other collectors start at the same tick, and if CPUs are short, their threads are in the
	// queues too.
	running := max(1, int(st.ProcessesRunning)-otherThreads(h))
	for id, c := range st.CPU {
		appendCPU(a, strconv.FormatInt(id, 10), c)
	}
	a.Counter(metric.ContextSwitches, float64(st.ContextSwitches))
	a.Counter(metric.Forks, float64(st.ProcessCreated))
	a.Gauge(metric.ProcsRunning, float64(running))
	a.Gauge(metric.ProcsBlocked, float64(st.ProcessesBlocked))
	for _, sample := range []func(procfs.FS, *recording.Appender) error{sampleSoftirqs, sampleSoftnet, sampleLoad} {
		if err := sample(fs, a); err != nil {
			return err
		}
	}
	sampleRunDelay(fs, a)
	return nil
}

// otherThreads returns how many threads of this process want a CPU, besides the one that reads. A /proc that is not
// this host's has none.
func otherThreads(h *host.Host) int {
	pid := os.Getpid()
	entries, err := os.ReadDir(h.Proc + "/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return 0
	}
	running, buf := 0, make([]byte, 1024)
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		var st host.Stat
		if st, buf, err = h.ReadStat(pid, tid, buf); err == nil && st.State == 'R' { // one that has ended wants none
			running++
		}
	}
	return max(0, running-1)
}

func appendCPU(a *recording.Appender, cpu string, c procfs.CPUStat) {
	for _, m := range []struct {
		mode    string
		seconds float64
	}{
		{"user", c.User},
		{"nice", c.Nice},
		{"system", c.System},
		{"idle", c.Idle},
		{"iowait", c.Iowait},
		{"irq", c.IRQ},
		{"softirq", c.SoftIRQ},
		{"steal", c.Steal},
		{"guest", c.Guest},
		{"guest_nice", c.GuestNice},
	} {
		a.Counter(metric.CPUSeconds, m.seconds, cpu, m.mode)
	}
}

func sampleSoftirqs(fs procfs.FS, a *recording.Appender) error {
	s, err := fs.Softirqs()
	if err != nil {
		return err
	}
	a.None(metric.Softirqs)
	for _, v := range []struct {
		name   string
		counts []uint64
	}{
		{"HI", s.Hi},
		{"TIMER", s.Timer},
		{"NET_TX", s.NetTx},
		{"NET_RX", s.NetRx},
		{"BLOCK", s.Block},
		{"IRQ_POLL", s.IRQPoll},
		{"TASKLET", s.Tasklet},
		{"SCHED", s.Sched},
		{"HRTIMER", s.HRTimer},
		{"RCU", s.RCU},
	} {
		for cpu, n := range v.counts { // a column for every possible CPU (fs/proc/softirqs.c), so its index is the CPU
			if n > 0 {
				a.Counter(metric.Softirqs, float64(n), strconv.Itoa(cpu), v.name)
			}
		}
	}
	return nil
}

func sampleSoftnet(fs procfs.FS, a *recording.Appender) error {
	stats, err := fs.NetSoftnetStat()
	if err != nil {
		return err
	}
	for _, s := range stats {
		cpu := strconv.FormatUint(uint64(s.Index), 10)
		a.Counter(metric.SoftnetProcessed, float64(s.Processed), cpu)
		a.Counter(metric.SoftnetDropped, float64(s.Dropped), cpu)
		a.Counter(metric.SoftnetSqueezed, float64(s.TimeSqueezed), cpu)
		a.Counter(metric.SoftnetRPS, float64(s.ReceivedRps), cpu)
	}
	return nil
}

func sampleLoad(fs procfs.FS, a *recording.Appender) error {
	l, err := fs.LoadAvg()
	if err != nil {
		return err
	}
	a.Gauge(metric.Load, l.Load1, "1m")
	a.Gauge(metric.Load, l.Load5, "5m")
	a.Gauge(metric.Load, l.Load15, "15m")
	return nil
}

// sampleRunDelay reads /proc/schedstat, which only kernels with CONFIG_SCHEDSTATS have: most distributions', not all.
func sampleRunDelay(fs procfs.FS, a *recording.Appender) {
	s, err := fs.Schedstat()
	switch {
	case errors.Is(err, os.ErrNotExist):
		a.Missing(metric.CPURunDelay, recording.StatusUnsupported,
			"the kernel has no /proc/schedstat (CONFIG_SCHEDSTATS is off)", "")
		return
	case err != nil:
		status, reason, remedy := collect.Classify(err)
		a.Missing(metric.CPURunDelay, status, reason, remedy)
		return
	case len(s.CPUs) == 0:
		a.Missing(metric.CPURunDelay, recording.StatusFailed, "/proc/schedstat has no line of a CPU that could be read",
			"")
		return
	}
	for _, c := range s.CPUs {
		a.Counter(metric.CPURunDelay, float64(c.WaitingNanoseconds)/1e9, c.CPUNum)
	}
}
