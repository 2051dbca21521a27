package ebpf

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"time"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/dotnet"
	"github.com/perfdoctor/perfdoctor/internal/collectors/symbols"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// sampleRate is how many times a second each CPU is sampled, on average: 14 µs a sample are 0.14 % of it.
const sampleRate = 99

// profileGrace is what naming the frames may take after the window: 0.1 s as a rule, readTime for files, and an answer
// of the JVM.
const profileGrace = 3 * time.Second

func cpuProfileCollector(l *Loader, o Options) collect.Collector {
	return collect.Collector{
		Name: "bpf-cpu-profile",
		Doc:  "What the CPUs run, of all processes: stacks of the kernel and of programs, 99 times a second.",
		Overhead: "measured by the kernel and recorded as bpf_program_seconds_total: 14 µs a sample, 0.14 % of each " +
			"busy CPU, and 4 µs more of one of the target or of what it started, 1000 a second at most, for up to " +
			"16 KiB of its stack, " +
			"which are walked meanwhile (10 µs) and not kept; " +
			"at the end 0.02 to 0.1 s to name the functions, for which the pointers to those of the C library that " +
			"were chosen for " +
			"the CPU are read from a program's memory; a JVM writes where its compiled methods lie, 10 to 50 ms",
		Provides: append(Costs(), metric.HostCPUProfileSamples),
		Requires: requires(),
		Since:    namesOfKernel(),
		Pace:     collect.AtEnd,
		Grace:    profileGrace,
		Open: func(ctx context.Context, env collect.Env) (collect.Source, error) {
			return openCPUProfile(ctx, l, env, o)
		},
	}
}

// cpuProfile is the source of bpf-cpu-profile.
type cpuProfile struct {
	set     *set
	host    *host.Host
	target  host.Target
	options Options
	clock   *samplingClock
	walks   *unwinder // nil for a whole host
	began   time.Time
	bucket  time.Duration // see bucketFor
}

