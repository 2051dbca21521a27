package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/lab"
)

// A Cost is what one run of a command took, from start to end, including all children that it waited for.
type Cost struct {
	Wall   float64 // seconds
	CPU    float64 // seconds, user and system
	Memory float64 // bytes, the peak of the largest process; 0: not counted
	// Kept is the share of its throughput that the observed program kept; 0: no program was observed.
	Kept float64 `json:",omitempty"`
	// Lost is what perfdoctor says it left out, such as what would have taken too long; "": nothing.
	Lost string `json:",omitempty"`
	// Units is what the CPU time was for, such as the number of series in a scrape; 0: one.
	Units float64 `json:",omitempty"`
}

// An Entrant is a command in a contest.
type Entrant struct {
	Name    string
	Command string `json:",omitempty"` // as typed in a shell
	Missing string `json:",omitempty"` // why it was not measured
	Costs   []Cost `json:",omitempty"`

	argv []string
	// ok lists accepted exit codes besides 0. A diagnosis exits with 3 or 4 if it found something or could not see
	// everything.
	ok []int
	// hidden is the part of the wall time in which the command only waits, as its documentation says.
	hidden time.Duration
	check  func(out []byte) error // nil: none
}

// entrant returns an entrant that runs a program with arguments. It is missing if the program does not exist.
func entrant(name string, argv ...string) *Entrant {
	e := &Entrant{Name: name, argv: argv, Command: shown(argv)}
	if _, err := exec.LookPath(argv[0]); err != nil {
		e.Missing = fmt.Sprintf("%s is not installed", argv[0])
	}
	return e
}

// ours returns perfdoctor with arguments.
func (b *bench) ours(args ...string) *Entrant {
	e := entrant("perfdoctor", append([]string{b.doctor}, args...)...)
	e.ok = []int{3, 4}
	return e
}

// shown returns a command without the paths and process ids of this machine.
func shown(argv []string) string {
	words := slices.Clone(argv)
	for i, w := range words {
		if i > 0 && (argv[i-1] == "--pid" || argv[i-1] == "-p") {
			words[i] = "PID"
		}
		if filepath.IsAbs(w) {
			words[i] = filepath.Base(w)
		}
		if strings.ContainsAny(w, " ;{}'") {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// mostTime bounds one run of a command. The longest command observes for ten seconds.
const mostTime = 2 * time.Minute

// run runs the command once in the host; nil is this host. GNU time starts it: the kernel's peak memory of a child is
// never below the memory of its parent (exec_mmap in fs/exec.c), and time needs less than any of the commands.
func (e *Entrant) run(ctx context.Context, h *lab.Host, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, mostTime)
	defer cancel()
	peak := filepath.Join(dir, "peak")
	cmd := exec.CommandContext(ctx, "time", append([]string{"-q", "-f", "%M", "-o", peak}, e.argv...)...)
	cmd.Dir = dir
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	began := time.Now()
	err := inHost(h, cmd.Run)
	wall := time.Since(began) - e.hidden
	if cmd.ProcessState == nil || err != nil && !slices.Contains(e.ok, cmd.ProcessState.ExitCode()) {
		return fmt.Errorf("%s: %w: %.300s", e.Command, err, complaints.Bytes())
	}
	if e.check != nil {
		if err := e.check(out.Bytes()); err != nil {
			return fmt.Errorf("%s: %w", e.Command, err)
		}
	}
	text, err := os.ReadFile(peak)
	kilobytes, bad := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	if err = errors.Join(err, bad); err != nil {
		return fmt.Errorf("%s: peak of memory: %w", e.Command, err)
	}
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	_, lost, _ := strings.Cut(out.String(), "\n"+lostMark)
	e.Costs = append(e.Costs, Cost{
		Wall: wall.Seconds(), CPU: cpu.Seconds(), Memory: kilobytes * 1024, Lost: strings.TrimSpace(lost),
	})
	return nil
}

// inHost runs a function whose children must be in the host.
func inHost(h *lab.Host, do func() error) error {
	if h == nil {
		return do()
	}
	return h.Do(do)
}

// clockOf returns the CPU time of all threads of a process, including ended ones, to the nanosecond.
func clockOf(pid int) (time.Duration, error) {
	const sched = 2 // CPUCLOCK_SCHED (include/linux/posix-timers_types.h); clock_getcpuclockid(3) computes the same
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|sched, &ts); err != nil {
		return 0, fmt.Errorf("CPU time of pid %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}
