package evidence

import (
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// A Knob is a setting or statistic of a group, under its name in each version of cgroups.
type Knob struct{ controller, v2, v1 string }

var (
	// KnobCPULimit is the CPU limit of a group.
	KnobCPULimit = Knob{"cpu", "cpu.max", "cpu.cfs_quota_us"}
	// KnobCPUBurst is how much unused quota a group may save up.
	KnobCPUBurst = Knob{"cpu", "cpu.max.burst", "cpu.cfs_burst_us"}
	knobCPUStat  = Knob{"cpu", "cpu.stat", "cpu.stat"}
	// KnobMemoryLimit is the memory limit of a group.
	KnobMemoryLimit = Knob{"memory", "memory.max", "memory.limit_in_bytes"}
	// KnobMemoryEvents counts how often a group was at its memory limit.
	KnobMemoryEvents = Knob{"memory", "memory.events", "memory.failcnt"}
	// KnobPIDsLimit is how many tasks a group may have.
	KnobPIDsLimit = Knob{"pids", "pids.max", "pids.max"}
	// KnobPIDs is how many tasks a group has.
	KnobPIDs = Knob{"pids", "pids.current", "pids.current"}
)

// File returns the path of a group's file as a shell word.
func (k Knob) File(p *check.Pass, cgroup, level string) string {
	return check.Quote(k.path(p, cgroup, level))
}

// path returns the path of a group's file. If the recording does not say where the group's files are, it assumes the
// place where every current distribution mounts cgroup v2.
func (k Knob) path(p *check.Pass, cgroup, level string) string {
	dir, name := "/sys/fs/cgroup"+cgroup, k.v2
	if s, ok := First(p.Info(metric.CgroupDir, "cgroup", cgroup, "level", level, "controller", k.controller)); ok {
		dir = s.Label("dir")
	}
	if k.isV1(p, cgroup, level) {
		name = k.v1
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}

func (k Knob) isV1(p *check.Pass, cgroup, level string) bool {
	return len(p.Info(metric.CgroupDir, "cgroup", cgroup, "level", level, "controller", k.controller, "version",
		"1")) > 0
}

// Set returns the command that writes a value, which differs between the cgroup versions.
func (k Knob) Set(p *check.Pass, cgroup, level, v2, v1 string) check.Command {
	value := v2
	if k.isV1(p, cgroup, level) {
		value = v1
	}
	return check.Commandf("echo %s > %s", value, k.path(p, cgroup, level))
}
