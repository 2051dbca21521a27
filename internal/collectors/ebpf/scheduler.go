package ebpf

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/prometheus/procfs"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/symbols"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/host/clock"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// maxThreads bounds the threads recorded: those that waited longest for a CPU.
const maxThreads = 200

func schedulerCollector(l *Loader) collect.Collector {
	return collect.Collector{
		Name: "bpf-scheduler",
		Doc: "What the target's threads wait for: a CPU, their cgroup's quota, or something else, with the stacks " +
			"that led there.",
		Overhead: "measured by the kernel and recorded as bpf_program_seconds_total: about 0.1 µs a context " +
			"switch of " +
			"others, 0.5 µs of " +
			"the target's, and 3 µs a stack, of a thread about 640 a second at most, of a CPU 10,000; at the end 0.1 " +
			"s to name them",
		Provides: append(Costs(), schedulerMetrics()...),
		Requires: requires(),
		Since:    namesOfKernel(),
		Pace:     collect.AtEnd,
		Deep:     true,
		Open: func(ctx context.Context, env collect.Env) (collect.Source, error) {
			return openScheduler(ctx, l, env)
		},
	}
}

func schedulerMetrics() []metric.Metric {
	return []metric.Metric{
		metric.ThreadCPUWait, metric.ThreadCPUWaits, metric.ThreadThrottledTime, metric.ThreadSleepTime,
		metric.CPUWaitDurations,
		metric.OffCPUProfileSamples, metric.ThreadWaitTime, metric.ThreadWaits, metric.FutexWakes,
	}
}

// scheduler is the source of bpf-scheduler.
type scheduler struct {
	set   *set
	proc  string
	began time.Time
	clock bpf.SchedulerTimes // as the programs have it
	comms map[uint32]string  // of threads, as far as they were asked for
}

func openScheduler(ctx context.Context, l *Loader, env collect.Env) (collect.Source, error) {
	members, err := targetMembers(ctx, env, "each context switch")
	if err != nil {
		return nil, err
	}
	s := &scheduler{proc: env.Host.Proc, comms: map[uint32]string{}}
	stacks, err := s.affordable(ctx, env, members)
	if err != nil {
		return nil, err
	}
	s.set, err = l.open(ctx, bpf.LoadScheduler, func(spec *cilium.CollectionSpec, kernel *btf.Spec) error {
		if err := setTargets(spec, members); err != nil {
			return err
		}
		now, err := monotonic()
		return errors.Join(err, spec.Variables[bpf.SchedulerVarBegan].Set(now), setCalls(spec),
			setRegisters(spec, kernel), spec.Variables[bpf.SchedulerVarThreadStacks].Set(stacks),
			setListeners(spec, env, members[0].PID))
	})
	if err != nil {
		return nil, err
	}
	if err := s.startClock(waitBucket(s.threadsOf(members), env.Duration)); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// maxSleeps is the size of the table in scheduler.bpf.c. placesOfThread is how many places a thread waits at in a time
// bucket: most wait at one to three.
const (
	maxSleeps      = 65536
	placesOfThread = 8
)

// waitBucket returns the length of the time buckets in which waits are counted: a second, or a sixtieth of a long
// window, but longer where the table has no room for that. It returns 0 where the table has room for one bucket only:
// the waits have no times then.
func waitBucket(threads int, window time.Duration) time.Duration {
	const most = 60
	buckets := min(most, maxSleeps/(placesOfThread*max(threads, 1)))
	if buckets < 2 {
		return 0
	}
	return max(time.Second, (window/time.Duration(buckets) + time.Second - 1).Truncate(time.Second))
}

// threadsOf counts threads, as far as it can: those that end meanwhile wait nowhere.
func (s *scheduler) threadsOf(members []host.Process) (n int) {
	for _, m := range members {
		tasks, err := os.ReadDir(filepath.Join(s.proc, strconv.Itoa(m.PID), "task"))
		if err == nil {
			n += len(tasks)
		}
	}
	return n
}

// startClock begins the window, from which the programs count the time buckets.
func (s *scheduler) startClock(bucket time.Duration) error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	s.began, s.clock = time.Now(), bpf.SchedulerTimes{Began: now, BucketNs: uint64(bucket)}
	if err := s.set.collection.Maps[bpf.SchedulerMapClock].Put(uint32(0), s.clock); err != nil {
		return fmt.Errorf("tell the programs when the window began: %w", err)
	}
	return nil
}

// Without --deep the programs may take 2 % of a CPU. A switch of the target takes 0.5 µs, so affordableSwitches of a
// whole host take at most half of that: they are counted for a moment beforehand. A stack takes 3 µs more: the other
// half is for affordableStacks. Where threads wait more often, one of several waits stands for all.
const (
	affordableSwitches = 20_000 // a second
	countSwitches      = 100 * time.Millisecond
	affordableStacks   = 330 // of all threads, in a period of the programs: 3,300 a second
	// leastStacks of a thread tell how often it waits at all; allStacks are taken with --deep.
	leastStacks, allStacks = 2, 64
)

