package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/host/clock"
	"github.com/perfdoctor/perfdoctor/internal/jvm/asprof"
	"github.com/perfdoctor/perfdoctor/internal/jvm/asprof/library"
	"github.com/perfdoctor/perfdoctor/internal/lab"
)

// A Contest compares perfdoctor with its peers at the same work. The nth costs of all entrants are from the same
// round.
type Contest struct {
	Name  string
	Work  string     // what all of them do
	Field []*Entrant // perfdoctor first
}

// A task makes a contest. The tasks of the short form take a few seconds.
type task struct {
	name  string
	short bool
	make  func(ctx context.Context, b *bench, name string) (*Contest, error)
}

func tasks() []task {
	return []task{
		{"sockets-10000", true, ofSockets(10_000, 11)},
		{"rules-10000", true, ofRules(10_000, 11)},
		{"groups-300", true, ofGroups(300, 11)},
		{"host-1s", true, ofHost(1, 6)},
		{"sockets-100000", false, ofSockets(100_000, 9)},
		{"rules-100000", false, ofRules(100_000, 7)},
		{"groups-3000", false, ofGroups(3000, 9)},
		{"host-10s", false, ofHost(10, 6)},
		{"threads-10000", false, ofThreads(10_000, 5)},
		{"jvm-5s", false, ofJVM(5*time.Second, 8)},
		{"exporter", false, ofExporter(500, 8)},
		{"binary", false, ofBinary},
	}
}

// compete lets all entrants run in turns: a first run that does not count, then the given number of rounds. The order
// is reversed from round to round. A peer that fails drops out; perfdoctor must not fail.
func (b *bench) compete(ctx context.Context, h *lab.Host, c *Contest, rounds int) (*Contest, error) {
	for round := range b.times(rounds) + 1 {
		order := slices.Clone(c.Field)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, e := range order {
			if e.Missing != "" {
				continue
			}
			err := e.run(ctx, h, b.dir)
			switch {
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case err != nil && e == c.Field[0]:
				return nil, err
			case err != nil:
				e.Missing, e.Costs = err.Error(), nil
			case round == 0:
				e.Costs = nil
			}
		}
	}
	return c, nil
}

// passOf returns an entrant that takes one sample of a collector with this program.
func (b *bench) passOf(collector string, pid int, want int) *Entrant {
	e := entrant("perfdoctor", b.self, asPass, collector, strconv.Itoa(pid))
	e.hidden, e.check = settle, atLeast(want)
	e.Command = fmt.Sprintf("peers pass %s PID", collector)
	return e
}

// atLeast returns a check that the number a command prints is not lower.
func atLeast(want int) func([]byte) error {
	return func(out []byte) error {
		first, _, _ := strings.Cut(string(out), "\n")
		n, err := strconv.ParseFloat(first, 64)
		if err == nil && n < float64(want) {
			err = fmt.Errorf("it found %.0f, there are %d", n, want)
		}
		return err
	}
}

func ofSockets(n, rounds int) func(context.Context, *bench, string) (*Contest, error) {
	return func(ctx context.Context, b *bench, name string) (*Contest, error) {
		s := &sockets{host: b.host}
		if err := s.grow(n); err != nil {
			return nil, err
		}
		bare := entrant("a bare BPF iterator", b.self, asBare)
		bare.check = atLeast(n)
		return b.compete(ctx, b.host, &Contest{
			Name: name,
			Work: fmt.Sprintf("%d established sockets with their owners, once", n),
			Field: []*Entrant{
				b.passOf("sockets", s.pid, n), entrant("ss with owners", "ss", "-tanp"), entrant("ss", "ss", "-tan"),
				bare,
			},
		}, rounds)
	}
}

func ofRules(n, rounds int) func(context.Context, *bench, string) (*Contest, error) {
	return func(ctx context.Context, b *bench, name string) (*Contest, error) {
		if err := translate(ctx, b.host, n); err != nil {
			return nil, err
		}
		pass := b.passOf("netfilter", 0, n)
		return b.compete(ctx, b.host, &Contest{
			Name: name, Work: fmt.Sprintf("%d rules that translate addresses, once", n),
			Field: []*Entrant{pass, entrant("nft", "nft", "list", "ruleset")},
		}, rounds)
	}
}

