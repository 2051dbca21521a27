package exporter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/host/cgroupfs"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

const (
	// maxGroups bounds a look at the control groups: 15 µs each, so 75 ms.
	maxGroups = 5000
	// findEvery is how many looks at the groups' CPU time pass between searches for new groups, which cost as much
	// again.
	findEvery = 2
	// calmLooks is how many looks below half the threshold end a target: a target with a load in bursts should not
	// come and go.
	calmLooks = 8
)

// usage is the CPU time of a control group when it was looked at.
type usage struct {
	seconds float64
	at      time.Time
}

// groups finds the control groups that are worth a target.
type groups struct {
	dir   string // of the tree with the CPU times
	file  string // in each directory
	paths []string
	looks int
	last  map[string]usage
}

// busy is a control group and the CPUs that it used since the last look.
type busy struct {
	path string
	cpus float64
}

// openGroups finds the tree through perfdoctor's own groups. The last level is the root.
func openGroups(ctx context.Context, h *host.Host) (*groups, error) {
	own, err := h.Resolve(ctx, host.Selector{PID: os.Getpid()})
	if err != nil {
		return nil, fmt.Errorf("find the control groups: %w", err)
	}
	g := &groups{last: map[string]usage{}}
	for _, l := range own.Cgroups {
		switch {
		case l.Controller == "cpuacct" || l.Controller == "cpu" && g.file == "":
			g.dir, g.file = l.Dir, "cpuacct.usage"
		case l.Version == 2 && g.file != "cpuacct.usage":
			g.dir, g.file = l.Dir, "cpu.stat"
		}
	}
	if g.dir == "" {
		return nil, errors.New("no tree of control groups can be seen: mount it where perfdoctor runs, at " +
			"/sys/fs/cgroup")
	}
	return g, nil
}

// look returns the groups that used CPU time since the last look, the busiest first. all is false if there are too
// many groups to look at.
func (g *groups) look(now time.Time) (list []busy, all bool) {
	all = true
	if g.looks%findEvery == 0 {
		all = g.find()
	}
	g.looks++
	next := make(map[string]usage, len(g.paths))
	for _, p := range g.paths {
		seconds, err := g.read(p)
		if err != nil {
			continue // it was removed meanwhile
		}
		before, known := g.last[p]
		next[p] = usage{seconds, now}
		if dt := now.Sub(before.at).Seconds(); known && dt > 0 && seconds > before.seconds {
			list = append(list, busy{p, (seconds - before.seconds) / dt})
		}
	}
	g.last = next
	slices.SortFunc(
		list, func(a, b busy) int { return cmp.Or(cmp.Compare(b.cpus, a.cpus), cmp.Compare(a.path, b.path)) })
	return list, all
}

// find lists the groups that stand for themselves: containers, services and scopes with everything below them, and
// other groups that have nothing below.
func (g *groups) find() (all bool) {
	g.paths = nil
	queue := []string{"/"}
	for n := 0; n < len(queue); n++ {
		if n >= maxGroups {
			return false
		}
		p := queue[n]
		if p != "/" && isUnit(p) {
			g.paths = append(g.paths, p)
			continue
		}
		below := host.CgroupsBelow(g.dir + p)
		if len(below) == 0 && p != "/" {
			g.paths = append(g.paths, p)
		}
		for _, name := range below {
			queue = append(queue, path.Join(p, name))
		}
	}
	return true
}

// isUnit reports whether a group is a service or scope of systemd, or a container that another manager named by its
// id.
func isUnit(p string) bool {
	base := path.Base(p)
	return strings.HasSuffix(base, ".service") || strings.HasSuffix(base, ".scope") || host.ContainerOf(p) != ""
}

// read returns the CPU seconds of a group and everything below it.
func (g *groups) read(p string) (float64, error) {
	name := g.dir + p + "/" + g.file
	b, err := host.ReadFile(name, nil)
	if err != nil {
		return 0, err
	}
	if g.file == "cpuacct.usage" {
		ns, err := cgroupfs.Number(b)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		return ns * 1e-9, nil
	}
	us, err := cgroupfs.Key(b, "usage_usec")
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return us * 1e-6, nil
}

