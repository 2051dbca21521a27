package collect

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// leastFiles is how many files a run must be able to open. On 2 CPUs the collectors have up to 182 open at once, with
// --deep. With fewer, chance would decide which collectors get one, and two runs would differ. Each further CPU adds
// more, for perf events; a collector that lacks those says so itself.
const leastFiles = 256

// enoughFiles says why the run cannot open as many files as it needs, or nil.
func enoughFiles() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if limit.Cur >= leastFiles+standardFiles {
		// Without procfs this is unknown, and the collectors will say what they lack.
		if open, _ := os.ReadDir("/proc/self/fd"); uint64(len(open))+leastFiles <= limit.Cur {
			return nil
		}
	}
	return Unavailable(recording.StatusFailed, fmt.Sprintf("raise ulimit -n (now %d)", limit.Cur),
		"%v: this process may open %d, and a run needs %d besides those it was started with", unix.EMFILE, limit.Cur,
		leastFiles)
}

// standardFiles is the number of files that every process has, including those of Go's runtime (epoll and eventfd).
const standardFiles = 5