// mostGroups is how many groups perfdoctor tells apart (maxLimited of internal/collectors/cgroup). It reads only the
// quota of the others, and says that they are over the limit.
const mostGroups = 500

func ofGroups(n, rounds int) func(context.Context, *bench, string) (*Contest, error) {
	return func(ctx context.Context, b *bench, name string) (*Contest, error) {
		g := &groups{lab: b.lab, host: b.host}
		if err := g.grow(n); err != nil {
			return nil, err
		}
		return b.compete(ctx, b.host, &Contest{
			Name: name, Work: fmt.Sprintf("%d control groups with a quota and a process each, once", n),
			Field: []*Entrant{
				b.passOf("cgroup", 0, min(n, mostGroups)),
				entrant("systemd-cgtop", "systemd-cgtop", "--batch", "--iterations=1", "--depth=9"),
			},
		}, rounds)
	}
}

func ofHost(seconds, rounds int) func(context.Context, *bench, string) (*Contest, error) {
	return func(ctx context.Context, b *bench, name string) (*Contest, error) {
		long := strconv.Itoa(seconds)
		c := &Contest{Name: name, Work: fmt.Sprintf("the whole host, for %s s", long), Field: []*Entrant{
			b.ours("diagnose", "--duration", long), entrant("sar, all it has", "sar", "-A", "1", long),
		}}
		if seconds > 1 {
			c.Field = append(c.Field,
				entrant("pidstat", "pidstat", "-urdw", "1", long),
				entrant("perf", "perf", "record", "-q", "-a", "-g", "-F", "49", "-o", "perf.data", "--", "sleep", long),
				entrant("bpftrace", "bpftrace", "-e",
					"profile:hz:49 { @[comm, kstack] = count(); } interval:s:"+long+" { exit(); }"),
				byPath("PerfSpect", b.perfspect, "telemetry", "--duration", long, "--output", "perfspect"),
				byPath("melisai", b.melisai, "collect", "--quiet", "--duration", long+"s", "--output", "melisai.json"))
		}
		return b.compete(ctx, nil, c, rounds)
	}
}

// byPath returns a peer that is in no registry: a user says where it is.
func byPath(name, path string, args ...string) *Entrant {
	if path == "" {
		return &Entrant{Name: name, Missing: fmt.Sprintf("no package has it: make bench-peers PEERS_%s=PATH",
			strings.ToUpper(name))}
	}
	return entrant(name, append([]string{path}, args...)...)
}

func ofThreads(n, rounds int) func(context.Context, *bench, string) (*Contest, error) {
	return func(ctx context.Context, b *bench, name string) (*Contest, error) {
		many, err := started(b.host, b.self, asThreads, strconv.Itoa(n))
		if err != nil {
			return nil, err
		}
		few, err := started(b.host, b.self, asThreads, "1")
		if err != nil {
			return nil, err
		}
		pid := strconv.Itoa(many.Pid)
		alone := b.ours("diagnose", "--duration", "10", "--pid", strconv.Itoa(few.Pid))
		alone.Name = "perfdoctor, of one thread"
		return b.compete(ctx, b.host, &Contest{
			Name: name, Work: fmt.Sprintf("a process of %d threads, for 10 s", n), Field: []*Entrant{
				b.ours("diagnose", "--duration", "10", "--pid", pid),
				entrant("pidstat", "pidstat", "-t", "-p", pid, "1", "10"), alone,
			},
		}, rounds)
	}
}