// affordable returns how many stacks of a thread may be taken in a period, or says why its switches are not followed.
func (s *scheduler) affordable(ctx context.Context, env collect.Env, members []host.Process) (uint32, error) {
	if env.Deep {
		return allStacks, nil
	}
	rate, err := switchesOf(ctx, env.Host.Proc)
	if err != nil {
		return 0, err
	}
	if rate > affordableSwitches {
		return 0, collect.Unavailable(recording.StatusUnsupported, "add --deep",
			"this host switches between threads %.0f times a second: to follow them could cost 2 %% of a CPU and "+
				"more, so it is done with --deep only", rate)
	}
	return uint32(min(max(affordableStacks/max(s.threadsOf(members), 1), leastStacks), allStacks)), nil
}

// switchesOf returns how many times a second a host switches between threads.
func switchesOf(ctx context.Context, proc string) (rate float64, err error) {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return 0, err
	}
	before, err := fs.Stat()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := clock.Sleep(ctx, countSwitches); err != nil {
		return 0, err
	}
	after, err := fs.Stat()
	if err != nil {
		return 0, err
	}
	return float64(after.ContextSwitches-before.ContextSwitches) / time.Since(began).Seconds(), nil
}

// targetMembers returns the target's processes, for programs that run too often to be used on a whole host.
func targetMembers(ctx context.Context, env collect.Env, what string) ([]host.Process, error) {
	if env.Target.Kind == host.KindHost {
		return nil, collect.Unavailable(recording.StatusUnsupported, "diagnose a process, cgroup or container",
			"%s of the whole host would be too much: it is done for a target", what)
	}
	members, err := env.Host.Members(ctx, env.Target)
	if err != nil {
		return nil, fmt.Errorf("list the target's processes: %w", err)
	}
	if len(members) == 0 {
		return nil, errors.New("the target has no process")
	}
	return members, nil
}

// targetNetNS returns the inode of the target's network namespace.
func targetNetNS(env collect.Env) (uint32, error) {
	netns := env.Target.Namespaces.Net
	if netns.Inode == 0 {
		return 0, collect.Unavailable(recording.StatusDenied, "run perfdoctor as root",
			"the target's network namespace is not known: %s", netns.Reason)
	}
	return uint32(netns.Inode), nil
}

// setTargets tells programs which processes to follow.
func setTargets(spec *cilium.CollectionSpec, members []host.Process) error {
	if len(members) == 1 {
		if err := spec.Variables[bpf.SchedulerVarOnlyTgid].Set(uint32(members[0].PID)); err != nil {
			return err
		}
	}
	targets := spec.Maps[bpf.SchedulerMapTargets]
	for _, m := range members {
		targets.Contents = append(targets.Contents, cilium.MapKV{Key: uint32(m.PID), Value: uint8(1)})
	}
	return nil
}

// Close unloads the programs.
func (s *scheduler) Close() error { return s.set.Close() }

// Sample appends what the target's threads waited for since Open.
func (s *scheduler) Sample(_ context.Context, a *recording.Appender) error {
	window := time.Since(s.began)
	if err := s.set.appendCost(a); err != nil {
		return err
	}
	if err := s.set.run(bpf.SchedulerProgAsleep, discard); err != nil {
		return err
	}
	threads, sleeps := map[uint32]bpf.SchedulerThread{}, map[bpf.SchedulerPlace]bpf.SchedulerSlept{}
	err := errors.Join(
		readHash(s.set.collection.Maps[bpf.SchedulerMapThreads],
			func(tid uint32, t *bpf.SchedulerThread) { threads[tid] = *t }),
		readHash(s.set.collection.Maps[bpf.SchedulerMapSleeps],
			func(at bpf.SchedulerPlace, t *bpf.SchedulerSlept) { sleeps[at] = *t }),
	)
	if err = errors.Join(err, endWaits(threads, sleeps, s.clock)); err != nil {
		return err
	}
	s.appendThreads(a, threads)
	s.appendWaits(a, sleeps)
	lost, err := s.set.appendLost(a, "events of threads past the kernel's table",
		"waits of stacks past the kernel's table",
		"waits whose stacks the kernel could not keep", "wakes past the kernel's table")
	if err != nil {
		return err
	}
	names, err := s.symbolizer(sleeps)
	if err != nil {
		return err
	}
	defer names.Close()
	err = errors.Join(s.appendProfile(a, names, sleeps, window, lost[1]+lost[2]), s.appendWakes(a, names))
	names.AppendNameless(a)
	return err
}

// symbolizer returns one for the kernel stacks of the waits, and for any addresses of processes.
func (s *scheduler) symbolizer(sleeps map[bpf.SchedulerPlace]bpf.SchedulerSlept) (*symbols.Symbolizer, error) {
	keys := map[uint64]bool{}
	for at := range sleeps {
		keys[at.KernelStack] = true
	}
	var kernel []uint64
	for key := range keys {
		ips, err := s.addresses(key)
		if err != nil {
			return nil, err
		}
		kernel = append(kernel, ips...)
	}
	return s.set.symbolizer(bpf.SchedulerProgWaitsNames, s.proc, kernel)
}

