package scenario

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host/clock"
	"github.com/perfdoctor/perfdoctor/internal/lab"
)

// runDir is the directory of a phase: pd-<scenario>-<pid>-<random>, see os.MkdirTemp.
var runDir = regexp.MustCompile(`^pd-[a-z0-9_]+-([0-9]+)-[0-9]+$`)

// killWait is how long the kernel may take to free a killed process.
const killWait = 5 * time.Second

// cleanPoll is how often Clean retries what was still in use.
const cleanPoll = 20 * time.Millisecond

// Clean removes what runs left behind when they were killed: programs and their children, which work in the run's
// directory, then the directories and the cgroups. Network namespaces, with their devices and rules, and the lab's
// own children end with the run. Clean returns what it removed. It leaves alone whatever belongs to a run that is
// still alive.
func Clean(ctx context.Context) (removed []string, err error) {
	dirs, err := staleDirs(os.TempDir())
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, dir := range dirs {
		killed, err := killIn(dir)
		removed = append(removed, killed...)
		if err == nil {
			err = removeDir(ctx, dir)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, "directory "+dir)
	}
	groups, err := sweep(ctx)
	return append(removed, groups...), errors.Join(append(errs, err)...)
}

// sweep removes the cgroups. A container's processes stay in their cgroups until the kernel has freed them.
func sweep(ctx context.Context) (removed []string, err error) {
	for deadline := time.Now().Add(killWait); ; {
		for _, group := range lab.Sweep() {
			removed = append(removed, "cgroup "+group)
		}
		left := lab.StaleGroups()
		if len(left) == 0 {
			return removed, nil
		}
		if time.Now().After(deadline) {
			return removed, fmt.Errorf("these cgroups still hold processes, %v later: %s", killWait,
				strings.Join(left, ", "))
		}
		if err := clock.Sleep(ctx, cleanPoll); err != nil {
			return removed, err
		}
	}
}

// removeDir removes a directory that a process may still write to while it dies, as a container engine does.
func removeDir(ctx context.Context, dir string) error {
	for deadline := time.Now().Add(killWait); ; {
		err := os.RemoveAll(dir)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		if err := clock.Sleep(ctx, cleanPoll); err != nil {
			return err
		}
	}
}

// staleDirs returns the directories of runs whose process is gone. Only this user's directories count: anybody may
// make a directory of that name in a temporary directory.
func staleDirs(temp string) ([]string, error) {
	entries, err := os.ReadDir(temp)
	if err != nil {
		return nil, err
	}
	var stale []string
	for _, entry := range entries {
		match := runDir.FindStringSubmatch(entry.Name())
		if match == nil || !entry.IsDir() {
			continue
		}
		pid, err := strconv.Atoi(match[1])
		if err != nil || !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			continue
		}
		var st unix.Stat_t
		dir := filepath.Join(temp, entry.Name())
		if err := unix.Lstat(dir, &st); err == nil && st.Uid == uint32(os.Geteuid()) {
			stale = append(stale, dir)
		}
	}
	return stale, nil
}

// killIn kills the processes whose working directory is dir or below it.
func killIn(dir string) ([]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var killed []string
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		did, err := killIfIn(pid, dir)
		if err != nil {
			return killed, err
		}
		if did {
			killed = append(killed, fmt.Sprintf("process %d", pid))
		}
	}
	return killed, nil
}

// killIfIn holds a pidfd of the process (Linux 5.3) while it inspects it, so that it cannot kill another process with
// the same pid.
func killIfIn(pid int, dir string) (bool, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at pid %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil || cwd != dir && !strings.HasPrefix(cwd, dir+"/") {
		return false, ignoreGone(err)
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		return false, fmt.Errorf("kill pid %d: %w", pid, err)
	}
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(poll, int(killWait.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return false, fmt.Errorf("wait for pid %d: %w", pid, err)
		case n == 0:
			return false, fmt.Errorf("pid %d is still there %v after SIGKILL", pid, killWait)
		}
		return true, nil
	}
}

// ignoreGone drops the errors of a process that has ended or that this user may not inspect. It passes on all others.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}
