// Package experiment changes one thing of this host for some seconds, measures before, during and after, and puts it
// back, even if it is killed: a watchdog, a separate process, undoes what this one cannot. It is the only part of
// perfdoctor that changes a host.
package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/host/clock"
)

// ErrRefused says that an experiment is not made because it has no undo or would show nothing. Nothing was changed.
var ErrRefused = errors.New("refused")

type refusal struct{ msg string }

func (r *refusal) Error() string { return r.msg }
func (r *refusal) Unwrap() error { return ErrRefused }

func refusedf(format string, args ...any) error { return &refusal{fmt.Sprintf(format, args...)} }

// An Experiment is one change of this host, and what it should show.
type Experiment struct {
	// Duration is the length of each of the three windows, and of the change.
	Duration time.Duration

	name    string // quota or pause
	host    *host.Host
	target  host.Target // what is measured
	suspect host.Target // what is paused; without a kind for a quota
	stat    string      // cpu.stat of the group whose quota is raised
	risk    string
	knob    knob
}

// Close releases what the experiment would change.
func (e *Experiment) Close() { _ = e.knob.file.Close() } // what was written to it was checked

// A Change is what an experiment does to this host, and how to undo it by hand.
type Change struct {
	What   string `json:"what"` // a control file, or a process
	Before string `json:"before"`
	During string `json:"during"`
	Undo   string `json:"undo"` // a shell command
	Risk   string `json:"risk"`
}

// Change names what [Experiment.Run] will change.
func (e *Experiment) Change() Change {
	return Change{e.knob.name, e.knob.before, e.knob.during, e.knob.byHand(), e.risk}
}

// RaiseQuota is an experiment on the tightest CPU limit that holds for the target: it raises the limit to that many
// CPUs, or lifts it if to is 0.
func RaiseQuota(h *host.Host, t host.Target, to float64) (*Experiment, error) {
	var best *quota
	for _, level := range t.Cgroups {
		if level.Controller != "cpu" && level.Controller != "" {
			continue
		}
		q, err := readQuota(level)
		if err != nil {
			return nil, err
		}
		if q != nil && (best == nil || q.cpus() < best.cpus()) {
			best = q
		}
	}
	if best == nil {
		return nil, refusedf("no CPU limit holds for %s: there is none to raise", t.Name)
	}
	if to != 0 && to <= best.cpus() {
		return nil, refusedf("the limit of %s is %.3g CPUs: --to %.3g does not raise it", best.level.Path, best.cpus(),
			to)
	}
	e := &Experiment{
		name: "quota", host: h, stat: best.level.Dir + "/cpu.stat",
		target: host.Target{Kind: host.KindCgroup, CgroupDir: best.level.Dir, Name: best.level.Path},
		risk:   "its neighbours get less meanwhile, where all CPUs are busy",
	}
	var err error
	if e.knob, err = best.knob(to); err != nil {
		return nil, err
	}
	return e, e.locked()
}

// locked closes the experiment if another is under way.
func (e *Experiment) locked() error {
	err := e.knob.lock()
	if err != nil {
		e.Close()
	}
	return err
}

// A quota is a limit of CPU time in each period, both in µs.
type quota struct {
	level         host.CgroupLevel
	limit, period int64
}

func (q *quota) cpus() float64 { return float64(q.limit) / float64(q.period) }

// readQuota returns the limit of a level, or nil if it has none.
func readQuota(level host.CgroupLevel) (*quota, error) {
	names := []string{"cpu.max"} // "LIMIT PERIOD", or "max PERIOD"
	if level.Version == 1 {
		names = []string{"cpu.cfs_quota_us", "cpu.cfs_period_us"}
	}
	var fields []string
	for _, name := range names {
		text, err := host.ReadFile(level.Dir+"/"+name, nil)
		if errors.Is(err, fs.ErrNotExist) { // the root has none, nor has a group without the controller
			return nil, nil //nolint:nilnil // there is none
		}
		if err != nil {
			return nil, err
		}
		fields = append(fields, strings.Fields(string(text))...)
	}
	if len(fields) != 2 {
		return nil, fmt.Errorf("%s/%s: %d fields, want 2", level.Dir, names[0], len(fields))
	}
	if fields[0] == "max" || fields[0] == "-1" {
		return nil, nil //nolint:nilnil // there is none
	}
	limit, err1 := strconv.ParseInt(fields[0], 10, 64)
	period, err2 := strconv.ParseInt(fields[1], 10, 64)
	if err := errors.Join(err1, err2); err != nil || limit <= 0 || period <= 0 {
		return nil, fmt.Errorf("%s/%s: bad limit", level.Dir, names[0])
	}
	return &quota{level, limit, period}, nil
}

// knob returns the control file, with the values as the kernel shows them.
func (q *quota) knob(to float64) (knob, error) {
	name, before, during := "cpu.cfs_quota_us", strconv.FormatInt(q.limit, 10), "-1"
	if to != 0 {
		during = strconv.FormatInt(int64(to*float64(q.period)), 10)
	}
	if q.level.Version == 2 {
		period := " " + strconv.FormatInt(q.period, 10)
		if to == 0 {
			during = "max"
		}
		name, before, during = "cpu.max", before+period, during+period
	}
	f, err := openControl(q.level.Dir, name)
	if err != nil {
		return knob{}, rights(err)
	}
	return knob{name: f.Name(), before: before, during: during, file: f}, nil
}

