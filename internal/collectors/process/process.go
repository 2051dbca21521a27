// Package process collects what the kernel says about the target's processes and threads, and about the processes
// beside them.
//
// Times are in ticks of USER_HZ in these files and in seconds in the metrics. A process or a thread that ends between
// two reads is left out without a word: that is normal.
package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// Collectors lists this package's collectors.
func Collectors() []collect.Collector {
	return []collect.Collector{infoCollector(), memberCollector(), threadCollector(), hostCollector(), spaceCollector()}
}

// userHZ is the ticks in a second of /proc/PID/stat: 100 on amd64 and arm64, whatever CONFIG_HZ is
// (include/asm-generic/param.h).
const userHZ = 100

// The values of the "member" label of process_cpu_seconds_total.
const (
	memberTarget = "target"
	memberHost   = "host"
)

const asRoot = "run perfdoctor as root"

// noTarget is the remedy for a metric that is read only for a target.
const noTarget = "name a target with --pid, --comm, --cgroup or --container"

// withoutTarget records for each metric that it is read only for a target.
func withoutTarget(ms ...metric.Metric) collect.SourceFunc {
	return func(_ context.Context, a *recording.Appender) error {
		for _, m := range ms {
			a.Missing(m, recording.StatusUnsupported, "it is read for a target only, and the whole host was diagnosed",
				noTarget)
		}
		return nil
	}
}

func infoCollector() collect.Collector {
	return collect.Collector{
		Name:     "target-info",
		Doc:      "What the target is: kind, first process, runtime, container and user.",
		Overhead: "none: it was found out when the target was resolved",
		Provides: []metric.Metric{metric.TargetInfo},
		Pace:     collect.Once,
		Open: func(_ context.Context, env collect.Env) (collect.Source, error) {
			return collect.SourceFunc(func(_ context.Context, a *recording.Appender) error {
				a.Info(metric.TargetInfo, infoLabels(env.Target)...)
				return nil
			}), nil
		},
	}
}

func infoLabels(t host.Target) []string {
	pid, user := "", t.User
	if len(t.PIDs) > 0 {
		pid = strconv.Itoa(t.PIDs[0])
		if user == "" { // no passwd entry, as in most containers
			user = strconv.Itoa(t.UID)
		}
	}
	return []string{string(t.Kind), pid, t.Comm, string(t.Runtime), t.ContainerID, user}
}

// members lists the target's processes. It returns none and no error if the target has ended, which the run notices
// by itself.
func members(ctx context.Context, env collect.Env) ([]host.Process, error) {
	list, err := env.Host.Members(ctx, env.Target)
	switch {
	case gone(err):
		return nil, nil
	case errors.Is(err, host.ErrPermission):
		return nil, collect.Unavailable(recording.StatusDenied, asRoot, "%v", err)
	case err != nil:
		return nil, fmt.Errorf("list the target's processes: %w", err)
	}
	return list, nil
}

// gone reports whether an error means that the process or thread has ended meanwhile.
func gone(err error) bool {
	return errors.Is(err, host.ErrNoSuchProcess) || errors.Is(err, host.ErrNoSuchCgroup) ||
		errors.Is(err, host.ErrNoSuchContainer) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

func seconds(ticks uint64) float64 { return float64(ticks) / userHZ }

func cpuTicks(st host.Stat) uint64 { return st.UTime + st.STime }

func appendProcessCPU(a *recording.Appender, st host.Stat, member string) {
	pid := strconv.Itoa(st.PID)
	a.Counter(metric.ProcessCPU, seconds(st.UTime), pid, st.Comm, "user", member)
	a.Counter(metric.ProcessCPU, seconds(st.STime), pid, st.Comm, "system", member)
	if st.CUTime+st.CSTime > 0 {
		a.Counter(metric.ProcessChildrenCPU, seconds(st.CUTime), pid, st.Comm, "user", member)
		a.Counter(metric.ProcessChildrenCPU, seconds(st.CSTime), pid, st.Comm, "system", member)
	}
}
