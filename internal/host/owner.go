package host

import (
	"cmp"
	"strconv"
)

// An Owner says whom a process belongs to.
type Owner struct {
	Cgroup    string // its path in the tree of v2, else in the first of v1; "/" is the root that perfdoctor sees
	Container string // id of the innermost; "" outside of any
	UID       int    // effective
}

// Owner reads whom a process belongs to: about 30 µs.
func (h *Host) Owner(pid int) (Owner, error) {
	lines, err := h.readCgroup(pid)
	if err != nil {
		return Owner{}, err
	}
	st, err := h.readStatus(pid)
	if err != nil {
		return Owner{}, err
	}
	return Owner{Cgroup: groupOf(lines), Container: innermost(lines).id, UID: st.UID[1]}, nil
}

// groupOf gives the path in the tree of v2, unless that is only the root of a host whose controllers are in trees of
// v1.
func groupOf(lines []cgroupLine) string {
	path := ""
	for _, line := range lines {
		if line.version == 2 && line.path != "/" {
			return line.path
		}
		if path == "" || path == "/" {
			path = line.path
		}
	}
	return path
}

// UserName gives the name that passwd has for a user, else the number.
func (h *Host) UserName(uid int) string { return cmp.Or(h.userName(uid), strconv.Itoa(uid)) }
