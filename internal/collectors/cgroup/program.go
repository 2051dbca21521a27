package cgroup

import (
	"context"
	"errors"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/collectors/ebpf"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// readPass returns the groups with a limit by id, or nil if there is no program or there are too many groups for one
// pass.
func (s *hostSource) readPass(ctx context.Context) (map[uint64]ebpf.CPULimit, error) {
	limits, ok := s.program.Ready()
	if !ok {
		return nil, nil
	}
	byID := map[uint64]ebpf.CPULimit{}
	err := limits.Each(ctx, func(l *ebpf.CPULimit) error {
		byID[l.ID] = *l
		return nil
	})
	if errors.Is(err, ebpf.ErrTooManyLimits) {
		return nil, nil // the files have all limits, but are slower to read
	}
	return byID, err
}

// locate finds the groups of a pass in the file system, and returns their limits by path. It reads only directories,
// and only when there is a group that was not there before.
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

// index learns the paths of all groups that have a limit.
func (s *hostSource) index(ctx context.Context, limits map[uint64]ebpf.CPULimit) error {
	wanted := map[uint64]bool{}
	for id := range limits {
		wanted[id] = true
	}
	paths, all, err := host.CgroupPaths(ctx, s.cpu.dir, wanted, maxGroups)
	s.paths, s.unseen = map[uint64]string{}, !all
	for id, path := range paths {
		if path != "" {
			path = "/" + path
		}
		s.paths[id] = path
	}
	return err
}

// limitOf appends a limit that a pass reported.
func (r *reader) limitOf(g group, l *ebpf.CPULimit) {
	r.gauge(metric.CgroupQuota, float64(l.Quota)/float64(l.Period), g)
	r.gauge(metric.CgroupPeriod, l.Period.Seconds(), g)
	r.gauge(metric.CgroupBurst, l.Burst.Seconds(), g)
	r.counter(metric.CgroupPeriods, float64(l.Periods), g)
	r.counter(metric.CgroupThrottled, float64(l.Throttled), g)
	r.counter(metric.CgroupThrottledTime, l.ThrottledTime.Seconds(), g)
}
