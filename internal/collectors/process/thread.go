package process

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

const (
	// maxThreads bounds the threads with series of their own: a JVM with a thread per connection has a thousand or two.
	maxThreads = 2000
	// maxThreadReads bounds the threads looked at in one sample: 5 µs each, so 100 ms of the half second a sample may
	// take.
	maxThreadReads = 20_000
	// maxDetails bounds the threads whose status and schedstat are read in one sample: 20 µs each, so 4 ms. The
	// others have their turn in the next sample, over the longer time.
	maxDetails = 200
	// threadShare is the share of one CPU's time that samples may take, except the first and the last one. 250
	// threads take that much at one sample a second; 1,000 are sampled every third second, and 10,000 only at both
	// ends of 10 s.
	threadShare = 0.005
	// maxPools bounds the pools: a process that names each thread differently has no pools.
	maxPools = 200
)

func threadCollector() collect.Collector {
	return collect.Collector{
		Name: "threads",
		Doc:  "CPU time, context switches, run-queue delay, states and pools of the target's threads.",
		Overhead: "12 µs a thread, and 20 µs more for one that used CPU since the last sample: 500 threads take 6 to " +
			"10 ms a sample; samples between the first and the last are left out to stay below 0.5 % of a CPU",
		Share: threadShare,
		Provides: []metric.Metric{
			metric.ThreadCPU, metric.ThreadSwitches, metric.ThreadRunDelay, metric.ThreadStates, metric.ThreadPools,
			metric.TargetCPUs,
		},
		Open: func(_ context.Context, env collect.Env) (collect.Source, error) {
			if env.Target.Kind == host.KindHost {
				return withoutTarget(metric.ThreadCPU, metric.ThreadSwitches, metric.ThreadRunDelay,
					metric.ThreadStates, metric.ThreadPools, metric.TargetCPUs), nil
			}
			return collect.SourceFunc(newThreadSource(env).sample), nil
		},
	}
}

// thread is one thread as it was read in this sample.
type thread struct {
	pid int
	host.Stat
	active bool // new, on a CPU or waiting for one, or it used CPU since its details were read
}

// threadSource samples the threads of all processes of the target. The same buffers serve every read.
type threadSource struct {
	env      collect.Env
	delay    host.Probe             // whether the kernel counts run delay
	kept     map[host.TaskID]uint64 // threads with series, and the CPU ticks they had when their details were read
	turn     int                    // where the reading of details begins, so that all have their turn
	states   map[string]float64     // by letter; one stays once it was seen, so that its mean counts the zeros
	pools    map[string]float64     // likewise, by name
	buf      []byte
	all      []thread
	over     int   // threads not looked at in this sample
	trouble  error // why a thread's switches or delay could not be read
	switches bool  // some were read
	cpus     allowed
}

func newThreadSource(env collect.Env) *threadSource {
	return &threadSource{
		env: env, delay: env.Host.Probe(host.Schedstat), kept: map[host.TaskID]uint64{}, buf: make([]byte, 4096),
		cpus:   newAllowed(env.Host),
		states: map[string]float64{"R": 0, "S": 0, "D": 0, "T": 0, "Z": 0, "I": 0}, pools: map[string]float64{},
	}
}

func (s *threadSource) sample(ctx context.Context, a *recording.Appender) error {
	list, err := members(ctx, s.env)
	if err != nil || len(list) == 0 {
		return err
	}
	s.all, s.over, s.trouble, s.switches = s.all[:0], 0, nil, false
	for _, p := range list {
		if err := s.readProcess(ctx, p.Stat); err != nil {
			return err
		}
	}
	a.Lost(s.over, fmt.Sprintf("threads not looked at, beyond %d", maxThreadReads))
	s.appendTotals(a)
	chosen := s.choose()
	a.Lost(len(s.all)-len(chosen), fmt.Sprintf("threads without series, beyond the %d with the most CPU time",
		maxThreads))
	if err := s.appendChosen(ctx, a, chosen); err != nil {
		return err
	}
	s.report(a)
	s.cpus.append(a)
	return nil
}

// appendChosen appends everything about the chosen threads. Status and schedstat cost twice as much as stat, and a
// thread that did not run was hardly switched: these two are read only for active threads, some at a time.
func (s *threadSource) appendChosen(ctx context.Context, a *recording.Appender, chosen []thread) error {
	next := make(map[host.TaskID]uint64, len(chosen))
	details := 0
	s.turn += maxDetails
	for i := range chosen {
		if err := ctx.Err(); err != nil {
			return err
		}
		t := &chosen[(i+s.turn)%len(chosen)]
		pid, tid := strconv.Itoa(t.pid), strconv.Itoa(t.PID)
		a.Counter(metric.ThreadCPU, seconds(t.UTime), pid, tid, t.Comm, "user")
		a.Counter(metric.ThreadCPU, seconds(t.STime), pid, tid, t.Comm, "system")
		switch read, known := s.kept[t.Task()]; {
		case t.active && details < maxDetails:
			details++
			s.appendDetails(a, t, pid, tid)
			next[t.Task()] = cpuTicks(t.Stat)
		case known:
			next[t.Task()] = read
		default:
			next[t.Task()] = neverRead
		}
	}
	s.kept = next
	return nil
}

