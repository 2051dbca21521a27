package host

import (
	"os"
	"strconv"
	"strings"
)

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
		outer, inner := parsePids(string(text))
		if inner > 0 {
			threads[inner] = outer
		}
	}
	return threads
}

// parsePids reads the line NSpid of /proc/PID/task/TID/status (fs/proc/array.c, since Linux 4.1): the id in the
// namespace of the reader's procfs first, in the innermost last. 0 for a text without it.
func parsePids(status string) (outer, inner int) {
	_, rest, ok := strings.Cut(status, "\nNSpid:")
	if !ok {
		return 0, 0
	}
	line, _, _ := strings.Cut(rest, "\n")
	words := strings.Fields(line)
	if len(words) == 0 {
		return 0, 0
	}
	outer, outerErr := strconv.Atoi(words[0])
	inner, innerErr := strconv.Atoi(words[len(words)-1])
	if outerErr != nil || innerErr != nil || outer < 1 || inner < 1 { // 0 is a thread that a namespace does not see
		return 0, 0
	}
	return outer, inner
}
