package experiment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/host/cgroupfs"
	"github.com/perfdoctor/perfdoctor/internal/host/clock"
)

const (
	// readLimit is how long a reading may take: 20 µs for a thread. A process that executes a program can make the
	// kernel block its observers for ever.
	readLimit = time.Second
	// maxThreads bounds a reading to a fifth of readLimit.
	maxThreads = 10000
	// userHZ is the ticks of CPU time in a second, 100 on every architecture perfdoctor runs on.
	userHZ = 100
)

// A Window is what was measured in one of the three windows.
type Window struct {
	Name    string  `json:"name"` // before, during or after the change
	Seconds float64 `json:"seconds"`
	CPUs    float64 `json:"cpus"` // mean CPU use of the target
	// Waiting is the mean number of the target's threads that were ready and had no CPU.
	Waiting float64 `json:"waiting"`
	// Throttled is the share of the quota's periods in which the group was stopped, from 0 to 1; 0 for a pause.
	Throttled float64 `json:"throttled"`
	// SuspectCPUs is the CPU use of the paused neighbour; 0 for a quota.
	SuspectCPUs float64 `json:"suspect_cpus"`
}

// a reading holds the counters at one moment.
type reading struct {
	at                 time.Time
	ticks, suspect     uint64
	delay              map[int]uint64 // ns, by thread
	periods, throttled float64
}

// window measures for the experiment's duration.
func (e *Experiment) window(ctx context.Context, name string) (Window, error) {
	first, err := e.read(ctx)
	if err != nil {
		return Window{}, err
	}
	if err := clock.Sleep(ctx, e.Duration); err != nil {
		return Window{}, context.Cause(ctx)
	}
	last, err := e.read(ctx)
	if err != nil {
		return Window{}, err
	}
	return last.since(first, name), nil
}

func (r *reading) since(first *reading, name string) Window {
	s := r.at.Sub(first.at).Seconds()
	var delay uint64
	for tid, d := range r.delay {
		if d > first.delay[tid] { // all of the delay of a thread that began meanwhile is from this window
			delay += d - first.delay[tid]
		}
	}
	w := Window{
		Name: name, Seconds: s, CPUs: rise(first.ticks, r.ticks) / userHZ / s, Waiting: float64(delay) / 1e9 / s,
		SuspectCPUs: rise(first.suspect, r.suspect) / userHZ / s,
	}
	if periods := r.periods - first.periods; periods > 0 {
		w.Throttled = (r.throttled - first.throttled) / periods
	}
	return w
}

// rise is 0 if processes ended that nobody waited for: their time is lost.
func rise(from, to uint64) float64 { return max(0, float64(to)-float64(from)) }

// read takes a reading, within its limit.
func (e *Experiment) read(ctx context.Context) (*reading, error) {
	r, err := clock.Within(readLimit, func() (*reading, error) {
		r := &reading{at: time.Now(), delay: map[int]uint64{}}
		members, err := e.host.Members(ctx, e.target)
		if err != nil {
			return nil, err
		}
		if r.ticks, err = ticksOf(members), r.delays(e.host, members); err != nil {
			return nil, err
		}
		if e.suspect.Kind != "" {
			suspects, err := e.host.Members(ctx, e.suspect)
			if err != nil {
				return nil, err
			}
			r.suspect = ticksOf(suspects)
		}
		if e.stat == "" {
			return r, nil
		}
		return r, r.quota(e.stat)
	})
	if err != nil {
		return nil, fmt.Errorf("measure %s: %w", e.target.Name, err)
	}
	return r, nil
}

// ticksOf adds up the CPU time of processes, and of the children that they have waited for.
func ticksOf(members []host.Process) (sum uint64) {
	for _, p := range members {
		sum += p.UTime + p.STime + p.CUTime + p.CSTime
	}
	return sum
}

// delays reads how long each thread has waited for a CPU (Documentation/scheduler/sched-stats.rst).
func (r *reading) delays(h *host.Host, members []host.Process) error {
	for _, p := range members {
		dir := filepath.Join(h.Proc, strconv.Itoa(p.PID), "task")
		threads, err := os.ReadDir(dir)
		if ended(err) {
			continue
		}
		if err != nil {
			return err
		}
		if len(r.delay)+len(threads) > maxThreads {
			return refusedf("it has more than %d threads", maxThreads)
		}
		for _, thread := range threads {
			text, err := host.ReadFile(dir+"/"+thread.Name()+"/schedstat", nil)
			if ended(err) {
				continue
			}
			if err != nil {
				return err
			}
			if err := r.delayOf(thread.Name(), string(text)); err != nil {
				return fmt.Errorf("%s/%s/schedstat: %w", dir, thread.Name(), err)
			}
		}
	}
	return nil
}

func ended(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// delayOf reads the second of three numbers: ns of running, ns of waiting, number of runs.
func (r *reading) delayOf(thread, text string) error {
	fields := strings.Fields(text)
	if len(fields) != 3 {
		return fmt.Errorf("%d fields, want 3", len(fields))
	}
	tid, err := strconv.Atoi(thread)
	if err != nil {
		return err
	}
	r.delay[tid], err = strconv.ParseUint(fields[1], 10, 64)
	return err
}

// quota reads cpu.stat. Its names are the same in v1 and v2.
func (r *reading) quota(file string) error {
	text, err := host.ReadFile(file, nil)
	if err != nil {
		return err
	}
	var err1, err2 error
	r.periods, err1 = cgroupfs.Key(text, "nr_periods")
	r.throttled, err2 = cgroupfs.Key(text, "nr_throttled")
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}
