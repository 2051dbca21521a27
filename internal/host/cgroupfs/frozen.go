package cgroupfs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Frozen asks the freezer of a process's control group, which also counts a frozen parent. line is one of
// /proc/PID/cgroup without its end, "6:freezer:/a/b" or "0::/a/b" (cgroups(7)); root is where the groups are mounted,
// /sys/fs/cgroup. Version 2 lies there, or at unified beside version 1. A group that cannot be seen counts as not
// frozen.
func Frozen(root, line string) bool {
	parts := strings.SplitN(line, ":", 3)
	if len(parts) != 3 {
		return false
	}
	// The path of a group outside perfdoctor's cgroup namespace begins with "..": it must not lead out of cgroupfs.
	group := filepath.Clean("/" + parts[2])
	switch {
	case parts[1] == "freezer":
		return hasLine(filepath.Join(root, "freezer", group, "freezer.state"), "FROZEN")
	case parts[0] == "0":
		return hasLine(filepath.Join(root, group, "cgroup.events"), "frozen 1") ||
			hasLine(filepath.Join(root, "unified", group, "cgroup.events"), "frozen 1")
	}
	return false
}

// hasLine reports whether a small kernel file can be read and has the line.
func hasLine(file, line string) bool {
	text, err := os.ReadFile(file)
	return err == nil && slices.Contains(strings.Split(string(text), "\n"), line)
}
