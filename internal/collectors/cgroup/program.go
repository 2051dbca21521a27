package cgroup

import (
	"context"
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/ebpf"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// A program reads the limits of all groups in one pass of the kernel. It is loaded beside the first samples, since that takes longer
// than an interval may be; until then, and where it may not be loaded, the files tell the same.
type program struct {
	loaded chan struct{}
	limits *ebpf.Bandwidth // nil: err says why
	err    error
	cancel context.CancelFunc
}

func load(l *ebpf.Loader, h *host.Host, dir string) *program {
	ctx, cancel := context.WithCancel(context.Background()) // not that of the first sample, which ends sooner
	p := &program{loaded: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(p.loaded)
		p.limits, p.err = ebpf.OpenBandwidth(ctx, l, h, dir)
	}()
	return p
}

func (p *program) ready() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.loaded:
		return p.limits != nil
	default:
		return false
	}
}

// append records what the program costs, or why there is none.
func (p *program) append(a *recording.Appender) error {
	if p == nil {
		return nil
	}
	if p.ready() {
		return p.limits.AppendCost(a)
	}
	select {
	case <-p.loaded:
		st, reason, remedy := collect.Classify(p.err)
		for _, m := range ebpf.Costs() {
			a.Missing(m, st, reason+"; so limits are read from the files of each control group", remedy)
		}
	default:
	}
	return nil
}

// close ends a load that is under way, and unloads.
func (p *program) close() error {
	if p == nil {
		return nil
	}
	p.cancel()
	<-p.loaded
	if p.limits == nil {
		return nil
	}
	return p.limits.Close()
}

// readPass gives the groups with a limit by id, or none where there is no program or there are too many for one pass.
func (s *hostSource) readPass(ctx context.Context) (map[uint64]ebpf.CPULimit, error) {
	if !s.program.ready() {
		return nil, nil
	}
	byID := map[uint64]ebpf.CPULimit{}
	err := s.program.limits.Each(ctx, func(l *ebpf.CPULimit) error {
		byID[l.ID] = *l
		return nil
	})
	if errors.Is(err, ebpf.ErrTooManyLimits) {
		return nil, nil // the files tell all, if slowly
	}
	return byID, err
}

// locate finds the groups of a pass in the file system, and gives their limits by path. Only directories are read, and only when there
// is a group that was not there before.
func (s *hostSource) locate(ctx context.Context, byID map[uint64]ebpf.CPULimit) (map[string]*ebpf.CPULimit, error) {
	s.limited, s.beyond, s.unseen = nil, 0, false
	for id := range byID {
		if _, ok := s.paths[id]; ok {
			continue
		}
		if err := s.index(ctx, byID); err != nil {
			return nil, err
		}
		break
	}
	out := map[string]*ebpf.CPULimit{}
	for id, l := range byID {
		path, ok := s.paths[id]
		switch {
		case !ok: // removed meanwhile
		case len(out) == maxLimited:
			s.beyond++
		default:
			out[path] = &l
			s.limited = append(s.limited, path)
		}
	}
	slices.Sort(s.limited)
	return out, nil
}

// index learns the paths of all groups that have a limit. A group's id is the inode of its directory (kernfs_ino in
// include/linux/kernfs.h).
func (s *hostSource) index(ctx context.Context, wanted map[uint64]ebpf.CPULimit) error {
	s.paths = map[uint64]string{}
	queue := []string{""}
	for n := 0; n < len(queue) && len(s.paths) < len(wanted); n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if n >= maxGroups {
			s.unseen = true
			return nil
		}
		path := queue[n]
		var st unix.Stat_t
		if err := unix.Stat(s.cpu.dir+path, &st); err == nil {
			if _, ok := wanted[st.Ino]; ok {
				s.paths[st.Ino] = path
			}
		}
		queue = append(queue, s.below(path)...)
	}
	return nil
}

// below gives the groups directly below one.
func (s *hostSource) below(path string) (out []string) {
	entries, err := os.ReadDir(s.cpu.dir + path)
	if err != nil {
		return nil // removed meanwhile, or delegated and closed to this user
	}
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, path+"/"+e.Name())
		}
	}
	return out
}

// limitOf appends a limit that a pass told.
func (r *reader) limitOf(g group, l *ebpf.CPULimit) {
	r.gauge(metric.CgroupQuota, float64(l.Quota)/float64(l.Period), g)
	r.gauge(metric.CgroupPeriod, l.Period.Seconds(), g)
	r.gauge(metric.CgroupBurst, l.Burst.Seconds(), g)
	r.counter(metric.CgroupPeriods, float64(l.Periods), g)
	r.counter(metric.CgroupThrottled, float64(l.Throttled), g)
	r.counter(metric.CgroupThrottledTime, l.ThrottledTime.Seconds(), g)
}
