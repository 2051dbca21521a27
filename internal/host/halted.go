package host

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host/cgroupfs"
)

// Halted returns why a living target does nothing at this moment, and what lets it go on; "" if it sees no such
// reason. In a group it looks at the oldest process.
func (h *Host) Halted(t Target) string {
	if len(t.PIDs) == 0 {
		return ""
	}
	pid := t.PIDs[0]
	st, _, err := h.ReadStat(pid, 0, nil)
	if err != nil {
		return "" // its end is reported elsewhere
	}
	switch {
	case st.State == 'T': // TASK_STOPPED, fs/proc/array.c
		return fmt.Sprintf("process %d is stopped (SIGSTOP or Ctrl-Z): kill -CONT %d lets it go on", pid, pid)
	case st.State == 't':
		return fmt.Sprintf("process %d is held by a debugger: detach it, or let the process go on in it", pid)
	case h.frozen(pid):
		return fmt.Sprintf("process %d is frozen by its control group, as by docker pause: docker unpause, "+
			"or 0 in the group's cgroup.freeze, lets it go on", pid)
	}
	return ""
}

// frozen reports whether the freezer holds the process, as by docker pause. A frozen process shows as asleep.
func (h *Host) frozen(pid int) bool {
	b, err := ReadFile(h.pidPath(pid, "cgroup"), make([]byte, 1024))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if cgroupfs.Frozen(filepath.Join(h.Sys, "fs/cgroup"), strings.TrimSuffix(line, "\n")) {
			return true
		}
	}
	return false
}
