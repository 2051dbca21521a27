package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/host"
)

// taskIDs lists the threads of a process.
func taskIDs(h *host.Host, pid int) ([]int, error) {
	d, err := os.Open(h.Proc + "/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	tids := make([]int, 0, len(names))
	for _, name := range names {
		tid, err := strconv.Atoi(name)
		if err != nil {
			return nil, fmt.Errorf("%s: thread id %.40q", d.Name(), name)
		}
		tids = append(tids, tid)
	}
	return tids, nil
}

// parseRunDelay reads schedstat: nanoseconds on a CPU, nanoseconds runnable but waiting, and time slices
// (fs/proc/base.c, proc_pid_schedstat). It returns the second one, in seconds.
func parseRunDelay(b []byte) (float64, error) {
	f := bytes.Fields(b)
	if len(f) != 3 {
		return 0, errors.New("schedstat has not three numbers")
	}
	wait, err := strconv.ParseUint(string(f[1]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("bad run delay %.40q", f[1])
	}
	return float64(wait) / 1e9, nil
}

// parsePrivate reads statm, whose second and third numbers are the resident pages and those of them that are of files
// or shared (fs/proc/array.c, proc_pid_statm). It returns the pages that are neither.
func parsePrivate(b []byte) (pages float64, err error) {
	f := bytes.Fields(b)
	if len(f) < 3 {
		return 0, errors.New("statm has not three numbers")
	}
	var n [2]uint64
	for i, text := range f[1:3] {
		if n[i], err = strconv.ParseUint(string(text), 10, 48); err != nil {
			return 0, fmt.Errorf("bad number of pages %.40q", text)
		}
	}
	return max(0, float64(n[0])-float64(n[1])), nil
}
