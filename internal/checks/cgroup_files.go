package checks

import (
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
)

// cgroupKnob is a setting or statistic of a group, under its name in each version of cgroups.
type cgroupKnob struct{ controller, v2, v1 string }

var (
	knobCPULimit     = cgroupKnob{"cpu", "cpu.max", "cpu.cfs_quota_us"}
	knobCPUBurst     = cgroupKnob{"cpu", "cpu.max.burst", "cpu.cfs_burst_us"}
	knobCPUStat      = cgroupKnob{"cpu", "cpu.stat", "cpu.stat"}
	knobMemoryLimit  = cgroupKnob{"memory", "memory.max", "memory.limit_in_bytes"}
	knobMemoryEvents = cgroupKnob{"memory", "memory.events", "memory.failcnt"}
	knobPIDsLimit    = cgroupKnob{"pids", "pids.max", "pids.max"}
	knobPIDs         = cgroupKnob{"pids", "pids.current", "pids.current"}
)

// file gives the path of a group's file as a shell word.
func (k cgroupKnob) file(p *check.Pass, cgroup, level string) string {
	return check.Quote(k.path(p, cgroup, level))
}

// path gives the path of a group's file. Where the recording does not say where the group's files are, it is where
// every distribution of today mounts cgroup v2.
func (k cgroupKnob) path(p *check.Pass, cgroup, level string) string {
	dir, name := "/sys/fs/cgroup"+cgroup, k.v2
	if s, ok := first(p.Info(metric.CgroupDir, "cgroup", cgroup, "level", level, "controller", k.controller)); ok {
		dir = s.Label("dir")
	}
	if k.isV1(p, cgroup, level) {
		name = k.v1
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}

func (k cgroupKnob) isV1(p *check.Pass, cgroup, level string) bool {
	return len(p.Info(metric.CgroupDir, "cgroup", cgroup, "level", level, "controller", k.controller, "version", "1")) > 0
}

// set gives the command that writes a value, which the versions may write differently.
func (k cgroupKnob) set(p *check.Pass, cgroup, level, v2, v1 string) check.Command {
	value := v2
	if k.isV1(p, cgroup, level) {
		value = v1
	}
	return check.Commandf("echo %s > %s", value, k.path(p, cgroup, level))
}