func (s *scheduler) appendThreads(a *recording.Appender, threads map[uint32]bpf.SchedulerThread) {
	var order []uint32
	var buckets [len(bpf.SchedulerThread{}.WaitBuckets)]uint64
	for tid, t := range threads {
		order = append(order, tid)
		for i, n := range t.WaitBuckets {
			buckets[i] += n
		}
	}
	slices.SortFunc(order, func(x, y uint32) int {
		tx, ty := threads[x], threads[y]
		return cmp.Or(cmp.Compare(ty.WaitNs+ty.ThrottledNs, tx.WaitNs+tx.ThrottledNs), cmp.Compare(x, y))
	})
	a.Lost(len(order)-maxThreads, "threads beyond the "+strconv.Itoa(maxThreads)+" that waited longest for a CPU")
	for _, tid := range order[:min(len(order), maxThreads)] {
		t := threads[tid]
		labels := []string{
			strconv.FormatUint(uint64(t.At.Tgid), 10), strconv.FormatUint(uint64(tid), 10),
			s.threadName(t.At.Tgid, tid),
		}
		a.Gauge(metric.ThreadCPUWait, float64(t.WaitNs)*1e-9, labels...)
		a.Gauge(metric.ThreadCPUWaits, float64(t.Waits), labels...)
		a.Gauge(metric.ThreadSleepTime, float64(t.SleepNs)*1e-9, labels...)
		if t.Throttles > 0 {
			a.Gauge(metric.ThreadThrottledTime, float64(t.ThrottledNs)*1e-9, labels...)
		}
	}
	for i, n := range buckets {
		if n > 0 {
			a.Gauge(metric.CPUWaitDurations, float64(n), boundOf(i, len(buckets)))
		}
	}
	a.None(metric.ThreadCPUWait, metric.ThreadCPUWaits, metric.ThreadSleepTime, metric.ThreadThrottledTime,
		metric.CPUWaitDurations)
}

// threadName returns the name of a thread, "" if it has ended.
func (s *scheduler) threadName(pid, tid uint32) string {
	if name, known := s.comms[tid]; known {
		return name
	}
	s.comms[tid] = ""
	b, err := os.ReadFile(filepath.Join(s.proc, strconv.FormatUint(uint64(pid), 10), "task",
		strconv.FormatUint(uint64(tid), 10), "comm"))
	if err != nil {
		return ""
	}
	s.comms[tid] = string(bytes.TrimRight(b, "\n"))
	return s.comms[tid]
}

// appendProfile names the stacks and appends the off-CPU profile. It has the time from when a thread falls asleep
// until it is woken, so it includes neither waiting for a CPU nor throttling.
func (s *scheduler) appendProfile(a *recording.Appender, names *symbols.Symbolizer,
	sleeps map[bpf.SchedulerPlace]bpf.SchedulerSlept,
	window time.Duration, lost int64,
) error {
	b := stacks.NewBuilder(stacks.OffCPU)
	places, bucket := spread(sleeps, s.clock.BucketNs)
	for at, parts := range places {
		stack, err := s.stack(b, names, at)
		if err != nil {
			return err
		}
		for _, part := range parts {
			b.Add(stacks.Sample{
				Stack: stack, Thread: b.Thread(stacks.Thread{ID: int(at.Tid), Name: s.threadName(at.Tgid, at.Tid)}),
				Class: waitedFor(&at), State: stacks.Sleeping,
				At: time.Duration(part.bucket) * bucket, Count: int64(part.count), Value: int64(part.ns),
			})
		}
	}
	p := b.Profile()
	p.Bucket = bucket
	p.Engine = "perfdoctor BPF sched_switch, until woken; sampled above 1000 waits a second and CPU"
	p.Duration, p.Lost = window.Truncate(time.Microsecond), p.Lost+lost
	a.Profile(p)
	return nil
}

// stack returns the frames of a wait, the innermost first: those of the kernel, without the program itself above the
// scheduler, then those of the process.
func (s *scheduler) stack(b *stacks.Builder, names *symbols.Symbolizer, at bpf.SchedulerPlace) ([]int, error) {
	kernel, err := s.addresses(at.KernelStack)
	if err != nil {
		return nil, err
	}
	for i, ip := range kernel {
		if names.KernelFrame(ip).Name == "__schedule" {
			kernel = kernel[i:]
			break
		}
	}
	user, err := s.addresses(at.UserStack)
	if err != nil {
		return nil, err
	}
	return names.Stack(b, at.Tgid, kernel, names.WithCaller(at.Tgid, user, at.Caller)), nil
}

// addresses returns the stack of a key, nil where there was none or it could not be kept (bpf/stacks.h).
func (s *scheduler) addresses(key uint64) ([]uint64, error) {
	var st bpf.SchedulerStack
	err := s.set.collection.Maps[bpf.SchedulerMapStacks].Lookup(key, &st)
	if errors.Is(err, cilium.ErrKeyNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read stack %#x: %w", key, err)
	}
	end := slices.Index(st.Ips[:], 0)
	if end < 0 {
		end = len(st.Ips)
	}
	return st.Ips[:end], nil
}
