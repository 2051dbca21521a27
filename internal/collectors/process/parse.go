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

// switchCounts are a thread's context switches since it started.
type switchCounts struct{ voluntary, involuntary uint64 }

var (
	voluntaryKey   = []byte("\nvoluntary_ctxt_switches:\t")
	involuntaryKey = []byte("\nnonvoluntary_ctxt_switches:\t")
)

// parseSwitches finds the last two lines of /proc/PID/task/TID/status (fs/proc/array.c, task_context_switch_counts). The
// name on the first line cannot imitate them, as the kernel escapes its line breaks.
func parseSwitches(b []byte) (n switchCounts, err error) {
	if n.voluntary, err = numberAfter(b, voluntaryKey); err != nil {
		return n, err
	}
	n.involuntary, err = numberAfter(b, involuntaryKey)
	return n, err
}

func numberAfter(b, key []byte) (uint64, error) {
	i := bytes.LastIndex(b, key)
	if i < 0 {
		return 0, fmt.Errorf("no line %q", bytes.TrimSpace(key))
	}
	text, _, ended := cutBlank(b[i+len(key):])
	n, err := strconv.ParseUint(string(text), 10, 64)
	if !ended || err != nil {
		return 0, fmt.Errorf("%s bad number %.40q", bytes.TrimSpace(key), text)
	}
	return n, nil
}

// parseRunDelay reads schedstat: nanoseconds on a CPU, nanoseconds runnable but waiting, and time slices (fs/proc/base.c,
// proc_pid_schedstat). It gives the second in seconds.
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
