package host

import (
	"os"
	"strconv"
)

// TIDs lists the threads of a process, none if it has ended. They are in the kernel's order, by birth: sorting 10,000
// names takes longer than reading them.
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

// ThreadIDs maps the ids of a process's threads in its own pid namespace to their ids on this host. It leaves out
// threads that end meanwhile, and before Linux 4.1, which lacks the ids, all threads.
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