// ofJVM measures what a JVM that keeps all CPUs busy loses by the whole command, including attach and dump. Its
// throughput is the work per CPU second of the JVM and the command together. With all CPUs busy, that is the work per
// second, but independent of what other programs take from the machine. Each run is compared with the windows before
// and after it.
func ofJVM(window time.Duration, rounds int) func(context.Context, *bench, string) (*Contest, error) {
	return func(ctx context.Context, b *bench, name string) (*Contest, error) {
		j, err := startJVM(ctx, b.host, b.dir)
		if err != nil {
			return nil, err
		}
		hand, err := b.byHand(j.pid, window)
		if err != nil {
			return nil, err
		}
		mine := b.ours("diagnose", "--duration", window.String(), "--pid", strconv.Itoa(j.pid))
		c := &Contest{
			Name: name, Work: "what a JVM keeps of its throughput that is looked at for " + window.String(),
			Field: []*Entrant{mine, hand},
		}
		time.Sleep(window) // until the code is compiled
		alone := func() (float64, error) {
			return j.speed(func() (float64, error) { return 0, clock.Sleep(ctx, window/2) })
		}
		before, err := alone()
		for round := 0; err == nil && round < b.times(rounds); round++ {
			for _, e := range c.Field {
				var with, after float64
				with, err = j.speed(func() (float64, error) {
					err := e.run(ctx, b.host, b.dir)
					return e.lastCPU(), err
				})
				if err != nil {
					return nil, err
				}
				if after, err = alone(); err != nil {
					return nil, err
				}
				e.Costs[len(e.Costs)-1].Kept = 2 * with / (before + after)
				before = after
			}
		}
		return c, err
	}
}

func (e *Entrant) lastCPU() float64 {
	if len(e.Costs) == 0 {
		return 0
	}
	return e.Costs[len(e.Costs)-1].CPU
}

// byHand returns async-profiler with perfdoctor's settings, driven by the JDK's own jcmd, as a person would use it.
func (b *bench) byHand(pid int, window time.Duration) (*Entrant, error) {
	content, err := library.Bundled()
	if err != nil {
		return &Entrant{Name: "async-profiler", Missing: err.Error()}, nil //nolint:nilerr // said on the page
	}
	path := filepath.Join(b.dir, "libasyncProfiler.so")
	if err := os.WriteFile(path, content, 0o755); err != nil { //nolint:gosec // a library for a JVM
		return nil, err
	}
	options := fmt.Sprintf("start,quiet,event=cpu,interval=%d,wall=%d,alloc=%d,lock=%d,jfr,file=%s/hand.jfr,"+
		"log=%[5]s/hand.log",
		asprof.DefaultCPU, asprof.DefaultWall, int64(asprof.DefaultAlloc), asprof.DefaultLock, b.dir)
	load := func(options string) string {
		return fmt.Sprintf(`jcmd %d JVMTI.agent_load %s '"%s"' | grep -q 'return code: 0'`, pid, path, options)
	}
	script := fmt.Sprintf("%s && sleep %v && %s", load(options), window.Seconds(), load("stop,quiet,loglevel=none"))
	e := entrant("async-profiler", "sh", "-c", script)
	e.Command = "jcmd PID JVMTI.agent_load libasyncProfiler.so '" + strings.ReplaceAll(options, b.dir+"/", "") +
		"'; sleep; jcmd PID JVMTI.agent_load libasyncProfiler.so stop"
	return e, nil
}

// ofBinary measures what is installed. The size takes the place of memory, twice, because it has no noise.
func ofBinary(_ context.Context, b *bench, name string) (*Contest, error) {
	c := &Contest{Name: name, Work: "the program's file", Field: []*Entrant{
		b.ours(), entrant("node_exporter", "prometheus-node-exporter"),
		entrant("bpftrace, without its libraries", "bpftrace"),
		byPath("PerfSpect", b.perfspect), byPath("melisai", b.melisai),
	}}
	for _, e := range c.Field {
		if e.Missing != "" {
			continue
		}
		path, err := exec.LookPath(e.argv[0])
		if err != nil {
			return nil, err
		}
		st, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		size := Cost{Memory: float64(st.Size())}
		e.Costs, e.Command = []Cost{size, size}, ""
	}
	return c, nil
}