// neverRead is a number of ticks that no thread can have: it makes the thread active until its details are read.
const neverRead = math.MaxUint64

// readProcess reads the stat of each thread of a process. The only thread of a process has the process's own times and
// counters, less those of threads that have ended, so it is read like the others.
func (s *threadSource) readProcess(ctx context.Context, p host.Stat) error {
	tids, err := taskIDs(s.env.Host, p.PID)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, tid := range tids {
		if len(s.all) >= maxThreadReads {
			s.over++
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		st, buf, err := s.env.Host.ReadStat(p.PID, tid, s.buf)
		s.buf = buf
		if gone(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("thread %d of process %d: %w", tid, p.PID, err)
		}
		t := thread{pid: p.PID, Stat: st}
		before, known := s.kept[t.Task()]
		t.active = !known || before != cpuTicks(st) || st.State == 'R'
		s.all = append(s.all, t)
	}
	return nil
}

// appendTotals counts all threads by state and by pool.
func (s *threadSource) appendTotals(a *recording.Appender) {
	clearValues(s.states)
	clearValues(s.pools)
	other := 0
	for i := range s.all {
		t := &s.all[i]
		s.states[string(rune(t.State))]++
		pool := metric.PoolOf(t.Comm)
		if _, known := s.pools[pool]; !known && len(s.pools) >= maxPools {
			other++
			continue
		}
		s.pools[pool]++
	}
	for state, n := range s.states {
		a.Gauge(metric.ThreadStates, n, state)
	}
	for pool, n := range s.pools {
		a.Gauge(metric.ThreadPools, n, pool)
	}
	a.Lost(other, fmt.Sprintf("threads of pools beyond the first %d", maxPools))
}

func clearValues(m map[string]float64) {
	for k := range m {
		m[k] = 0
	}
}

// choose keeps the threads that have series already, so that their series do not break off, and fills up with those
// that have used the most CPU.
func (s *threadSource) choose() []thread {
	if len(s.all) <= maxThreads {
		return s.all
	}
	slices.SortStableFunc(s.all, func(x, y thread) int {
		_, xKept := s.kept[x.Task()]
		_, yKept := s.kept[y.Task()]
		if xKept != yKept {
			return keptFirst(xKept)
		}
		return moreCPUFirst(x.Stat, y.Stat)
	})
	return s.all[:maxThreads]
}

// keptFirst compares two threads or processes, only one of them kept; first says that it is the first one.
func keptFirst(first bool) int {
	if first {
		return -1
	}
	return 1
}

func moreCPUFirst(x, y host.Stat) int { return cmp.Compare(cpuTicks(y), cpuTicks(x)) }

func (s *threadSource) appendDetails(a *recording.Appender, t *thread, pid, tid string) {
	dir := s.env.Host.Proc + "/" + pid + "/task/" + tid
	if sw, ok := readThread(s, dir+"/status", host.ParseStatus); ok {
		s.switches = true
		s.cpus.add(sw.CPUs)
		a.Counter(metric.ThreadSwitches, float64(sw.VoluntarySwitch), pid, tid, t.Comm, "voluntary")
		a.Counter(metric.ThreadSwitches, float64(sw.InvoluntarySwitch), pid, tid, t.Comm, "involuntary")
	}
	if s.delay.Status != host.Available {
		return
	}
	if wait, ok := readThread(s, dir+"/schedstat", parseRunDelay); ok {
		a.Counter(metric.ThreadRunDelay, wait, pid, tid, t.Comm)
	}
}

// readThread reads and parses one file of a thread; ok is false if the thread has ended or the file cannot be read.
func readThread[T any](s *threadSource, path string, parse func([]byte) (T, error)) (v T, ok bool) {
	b, err := host.ReadFile(path, s.buf)
	if err == nil {
		s.buf = b
		v, err = parse(b)
	}
	switch {
	case gone(err):
	case err != nil:
		s.trouble = fmt.Errorf("%s: %w", path, err)
	default:
		return v, true
	}
	return v, false
}

func (s *threadSource) report(a *recording.Appender) {
	if s.delay.Status != host.Available {
		a.Missing(metric.ThreadRunDelay, recording.StatusUnsupported, s.delay.Reason, s.delay.Remedy)
	}
	if s.trouble != nil && !s.switches {
		a.Missing(metric.ThreadSwitches, status(s.trouble), s.trouble.Error(), asRoot)
	}
}