// rights says what is missing if a control file may not be written.
func rights(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		return refusedf("%v: an experiment needs the right to write there; run it as root on the host", err)
	}
	return err
}

// PauseGroup is an experiment on a neighbour of the target: a group, which its freezer pauses.
func PauseGroup(ctx context.Context, h *host.Host, t host.Target, group string) (*Experiment, error) {
	dirs, err := h.GroupDirs(group)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		k, err := freezer(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, rights(err)
		}
		e := &Experiment{
			name: "pause", host: h, target: t, knob: k,
			suspect: host.Target{Kind: host.KindCgroup, CgroupDir: dir, Name: group},
			risk:    "nothing in the group runs meanwhile: what waits for it waits, and its timers are late",
		}
		paused, err := e.members(ctx, e.suspect)
		if err == nil && len(paused) == 0 { // in a tree that is not in use
			e.Close()
			continue
		}
		if err = cmp.Or(err, e.apart(ctx, paused), e.untouched()); err == nil {
			return e, e.locked()
		}
		e.Close()
		return nil, err
	}
	return nil, refusedf("%s has no freezer with processes in it (looked for cgroup.freeze and freezer.state in %s): "+
		"name a process with --suspect-pid, or the directory of its group below a freezer", group,
		strings.Join(dirs, ", "))
}

// freezer is the knob that pauses a group.
func freezer(dir string) (k knob, err error) {
	k = knob{before: "0", during: "1"}
	k.file, err = openControl(dir, "cgroup.freeze") // v2, Linux 5.2
	if errors.Is(err, fs.ErrNotExist) {
		k.before, k.during = "THAWED", "FROZEN"
		k.file, err = openControl(dir, "freezer.state") // v1
	}
	if err == nil {
		k.name = k.file.Name()
	}
	return k, err
}

// members lists the processes of a target, within a time limit: a process can block whoever looks at it.
func (e *Experiment) members(ctx context.Context, t host.Target) ([]host.Process, error) {
	return clock.Within(readLimit, func() ([]host.Process, error) { return e.host.Members(ctx, t) })
}

// untouched makes sure that the group is not paused already.
func (e *Experiment) untouched() error {
	now, err := e.knob.value()
	if err == nil && now != e.knob.before {
		err = refusedf("%s is %s already: whoever set it is to undo it", e.knob.name, now)
	}
	return err
}

// PauseProcess is an experiment on a neighbour of the target: a single process, which SIGSTOP pauses.
func PauseProcess(ctx context.Context, h *host.Host, t host.Target, pid int) (*Experiment, error) {
	f, err := os.Open(path.Join(h.Proc, strconv.Itoa(pid)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("process %d: %w", pid, host.ErrNoSuchProcess)
	}
	if err != nil {
		return nil, err
	}
	e := &Experiment{
		name: "pause", host: h, target: t,
		risk: "the process does nothing meanwhile, its children go on, and its parent is told that it was stopped",
		knob: knob{pid: pid, before: running, during: stopped, file: f},
	}
	e.suspect, err = clock.Within(readLimit, func() (host.Target, error) { return e.suspectProcess() })
	if err == nil {
		e.knob.name = e.suspect.Name
		err = e.apart(ctx, []host.Process{{Stat: host.Stat{PID: pid}}})
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	return e, e.locked()
}

// suspectProcess makes sure that the process can be stopped and continued.
func (e *Experiment) suspectProcess() (host.Target, error) {
	st, err := e.knob.processState()
	switch {
	case errors.Is(err, errGone):
		return host.Target{}, fmt.Errorf("process %d: %w", e.knob.pid, host.ErrNoSuchProcess)
	case err != nil:
		return host.Target{}, err
	case st.Flags&host.FlagKernelThread != 0 || st.PID == 1:
		return host.Target{}, refusedf("process %d (%q) takes no SIGSTOP", st.PID, st.Comm)
	case st.State == 'T' || st.State == 't' || st.State == 'Z':
		return host.Target{}, refusedf("process %d (%q) is in state %c already: whoever stopped it is to let it go on",
			st.PID, st.Comm, st.State)
	}
	// It stays valid: the knob's directory belongs to this process, even if another gets its number later.
	return host.Target{
		Kind: host.KindProcess, PIDs: []int{st.PID}, StartTime: st.StartTime, Comm: st.Comm,
		Name: fmt.Sprintf("process %d (%q)", st.PID, st.Comm),
	}, nil
}

// apart refuses to pause the target itself, perfdoctor, its ancestors, and process 1.
func (e *Experiment) apart(ctx context.Context, paused []host.Process) error {
	targets, err := e.members(ctx, e.target)
	if err != nil {
		return err
	}
	pids := map[int]bool{}
	for _, p := range paused {
		pids[p.PID] = true
	}
	if i := slices.IndexFunc(targets, func(p host.Process) bool { return pids[p.PID] }); i >= 0 {
		return refusedf("process %d is of the target and of %s: it would be paused itself", targets[i].PID,
			e.suspect.Name)
	}
	for pid := os.Getpid(); pid > 0; {
		if pids[pid] {
			return refusedf("process %d is of %s, and perfdoctor depends on it: it would pause itself", pid,
				e.suspect.Name)
		}
		st, _, err := e.host.ReadStat(pid, 0, nil)
		if err != nil {
			return err
		}
		pid = st.PPID
	}
	return nil
}
