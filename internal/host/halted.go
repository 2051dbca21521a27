package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Halted says why a target that lives does nothing at this moment, and what lets it go on; "" if nothing of that kind
// is seen. Of a group the oldest process is looked at.
func (h *Host) Halted(t Target) string {
	if len(t.PIDs) == 0 {
		return ""
	}
	pid := t.PIDs[0]
	st, _, err := h.ReadStat(pid, 0, nil)
	if err != nil {
		return "" // that it has ended is said elsewhere
	}
	lines, err := h.readCgroup(pid)
	switch {
	case st.State == 'T': // TASK_STOPPED, fs/proc/array.c
		return fmt.Sprintf("process %d is stopped (SIGSTOP or Ctrl-Z): kill -CONT %d lets it go on", pid, pid)
	case st.State == 't':
		return fmt.Sprintf("process %d is held by a debugger: detach it, or let the process go on in it", pid)
	case err == nil && slices.ContainsFunc(lines, h.frozen):
		return fmt.Sprintf("process %d is frozen by its control group, as by docker pause: docker unpause, "+
			"or 0 in the group's cgroup.freeze, lets it go on", pid)
	}
	return ""
}

// frozen asks the freezer of a control group, which counts a parent that is frozen. A process shows as asleep in it.
func (h *Host) frozen(line cgroupLine) bool {
	groups := filepath.Join(h.Sys, "fs/cgroup")
	// Of a group outside perfdoctor's cgroup namespace the path begins with "..": it must not lead out of cgroupfs.
	line.path = filepath.Clean("/" + line.path)
	if line.version == 2 { // which lies at unified beside version 1
		events := filepath.Join(line.path, "cgroup.events")
		return fileHas(filepath.Join(groups, events), "frozen 1") || fileHas(filepath.Join(groups, "unified", events),
			"frozen 1")
	}
	return slices.Contains(line.controllers, "freezer") &&
		fileHas(filepath.Join(groups, "freezer", line.path, "freezer.state"), "FROZEN")
}

// fileHas tells whether a small file of the kernel's has the line.
func fileHas(file, line string) bool {
	text, err := os.ReadFile(file)
	return err == nil && slices.Contains(strings.Split(string(text), "\n"), line)
}
