package jvm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/find"
	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/jvm"
	"github.com/perfdoctor/perfdoctor/internal/jvm/typecheck"
	"github.com/perfdoctor/perfdoctor/internal/kernel/perfevent"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

const (
	// samplePeriod yields 1000 samples of each busy CPU in ten seconds. It is not a multiple of a millisecond, so
	// that it does not keep step with the kernel's tick or with a profiler, which both run code of their own.
	samplePeriod = 10007 * time.Microsecond
	// maxCounters bounds the different program counters of a JVM that are looked up in one sample: each costs 1 to 3
	// reads of 2 µs. 50 busy CPUs have that many in a second if each sample is at a different place.
	maxCounters = 5000
)

func typeChecks(look *find.Look) collect.Collector {
	return collect.Collector{
		Name: "jvm-type-checks",
		Doc: "Samples of the CPUs' program counters that are in searches of HotSpot's type checks, found by the " +
			"machine code there " +
			"(x86-64).",
		Overhead: "each CPU 100 samples a second of 1 to 2 µs; a sample 2 to 4 µs for each place in the JVM's code, " +
			"mostly below 1 ms",
		Provides: []metric.Metric{metric.TypeCheckSamples},
		Open:     opener(look, openTypeChecks),
	}
}

// typeCheckSource samples all CPUs and looks only at what the target's JVMs ran.
type typeCheckSource struct {
	sampler *perfevent.Sampler
	list    map[int]*checked
}

// checked is a JVM whose type checks are watched.
type checked struct {
	pid    string
	memory *door.Memory
	counts map[typecheck.Place]float64 // since the source was opened

	kernel int            // samples in the kernel since the last call of Sample
	user   map[uint64]int // samples in user mode, by program counter
	over   int            // samples beyond maxCounters
}

func openTypeChecks(ctx context.Context, env collect.Env, look *find.Look) (collect.Source, error) {
	switch {
	case runtime.GOARCH != "amd64":
		return nil, collect.Unavailable(recording.StatusUnsupported,
			"run the type pollution agent on a copy of the program",
			"the search of a type check is only known for x86-64")
	case env.Host.Proc != "/proc":
		return nil, collect.Unavailable(recording.StatusUnsupported, "run perfdoctor in the host's pid namespace",
			"pids in %s may not be those of perf_event_open, which knows perfdoctor's own pid namespace", env.Host.Proc)
	}
	list, _, err := machines(ctx, env, look) // the collector of the counters says what is beyond the bound
	if err != nil {
		return nil, err
	}
	s := &typeCheckSource{list: map[int]*checked{}}
	if err := s.open(env, list); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *typeCheckSource) open(env collect.Env, machines []*machine) error {
	for _, m := range machines {
		if m.Kind != jvm.HotSpot {
			continue
		}
		memory := door.MemoryOf(fmt.Sprintf("%s/%d", env.Host.Proc, m.PID))
		if _, err := memory.ReadAt(make([]byte, 1), 0); errors.Is(err, fs.ErrPermission) {
			return err
		}
		s.list[m.PID] = &checked{
			pid: m.pid, memory: memory, counts: map[typecheck.Place]float64{},
			user: map[uint64]int{},
		}
	}
	if len(s.list) == 0 {
		return collect.Unavailable(recording.StatusUnsupported, "", "no process of the target is a HotSpot JVM")
	}
	cpus, err := env.Host.OnlineCPUs()
	if err != nil {
		return err
	}
	s.sampler, err = perfevent.OpenSampler(cpus, samplePeriod)
	return samplingError(err)
}

// samplingError adds the status that a report shows to a refusal by the kernel; its reason names the remedy.
func samplingError(err error) error {
	r, ok := errors.AsType[*perfevent.RefusedError](err)
	if !ok {
		return err
	}
	status := recording.StatusFailed
	switch r.Status {
	case perfevent.Denied:
		status = recording.StatusDenied
	case perfevent.NotSupported:
		status = recording.StatusUnsupported
	}
	return collect.Unavailable(status, "", "%s", r.Reason)
}

// Close ends the sampling.
func (s *typeCheckSource) Close() error {
	if s.sampler != nil {
		s.sampler.Close()
	}
	return nil
}

// Sample looks up where the JVMs were since the last sample. It does so each time because code moves: a method that
// is recompiled leaves its old place.
func (s *typeCheckSource) Sample(ctx context.Context, a *recording.Appender) error {
	lost, err := s.sampler.Read(s.sort)
	if err != nil {
		return err
	}
	a.LostOfSample(int(lost), "samples of program counters, since the buffers were full")
	for pid, c := range s.list {
		if err := c.lookUp(ctx, pid, a); err != nil {
			return err
		}
		for _, p := range typecheck.Places() {
			a.Counter(metric.TypeCheckSamples, c.counts[p], c.pid, string(p))
		}
	}
	return nil
}

// sort adds one sample to those of its JVM, and drops those of other processes.
func (s *typeCheckSource) sort(x perfevent.Sample) {
	c, ours := s.list[x.PID]
	switch {
	case !ours:
	case !x.User:
		c.kernel++
	case len(c.user) == maxCounters && c.user[x.IP] == 0:
		c.over++
	default:
		c.user[x.IP]++
	}
}

func (c *checked) lookUp(ctx context.Context, pid int, a *recording.Appender) error {
	c.counts[typecheck.Elsewhere] += float64(c.kernel)
	a.LostOfSample(c.over, fmt.Sprintf("samples of program counters, which were at more than %d places in a JVM",
		maxCounters))
	counters := c.user
	c.kernel, c.over, c.user = 0, 0, map[uint64]int{}
	if len(counters) == 0 {
		return nil
	}
	maps, err := door.Maps(fmt.Sprintf("/proc/%d", pid))
	if errors.Is(err, fs.ErrNotExist) { // the JVM has ended
		a.LostOfSample(total(counters), unreadCode)
		return nil
	}
	if err != nil {
		return err
	}
	defer maps.Close()
	regions, err := firewall.Parse("the mappings", func() ([]typecheck.Region, error) {
		return typecheck.ParseRegions(
			maps)
	})
	if err != nil {
		return fmt.Errorf("maps of process %d: %w", pid, err)
	}
	return c.countSafely(ctx, pid, counters, typecheck.Code{Memory: c.memory, Regions: regions}, a)
}

func (c *checked) countSafely(ctx context.Context, pid int, counters map[uint64]int, code typecheck.Code,
	a *recording.Appender,
) error {
	what := fmt.Sprintf("the code of process %d", pid)
	return firewall.Run(what, func() error { return c.count(ctx, counters, code, a) })
}

func (c *checked) count(ctx context.Context, counters map[uint64]int, code typecheck.Code,
	a *recording.Appender,
) error {
	unread := 0
	for pc, n := range counters {
		if err := ctx.Err(); err != nil {
			return err
		}
		place, err := code.Place(pc)
		switch {
		case errors.Is(err, typecheck.ErrUnreadable):
			unread += n
		case err != nil:
			return err
		default:
			c.counts[place] += float64(n)
		}
	}
	a.LostOfSample(unread, unreadCode)
	return nil
}

const unreadCode = "samples of program counters whose code was gone before it was read"

func total(counters map[uint64]int) int {
	sum := 0
	for _, n := range counters {
		sum += n
	}
	return sum
}