func openCPUProfile(ctx context.Context, l *Loader, env collect.Env, o Options) (collect.Source, error) {
	cpus, err := env.Host.OnlineCPUs()
	if err != nil {
		return nil, fmt.Errorf("list the CPUs: %w", err)
	}
	size := tableSize(len(cpus), env.Duration, maxSampleTable)
	s := &cpuProfile{host: env.Host, target: env.Target, options: o, bucket: bucketFor(len(cpus), env.Duration)}
	s.set, err = l.open(ctx, bpf.LoadCPUProfile, func(spec *cilium.CollectionSpec, kernel *btf.Spec) error {
		spec.Maps[bpf.CPUProfileMapSamples].MaxEntries = size
		spec.Maps[bpf.CPUProfileMapStacks].MaxEntries = min(size, maxStackTable)
		if s.target.Kind == host.KindHost {
			spec.Maps[bpf.CPUProfileMapDumps].MaxEntries = uint32(os.Getpagesize()) // the smallest size allowed
		}
		r, err := registersOf(kernel)
		return errors.Join(err,
			spec.Variables[bpf.CPUProfileVarTakesDumps].Set(s.target.Kind != host.KindHost),
			spec.Variables[bpf.CPUProfileVarRegsDumped].Set(r.dumped),
			spec.Variables[bpf.CPUProfileVarRegsCaller].Set(r.caller),
			spec.Variables[bpf.CPUProfileVarCallerOnStack].Set(r.onStack),
			spec.Variables[bpf.CPUProfileVarRegsByHelper].Set(r.byHelper),
			spec.Variables[bpf.CPUProfileVarRegsFromStack].Set(r.fromStack))
	})
	if err != nil {
		return nil, err
	}
	if err := s.startClock(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if s.target.Kind != host.KindHost {
		if s.walks, err = startUnwinder(ctx, s.host, s.target, s.set.collection.Maps); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	if s.clock, err = startSampling(cpus, s.set.collection.Programs[bpf.CPUProfileProgSample].FD()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// The smallest and the largest tables, in entries. A stack takes 1.1 KB of the kernel's memory: 1.1 MB and 18 MB; a
// sample 0.1 KB: 7 MB at most.
const (
	minTable       = 1024
	maxStackTable  = 16384
	maxSampleTable = 65536
)

// tableSize returns a size with room for two stacks of each sample that the window can bring, up to a bound: most
// stacks come again.
func tableSize(cpus int, window time.Duration, most uint32) uint32 {
	n := min(2*mostSamples(cpus, window), int(most))
	return uint32(min(max(1<<bits.Len(uint(n)), minTable), int(most)))
}

// mostSamples returns how many samples a window can bring at most.
func mostSamples(cpus int, window time.Duration) int {
	return sampleRate * cpus * int(max(window, time.Second)/time.Second)
}

// bucketFor returns the length of the time buckets in which samples are counted: a second, or a sixtieth of a long
// window, which can still be selected in a chart. Equal stacks of two buckets are two entries of the table. They
// cannot fill a table that has room for each sample. On larger hosts there are only as many buckets as the table of
// samples has entries for each entry of the table of stacks, so that no more is lost with times than without.
func bucketFor(cpus int, window time.Duration) time.Duration {
	const second, most = time.Second, 60
	buckets := most
	if mostSamples(cpus, window) > maxSampleTable {
		buckets = maxSampleTable / maxStackTable
	}
	return max(second, (window/time.Duration(buckets) + second - 1).Truncate(second))
}

// startClock begins the window, from which the program counts the time buckets.
func (s *cpuProfile) startClock() error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	s.began = time.Now()
	if err := s.set.collection.Maps[bpf.CPUProfileMapClock].Put(uint32(0),
		bpf.CPUProfileTimes{Began: now, BucketNs: uint64(s.bucket)}); err != nil {
		return fmt.Errorf("tell the program when the window began: %w", err)
	}
	return nil
}

// Close stops the clocks and unloads the program.
func (s *cpuProfile) Close() error {
	return errors.Join(s.clock.close(), s.walks.close(), s.set.Close())
}

// Sample ends the profile, names what was seen, and appends it.
func (s *cpuProfile) Sample(ctx context.Context, a *recording.Appender) error {
	window := time.Since(s.began)
	interval, err := s.clock.stop()
	if err != nil {
		return err
	}
	if err := s.walks.stop(); err != nil {
		return err
	}
	if err := s.set.appendCost(a); err != nil {
		return err
	}
	seen, err := s.read()
	if err != nil {
		return err
	}
	p, err := s.profile(ctx, a, seen, interval)
	if err != nil {
		return err
	}
	lost, err := s.set.appendLost(a, "samples past the kernel's table", "stacks past the kernel's table")
	if err != nil {
		return err
	}
	p.Engine = fmt.Sprintf("perfdoctor BPF cpu-clock %d Hz", sampleRate)
	p.Bucket = s.bucket
	p.Interval, p.Duration, p.Lost = int64(interval), window.Truncate(time.Microsecond), p.Lost+lost[0]+lost[1]
	a.Profile(p)
	return nil
}

// A sampled stack of one process, and how often it was seen.
type sampled struct {
	pid          uint32
	thread       string
	kernel, user []uint64 // addresses, the innermost first
	caller       uint64   // of the innermost function, if that has no frame
	bucket       uint32
	count        uint64
}

// read returns what was sampled: the target's processes first, then those with the most samples, so that their names
// are looked up first.
func (s *cpuProfile) read() ([]sampled, error) {
	kept := map[uint64][]uint64{}
	err := readHash(s.set.collection.Maps[bpf.CPUProfileMapStacks], func(key uint64, st *bpf.CPUProfileStack) {
		end := slices.Index(st.Ips[:], 0)
		if end < 0 {
			end = len(st.Ips)
		}
		kept[key] = slices.Clone(st.Ips[:end])
	})
	if err != nil {
		return nil, err
	}
	var list []sampled
	total := map[uint32]uint64{}
	add := func(at bpf.CPUProfileWhere, count uint64) *sampled {
		list = append(list, sampled{
			at.Tgid, threadComm(at.Comm), kept[at.KernelStack], kept[at.UserStack], at.Caller,
			at.Bucket, count,
		})
		total[at.Tgid] += count
		return &list[len(list)-1]
	}
	err = readHash(s.set.collection.Maps[bpf.CPUProfileMapSamples], func(at bpf.CPUProfileWhere, count *uint64) {
		add(at, *count)
	})
	s.walks.each(func(w unwound, count uint64) {
		if of := add(w.at, count); w.stack != "" {
			of.user, of.caller = w.addresses(), 0
		}
	})
	slices.SortFunc(list, func(x, y sampled) int {
		return cmp.Or(cmp.Compare(total[y.pid], total[x.pid]), cmp.Compare(x.pid, y.pid), cmp.Compare(y.count, x.count))
	})
	return list, err
}

// threadComm is a thread's name, as the kernel has it: 15 bytes and a zero.
func threadComm(name [16]int8) string {
	var b []byte
	for _, c := range name {
		b = append(b, byte(c))
	}
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}

func (s *cpuProfile) profile(ctx context.Context, a *recording.Appender, seen []sampled,
	interval time.Duration,
) (*stacks.Profile, error) {
	members, err := s.members(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(seen, func(x, y sampled) int { return -compareBool(members[x.pid], members[y.pid]) })
	var kernel []uint64
	for _, at := range seen {
		kernel = append(kernel, at.kernel...)
	}
	names, err := s.set.symbolizer(bpf.CPUProfileProgProfileNames, s.host.Proc, kernel)
	if err != nil {
		return nil, err
	}
	defer names.Close()
	ended, err := s.ended(names, members)
	if err != nil {
		return nil, err
	}
	s.readMaps(ctx, a, names, seen, members)
	b := stacks.NewBuilder(stacks.HostCPU)
	for _, at := range seen {
		b.Add(stacks.Sample{
			Stack:  names.Stack(b, at.pid, at.kernel, names.WithCaller(at.pid, at.user, at.caller)),
			Thread: b.Thread(stacks.Thread{ID: int(cmp.Or(ended[at.pid], at.pid)), Name: at.thread}),
			At:     time.Duration(at.bucket) * s.bucket, Count: int64(at.count), Value: int64(at.count) *
				int64(interval),
		})
	}
	names.AppendNameless(a)
	if s.walks != nil && s.walks.fault != nil {
		a.Lost(1, s.walks.fault.Error())
	}
	return b.Profile(), nil
}

// ended returns the processes that came and went, most of them between two readings of the target, each with the
// process of the target that it descends from: that process's time includes theirs, so their samples are its own.
// Their code has names as far as it was seen while they ran.
func (s *cpuProfile) ended(names *symbols.Symbolizer, members map[uint32]bool) (map[uint32]uint32, error) {
	out := map[uint32]uint32{}
	if s.walks == nil {
		return out, nil
	}
	var pid, of uint32
	var gone []uint32
	list := s.walks.dumped.Iterate()
	for list.Next(&pid, &of) {
		if members[pid] || pid == of {
			continue
		}
		out[pid] = of
		gone = append(gone, pid)
	}
	names.Learn(s.walks.walks, gone)
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("read which processes came and went: %w", err)
	}
	return out, nil
}

func compareBool(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return 1
	}
	return -1
}

// members returns the target's processes; none for a whole host.
func (s *cpuProfile) members(ctx context.Context) (map[uint32]bool, error) {
	out := map[uint32]bool{}
	if s.target.Kind == host.KindHost {
		return out, nil
	}
	list, err := s.host.Members(ctx, s.target)
	if err != nil {
		return nil, fmt.Errorf("list the target's processes: %w", err)
	}
	for _, m := range list {
		out[uint32(m.PID)] = true
	}
	return out, nil
}

// worthMap is the share of samples in code made at run time from which on a JVM is asked for its map: a program that
// runs little else than a library does not need it.
const worthMap = 0.01

// readMaps gets the maps of code that runtimes compiled, for processes that were seen in such code. It asks the JVMs
// of the target for their maps; of other processes it reads what they wrote by themselves. Without a map the frames
// stay unknown, and are counted as such.
func (s *cpuProfile) readMaps(ctx context.Context, a *recording.Appender, names *symbols.Symbolizer, seen []sampled,
	members map[uint32]bool,
) {
	all, made := map[uint32]uint64{}, map[uint32]uint64{}
	var order []uint32
	for _, at := range seen {
		if all[at.pid] == 0 {
			order = append(order, at.pid)
		}
		all[at.pid] += at.count
		if slices.ContainsFunc(at.user, func(ip uint64) bool { return names.MadeAtRunTime(at.pid, ip) }) {
			made[at.pid] += at.count
		}
	}
	for _, pid := range order {
		if float64(made[pid]) < worthMap*float64(all[pid]) || made[pid] == 0 {
			continue
		}
		var ask *dotnet.Names
		if members[pid] {
			ask = s.options.DotNet
		}
		if err := names.ReadMap(ctx, pid, members[pid] && !s.options.LeaveJVMs, ask); err != nil {
			a.Lost(int(made[pid]), fmt.Sprintf("names of compiled methods in samples of process %d: %v", pid, err))
		}
	}
}