// following is a target that is observed.
type following struct {
	stop context.CancelFunc
	done chan struct{}
	calm int // looks in a row with little CPU use
}

// followTargets looks at the control groups once per window. It observes groups that use much CPU time, and drops
// them when they no longer do or have ended.
func (e *Exporter) followTargets(ctx context.Context) {
	g, err := openGroups(ctx, e.o.Host)
	if err != nil {
		e.o.Log.Warn("no control group is observed", "reason", err)
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	now := map[string]*following{}
	defer func() {
		for _, f := range now {
			f.stop()
		}
	}()
	tick := time.NewTicker(e.o.Window)
	defer tick.Stop()
	g.look(time.Now())
	for told := false; ; {
		select {
		case <-ctx.Done():
			return
		case at := <-tick.C:
			list, all := g.look(at)
			if !all && !told {
				e.o.Log.Warn("control groups beyond a bound are not looked at", "bound", maxGroups)
				told = true
			}
			e.drop(now, list)
			e.follow(ctx, now, list, &running)
			e.own.targets.Set(float64(len(now)))
		}
	}
}

// drop stops targets that ended or calmed down. A target keeps its place until its last window is over, so there are
// never more than allowed.
func (e *Exporter) drop(now map[string]*following, list []busy) {
	for p, f := range now {
		i := slices.IndexFunc(list, func(b busy) bool { return b.path == p })
		f.calm++
		if i >= 0 && list[i].cpus >= e.o.TargetCPU/2 {
			f.calm = 0
		}
		select {
		case <-f.done:
			delete(now, p)
			continue
		default:
		}
		if f.calm >= calmLooks {
			f.stop()
		}
	}
}

// follow begins to observe the busiest groups while there is room.
func (e *Exporter) follow(ctx context.Context, now map[string]*following, list []busy, running *sync.WaitGroup) {
	beyond := 0
	for _, b := range list {
		switch {
		case b.cpus < e.o.TargetCPU || now[b.path] != nil:
			continue
		case len(now) >= e.o.MaxTargets:
			beyond++
			continue
		}
		t, err := e.o.Host.Resolve(ctx, host.Selector{CgroupPath: b.path})
		if err != nil {
			continue // it has no process any more, or none that is visible
		}
		own, stop := context.WithCancel(ctx)
		f := &following{stop: stop, done: make(chan struct{})}
		now[b.path] = f
		running.Go(func() {
			defer close(f.done)
			defer stop()
			e.observeTarget(own, stop, t)
		})
	}
	e.own.targetsDropped.Add(float64(beyond))
}

// observeTarget runs the windows of a control group until it has ended.
func (e *Exporter) observeTarget(ctx context.Context, stop context.CancelFunc, t host.Target) {
	go func() {
		tick := time.NewTicker(e.o.Window)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if !e.o.Host.Alive(t) {
					stop()
					return
				}
			}
		}
	}()
	list := e.o.TargetCollectors()
	if err := e.observe(ctx, t, e.o.PodNames.nameOf(ctx, e.o.Log, t), list,
		targetChecks(e.o.Checks, list)); err != nil {
		e.o.Log.Warn("a control group is not observed", "cgroup", t.Name, "reason", err)
	}
}

// targetChecks returns the checks that these collectors can answer for a target, and that are about more than the
// host: the host's own windows answer the others, and one cause should be reported once.
func targetChecks(all []*check.Check, list []collect.Collector) []*check.Check {
	offered, facts := map[metric.Metric]bool{}, map[metric.Metric]bool{}
	for _, c := range list {
		for _, m := range c.Provides {
			offered[m] = true
			if c.Pace == collect.Once && !provides(c, metric.TargetInfo) {
				facts[m] = true
			}
		}
	}
	var out []*check.Check
	for _, c := range all {
		missing := slices.ContainsFunc(c.Needs, func(m metric.Metric) bool { return !offered[m] })
		ofTarget := slices.ContainsFunc(c.Needs, func(m metric.Metric) bool { return !facts[m] })
		if !missing && ofTarget {
			out = append(out, c)
		}
	}
	return out
}
