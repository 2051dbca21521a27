package host

import (
	"os"
	"strconv"
)

// TIDs lists the threads of a process; none of one that has ended. In the kernel's order, which is that of their birth:
// to sort 10,000 names takes longer than to read them.
func (h *Host) TIDs(pid int) (tids []int) {
	dir, err := os.Open(h.Proc + "/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	for _, name := range names {
		if tid, err := strconv.Atoi(name); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids
}

// ThreadIDs gives the ids of the threads of a process, as this host has them, by those in the pid namespace of the
// process. Threads that end meanwhile are left out, and all before Linux 4.1, which does not tell.
func (h *Host) ThreadIDs(pid int) map[int]int {
	threads := map[int]int{}
	dir := h.Proc + "/" + strconv.Itoa(pid) + "/task/"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // the process has ended
	}
	var buf []byte
	for _, e := range entries {
		text, err := ReadFile(dir+e.Name()+"/status", buf)
		if err != nil {
			continue // the thread has ended
		}
		buf = text
		// A thread that this procfs does not see has the id 0.
		if st, err := ParseStatus(text); err == nil && st.PID > 0 && st.NSpid > 0 {
			threads[st.NSpid] = st.PID
		}
	}
	return threads
}
