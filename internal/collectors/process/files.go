package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// maxListed is how many directory entries one sample reads where files must be counted by listing them: about 0.4 µs
// each, so at most 40 ms.
const maxListed = 100_000

// fileCounter counts open files and reads their limit. It is used by one source, one sample at a time.
type fileCounter struct {
	proc   string
	bySize bool // the size of /proc/PID/fd is the number of open files
	buf    []byte

	listed       int   // entries read in this sample
	over         int   // processes not counted in this sample for want of budget
	refused      int   // processes whose files this user may not count
	denied       error // why
	measured     bool  // files of some process were counted
	limitTrouble error
}

// newFileCounter finds out whether files can be counted by size: since Linux 6.2 the size of /proc/PID/fd is the
// number of open files (fs/proc/fd.c, proc_fd_getattr), for every user; before that it is 0.
func newFileCounter(h *host.Host) *fileCounter {
	c := &fileCounter{proc: h.Proc, buf: make([]byte, 4096)}
	var st unix.Stat_t
	if err := unix.Stat(h.Proc+"/self/fd", &st); err == nil {
		c.bySize = st.Size > 0 // perfdoctor itself has open files
	}
	return c
}

func (c *fileCounter) begin() {
	c.listed, c.over, c.refused, c.denied, c.limitTrouble, c.measured = 0, 0, 0, nil, nil, false
}

// count returns the number of open files of a process; ok is false if it has ended or could not be looked at.
func (c *fileCounter) count(ctx context.Context, pid int) (n int, ok bool) {
	path := c.proc + "/" + strconv.Itoa(pid) + "/fd"
	var err error
	if c.bySize {
		n, err = sizeOf(path)
	} else {
		n, err = c.list(ctx, path)
	}
	switch {
	case errors.Is(err, errBudget):
		c.over++
	case err != nil && !gone(err):
		c.refused++
		c.denied = err
	case err == nil:
		c.measured = true
		return n, true
	}
	return 0, false
}

func sizeOf(path string) (int, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return int(st.Size), nil
}

// errBudget says that the directories are too long to be listed in each sample.
var errBudget = errors.New("too many open files to list")

func (c *fileCounter) list(ctx context.Context, path string) (n int, err error) {
	if c.listed >= maxListed {
		return 0, errBudget
	}
	d, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(1024)
		n += len(names)
		c.listed += len(names)
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return 0, err
		case c.listed >= maxListed || ctx.Err() != nil:
			return 0, errBudget
		}
	}
}

// limit returns the soft limit of open files; ok is false if there is none or it could not be read.
func (c *fileCounter) limit(pid int) (limit float64, ok bool) {
	path := c.proc + "/" + strconv.Itoa(pid) + "/limits"
	b, err := host.ReadFile(path, c.buf)
	if gone(err) {
		return 0, false
	}
	if err != nil {
		c.limitTrouble = err
		return 0, false
	}
	c.buf = b
	limit, ok, err = parseFileLimit(b)
	if err != nil {
		c.limitTrouble = fmt.Errorf("%s: %w", path, err)
	}
	return limit, ok
}

// report records what could not be measured in this sample.
func (c *fileCounter) report(a *recording.Appender) {
	a.Lost(c.over, fmt.Sprintf("processes whose open files were not counted, as there were more than %d in all",
		maxListed))
	if c.measured {
		a.Lost(c.refused, "processes whose open files this user may not count")
	} else if c.denied != nil {
		a.Missing(metric.ProcessFDs, status(c.denied), c.denied.Error(), asRoot+" (or with CAP_SYS_PTRACE)")
	}
	if c.limitTrouble != nil {
		a.Missing(metric.ProcessFDLimit, status(c.limitTrouble), c.limitTrouble.Error(), asRoot)
	}
}

func status(err error) recording.Status {
	if errors.Is(err, fs.ErrPermission) {
		return recording.StatusDenied
	}
	return recording.StatusFailed
}

var errNoFilesLine = errors.New(`no line "Max open files"`)

// parseFileLimit finds the soft limit in /proc/PID/limits (fs/proc/base.c, proc_pid_limits); ok is false when it is
// unlimited.
func parseFileLimit(b []byte) (limit float64, ok bool, err error) {
	for line := range bytes.Lines(b) {
		rest, found := bytes.CutPrefix(line, []byte("Max open files"))
		if !found {
			continue
		}
		soft, found := firstWord(bytes.TrimLeft(rest, " "))
		if string(soft) == "unlimited" {
			return 0, false, nil
		}
		n, err := strconv.ParseUint(string(soft), 10, 64)
		if !found || err != nil {
			return 0, false, fmt.Errorf("bad limit in %.80q", line)
		}
		return float64(n), true, nil
	}
	return 0, false, errNoFilesLine
}

// firstWord returns the text before the first blank or line break; found is false if there is none.
func firstWord(b []byte) (word []byte, found bool) {
	i := bytes.IndexAny(b, " \t\n")
	if i < 0 {
		return b, false
	}
	return b[:i], true
}
