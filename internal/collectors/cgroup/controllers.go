package cgroup

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/perfdoctor/perfdoctor/internal/host/cgroupfs"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

const (
	perMicro = 1e6
	perNano  = 1e9
)

// bandwidthMetrics are known only when the limit is.
func bandwidthMetrics() []metric.Metric {
	return []metric.Metric{
		metric.CgroupQuota, metric.CgroupPeriod, metric.CgroupBurst, metric.CgroupPeriods, metric.CgroupThrottled,
		metric.CgroupThrottledTime,
	}
}

// cpuV1 and cpuV2 read the cpu controller.
func (r *reader) cpuV1(g group) {
	r.requestV1(g)
	r.bandwidthV1(g)
}

func (r *reader) cpuV2(g group) {
	r.requestV2(g)
	r.bandwidthV2(g)
}

func (r *reader) requestV1(g group) {
	if b := r.read(g, "cpu.shares", metric.CgroupShares); b != nil {
		cpus, err := parseShares(b)
		r.request(g, "cpu.shares", cpus, err)
	}
}

func (r *reader) requestV2(g group) {
	if b := r.readLimit(g, "cpu.weight", metric.CgroupShares); b != nil {
		cpus, err := parseWeight(b)
		r.request(g, "cpu.weight", cpus, err)
	}
}

// bandwidthV1 reads a limit and what came of it (kernel/sched/core.c, cpu_legacy_files).
func (r *reader) bandwidthV1(g group) {
	quota := bytes.Clone(r.read(g, "cpu.cfs_quota_us", bandwidthMetrics()...))
	if quota == nil {
		return
	}
	period := r.read(g, "cpu.cfs_period_us", bandwidthMetrics()...)
	if period == nil {
		return
	}
	limit, err := newBandwidth(quota, period)
	if err != nil {
		r.bad(g, "cpu.cfs_quota_us", err, bandwidthMetrics()...)
	}
	r.bandwidth(g, limit, "cpu.cfs_burst_us", "throttled_time", perNano)
}

// bandwidthV2 does the same in v2 (kernel/sched/core.c, cpu_files). Neither the root nor a group whose controller is
// off has cpu.max; both are without a limit.
func (r *reader) bandwidthV2(g group) {
	b := r.readLimit(g, "cpu.max", bandwidthMetrics()...)
	if b == nil {
		return
	}
	limit, err := parseMax(b)
	if err != nil {
		r.bad(g, "cpu.max", err, bandwidthMetrics()...)
	}
	r.bandwidth(g, limit, "cpu.max.burst", "throttled_usec", perMicro)
}

func (r *reader) request(g group, file string, cpus float64, err error) {
	if err != nil {
		r.bad(g, file, err, metric.CgroupShares)
		return
	}
	r.gauge(metric.CgroupShares, cpus, g)
}

// bandwidth appends a limit and what came of it. Without a limit nothing is ever throttled.
func (r *reader) bandwidth(g group, limit bandwidth, burst, throttled string, per float64) {
	if limit.cpus == 0 {
		return
	}
	r.gauge(metric.CgroupQuota, limit.cpus, g)
	r.gauge(metric.CgroupPeriod, limit.period, g)
	r.number(g, burst, metric.CgroupBurst, perMicro)
	b := r.read(g, "cpu.stat", metric.CgroupPeriods, metric.CgroupThrottled, metric.CgroupThrottledTime)
	if b == nil {
		return
	}
	r.keyed(g, "cpu.stat", b, "nr_periods", metric.CgroupPeriods, 1)
	r.keyed(g, "cpu.stat", b, "nr_throttled", metric.CgroupThrottled, 1)
	r.keyed(g, "cpu.stat", b, throttled, metric.CgroupThrottledTime, per)
}

func (r *reader) usageV1(g group) { r.number(g, "cpuacct.usage", metric.CgroupCPU, perNano) }

