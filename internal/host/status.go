package host

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// ProcStatus is the part of /proc/PID/status that perfdoctor uses (fs/proc/array.c, proc_pid_status).
type ProcStatus struct {
	Tgid, PID, PPID   int
	UID, GID          [4]int // real, effective, saved, file system; as this procfs' user namespace counts
	NStgid            []int  // the process id in each nested pid namespace, outermost first; nil before Linux 4.1
	NSpid             int    // the thread's id in the innermost of them; 0 before Linux 4.1
	Threads           int
	CapEff            uint64 // bit n is capability n of include/uapi/linux/capability.h
	VoluntarySwitch   uint64 // of this thread alone: /proc/PID/status does not sum the threads
	InvoluntarySwitch uint64 // as VoluntarySwitch
	CPUs              string // those the thread may run on, for [ParseCPUList]; some may be offline
}

// InnermostPID returns the process id as the process itself knows it. It returns outer before Linux 4.1, which lacks
// it.
func (s *ProcStatus) InnermostPID(outer int) int {
	if n := len(s.NStgid); n > 0 {
		return s.NStgid[n-1]
	}
	return outer
}

// ParseStatus parses /proc/PID/status or /proc/PID/task/TID/status. It skips unknown lines, as kernels add some with
// every release. A known line with a bad number, or a missing line that every kernel has, is an error.
func ParseStatus(b []byte) (ProcStatus, error) {
	var s ProcStatus
	seen := 0
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		key, value, ok := bytes.Cut(line, []byte{':'})
		if !ok {
			continue
		}
		known, err := s.set(string(key), fields{rest: value})
		if err != nil {
			return ProcStatus{}, fmt.Errorf("status: %w", err)
		}
		if known {
			seen++
		}
	}
	// Tgid, Pid, PPid, Uid, Gid, Threads and CapEff are in every kernel since 2.6.
	if seen < 7 || s.PID == 0 {
		return ProcStatus{}, errors.New("status: lines are missing, the text is cut short")
	}
	return s, nil
}

// set takes one line and reports whether it is one that must be there.
func (s *ProcStatus) set(key string, f fields) (required bool, err error) {
	switch key {
	case "Tgid":
		s.Tgid = int(f.signed(key, 32))
	case "Pid":
		s.PID = int(f.signed(key, 32))
	case "PPid":
		s.PPID = int(f.signed(key, 32))
	case "Uid":
		s.UID = f.four(key)
	case "Gid":
		s.GID = f.four(key)
	case "Threads":
		s.Threads = int(f.signed(key, 32))
	case "CapEff":
		s.CapEff, err = strconv.ParseUint(string(f.next()), 16, 64)
		if err != nil {
			return false, fmt.Errorf("bad CapEff: %w", err)
		}
	case "Cpus_allowed_list":
		s.CPUs = string(f.next())
		return false, f.err
	case "NStgid":
		s.NStgid, err = f.ints(key)
		return false, err
	case "NSpid":
		s.NSpid = f.last(key)
		return false, f.err
	case "voluntary_ctxt_switches":
		s.VoluntarySwitch = f.unsigned(key, 64)
		return false, f.err
	case "nonvoluntary_ctxt_switches":
		s.InvoluntarySwitch = f.unsigned(key, 64)
		return false, f.err
	default:
		return false, nil
	}
	return true, f.err
}

func (f *fields) four(name string) (v [4]int) {
	for i := range v {
		// An id is 32 bits without a sign: 4294967294 is the overflow id of some file systems.
		v[i] = int(f.unsigned(name, 32))
	}
	return v
}

// last returns the last of some numbers.
func (f *fields) last(name string) (v int) {
	for len(bytes.TrimSpace(f.rest)) > 0 {
		v = int(f.signed(name, 32))
	}
	return v
}

func (f *fields) ints(name string) ([]int, error) {
	var v []int
	for len(bytes.TrimSpace(f.rest)) > 0 {
		v = append(v, int(f.signed(name, 32)))
	}
	return v, f.err
}

// readStatus reads the status of a process or, through the same path, of a thread.
func (h *Host) readStatus(pid int) (ProcStatus, error) {
	path := h.pidPath(pid, "status")
	b, err := ReadFile(path, make([]byte, 4096))
	if err != nil {
		return ProcStatus{}, h.processError(pid, err)
	}
	s, err := ParseStatus(b)
	if err != nil {
		return ProcStatus{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}
