package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// maxMembers bounds the processes of one target: a cgroup may hold a build with thousands, and a sample of this many
// takes about 15 ms.
const maxMembers = 500

func memberCollector() collect.Collector {
	return collect.Collector{
		Name: "process",
		Doc:  "CPU time, page faults, memory, threads, open files and age of the target's processes.",
		Overhead: "0.1 ms a sample for a process with few threads; 1 ms when it has 256 and more; 30 µs a further " +
			"process",
		Provides: []metric.Metric{
			metric.ProcessCPU, metric.ProcessChildrenCPU, metric.ProcessFaults, metric.ProcessRSS,
			metric.ProcessPrivate, metric.ProcessThreads,
			metric.ProcessFDs, metric.ProcessFDLimit, metric.ProcessStart, metric.ProcessCalls,
			metric.ProcessCallBytes,
		},
		Open: func(_ context.Context, env collect.Env) (collect.Source, error) {
			if env.Target.Kind == host.KindHost {
				return withoutTarget(metric.ProcessFaults, metric.ProcessRSS, metric.ProcessPrivate,
					metric.ProcessThreads,
					metric.ProcessCalls, metric.ProcessCallBytes), nil
			}
			m := &memberSource{env: env, files: newFileCounter(env.Host), pageSize: float64(os.Getpagesize())}
			return collect.SourceFunc(m.sample), nil
		},
	}
}

type memberSource struct {
	env      collect.Env
	files    *fileCounter
	pageSize float64
	buf      []byte
}

func (m *memberSource) sample(ctx context.Context, a *recording.Appender) error {
	list, err := members(ctx, m.env)
	if err != nil || len(list) == 0 {
		return err
	}
	a.Lost(len(list)-maxMembers, fmt.Sprintf("processes of the target beyond the %d with the most CPU time",
		maxMembers))
	uptime, err := readUptime(m.env.Host)
	if err != nil {
		a.Missing(metric.ProcessStart, recording.StatusFailed, err.Error(), "")
	}
	a.None(metric.ProcessChildrenCPU)
	m.files.begin()
	for _, p := range busiest(list, maxMembers) {
		m.append(ctx, a, p.Stat, uptime)
	}
	for _, p := range busiest(list, maxIOReads) {
		m.appendIO(a, p.Stat)
		m.appendPrivate(a, p.Stat)
	}
	m.files.report(a)
	return ctx.Err()
}

// busiest keeps the n processes with the most CPU time.
func busiest(list []host.Process, n int) []host.Process {
	if len(list) <= n {
		return list
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(x, y host.Process) int { return moreCPUFirst(x.Stat, y.Stat) })
	return list[:n]
}

func (m *memberSource) append(ctx context.Context, a *recording.Appender, st host.Stat, uptime float64) {
	pid := strconv.Itoa(st.PID)
	appendProcessCPU(a, st, memberTarget)
	a.Counter(metric.ProcessFaults, float64(st.MinFlt), pid, st.Comm, "minor")
	a.Counter(metric.ProcessFaults, float64(st.MajFlt), pid, st.Comm, "major")
	a.Gauge(metric.ProcessRSS, float64(st.RSS)*m.pageSize, pid, st.Comm)
	a.Gauge(metric.ProcessThreads, float64(st.Threads), pid, st.Comm)
	if uptime > 0 {
		a.Gauge(metric.ProcessStart, max(0, uptime-seconds(st.StartTime)), pid, st.Comm)
	}
	if n, ok := m.files.count(ctx, st.PID); ok {
		a.Gauge(metric.ProcessFDs, float64(n), pid, st.Comm)
	}
	if limit, ok := m.files.limit(st.PID); ok {
		a.Gauge(metric.ProcessFDLimit, limit, pid, st.Comm)
	}
}

// maxIOReads bounds the processes whose calls are counted, those with the most CPU time: the kernel adds up the
// threads of each, in 10 µs if there are few.
const maxIOReads = 32

func (m *memberSource) appendIO(a *recording.Appender, st host.Stat) {
	pid := strconv.Itoa(st.PID)
	path := m.env.Host.Proc + "/" + pid + "/io"
	b, err := host.ReadFile(path, m.buf)
	var n ioCounts
	if err == nil {
		m.buf = b
		n, err = parseIO(b)
	}
	if err != nil {
		if !gone(err) {
			a.Missing(metric.ProcessCalls, status(err), fmt.Sprintf("%s: %v", path, err), asRoot)
			a.Missing(metric.ProcessCallBytes, status(err), fmt.Sprintf("%s: %v", path, err), asRoot)
		}
		return
	}
	a.Counter(metric.ProcessCalls, n.reads, pid, st.Comm, "read")
	a.Counter(metric.ProcessCalls, n.writes, pid, st.Comm, "write")
	a.Counter(metric.ProcessCallBytes, n.read, pid, st.Comm, "read")
	a.Counter(metric.ProcessCallBytes, n.written, pid, st.Comm, "write")
}

// appendPrivate adds the memory of a process that only it has.
func (m *memberSource) appendPrivate(a *recording.Appender, st host.Stat) {
	pid := strconv.Itoa(st.PID)
	path := m.env.Host.Proc + "/" + pid + "/statm"
	b, err := host.ReadRecord(path, m.buf)
	pages := 0.0
	if err == nil {
		m.buf = b
		pages, err = parsePrivate(b)
	}
	switch {
	case err == nil:
		a.Gauge(metric.ProcessPrivate, pages*m.pageSize, pid, st.Comm)
	case !gone(err):
		a.Missing(metric.ProcessPrivate, status(err), fmt.Sprintf("%s: %v", path, err), asRoot)
	}
}

// readUptime returns the seconds since boot including time in suspend, as in the start times of processes.
func readUptime(h *host.Host) (float64, error) {
	path := filepath.Join(h.Proc, "uptime")
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	up, err := parseUptime(b)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return up, nil
}

// parseUptime reads the first number of /proc/uptime (fs/proc/uptime.c).
func parseUptime(b []byte) (float64, error) {
	first, ok := firstWord(b)
	up, err := strconv.ParseFloat(string(first), 64)
	if !ok || err != nil || up <= 0 || up > maxUptime {
		return 0, fmt.Errorf("bad uptime %.40q", b)
	}
	return up, nil
}

// maxUptime is a thousand years in seconds; a greater number is not an uptime, nor are Inf and NaN.
const maxUptime = 1000 * 365 * 86400