// usageV2 needs no controller: every v2 group has its CPU time in cpu.stat (kernel/cgroup/rstat.c), the root on newer
// kernels only.
func (r *reader) usageV2(g group) {
	if b := r.read(g, "cpu.stat", metric.CgroupCPU); b != nil {
		r.keyed(g, "cpu.stat", b, "usage_usec", metric.CgroupCPU, perMicro)
	}
}

func (r *reader) cpusetV1(g group) { r.cpuset(g, "cpuset.effective_cpus") }
func (r *reader) cpusetV2(g group) { r.cpuset(g, "cpuset.cpus.effective") }

func (r *reader) cpuset(g group, file string) {
	b := r.read(g, file, metric.CgroupCpuset)
	if b == nil {
		return
	}
	n, err := parseCPUs(b)
	if err != nil {
		r.bad(g, file, err, metric.CgroupCpuset)
	}
	if n > 0 {
		r.gauge(metric.CgroupCpuset, n, g)
	}
}

// memoryV1 reads the memory controller (mm/memcontrol-v1.c). The total_ lines cover the descendants, as the usage does.
func (r *reader) memoryV1(g group) {
	r.memory(g, "memory.usage_in_bytes", "total_inactive_file")
	r.limit(g, "memory.limit_in_bytes", metric.CgroupMemoryLimit)
	r.number(g, "memory.failcnt", metric.CgroupMemoryMax, 1)
	if b := r.read(g, "memory.oom_control", metric.CgroupOOMKills); b != nil {
		r.keyed(g, "memory.oom_control", b, "oom_kill", metric.CgroupOOMKills, 1)
	}
}

// memoryV2 reads the memory controller (mm/memcontrol.c). The root has none of these files but memory.stat.
func (r *reader) memoryV2(g group) {
	r.memory(g, "memory.current", "inactive_file")
	r.limit(g, "memory.max", metric.CgroupMemoryLimit)
	b := r.read(g, "memory.events", metric.CgroupOOMKills, metric.CgroupMemoryMax)
	if b == nil {
		return
	}
	r.keyed(g, "memory.events", b, "oom_kill", metric.CgroupOOMKills, 1)
	r.keyed(g, "memory.events", b, "max", metric.CgroupMemoryMax, 1)
}

// memory appends the memory charged, and the working set as the kubelet counts it: the memory charged, less the page
// cache not used lately.
func (r *reader) memory(g group, file, inactive string) {
	used, ok := r.number(g, file, metric.CgroupMemory, 1, metric.CgroupWorkingSet)
	if !ok {
		return
	}
	b := r.read(g, "memory.stat", metric.CgroupWorkingSet)
	if b == nil {
		return
	}
	cache, err := cgroupfs.Key(b, inactive)
	if err != nil {
		r.bad(g, "memory.stat", err, metric.CgroupWorkingSet)
		return
	}
	r.gauge(metric.CgroupWorkingSet, max(0, used-cache), g) // the two were not read at one moment
}

// pids reads the pids controller, which is the same in both versions (kernel/cgroup/pids.c). The root has no files and
// no limit, which is known, not missing.
func (r *reader) pids(g group) {
	if _, err := os.Stat(filepath.Join(g.dir, "pids.current")); g.path == "/" && errors.Is(err, fs.ErrNotExist) {
		return // "/" with files is a container's own group, seen from inside
	}
	r.number(g, "pids.current", metric.CgroupPIDs, 1)
	r.limit(g, "pids.max", metric.CgroupPIDsLimit)
}

func (r *reader) pressure(g group) {
	for _, resource := range []string{"cpu", "memory", "io"} {
		file := resource + ".pressure"
		b := r.read(g, file, metric.CgroupPressure)
		if b == nil {
			continue
		}
		stalled, err := parseStalled(b)
		if err != nil {
			r.bad(g, file, err, metric.CgroupPressure)
			continue
		}
		for kind, seconds := range stalled {
			r.seen[metric.CgroupPressure] = true
			r.a.Counter(metric.CgroupPressure, seconds, g.path, g.level, resource, kind)
		}
	}
}
