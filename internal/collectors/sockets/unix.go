package sockets

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/kernel/sockdiag"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// unixAgain is the time between the two looks of a sample at a queue that is not empty: a client that waits at both
// has waited for a tenth of a second, which a person notices.
const unixAgain = 100 * time.Millisecond

func unixCollector() collect.Collector {
	return collect.Collector{
		Name:     "unix-listeners",
		Doc:      "Accept queues of the sockets of AF_UNIX that the target listens on.",
		Overhead: "40 µs a sample, and 1 µs for each listening socket of the network namespace",
		Provides: []metric.Metric{metric.UnixQueue, metric.UnixBacklog, metric.UnixOldest},
		Open:     openUnix,
	}
}

// unixSource reads the listeners of the target.
type unixSource struct {
	conn    *sockdiag.UnixConn
	owners  *owners
	waiting map[uint64]map[uint32]time.Time
}

func openUnix(_ context.Context, env collect.Env) (collect.Source, error) {
	if env.Target.Kind == host.KindHost {
		return nil, collect.Unavailable(recording.StatusUnsupported,
			"name a target with --pid, --comm, --cgroup or --container",
			"it is read for a target only, and the whole host was diagnosed")
	}
	s := &unixSource{owners: newOwners(env), waiting: map[uint64]map[uint32]time.Time{}}
	connect := func() (err error) {
		s.conn, err = sockdiag.OpenUnix(dumpTimeout)
		return err
	}
	var err error
	if pid := namespacePID(env.Target); pid != 0 {
		err = env.Host.InNetNS(pid, connect)
	} else {
		err = connect()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Sample appends the queues.
func (s *unixSource) Sample(ctx context.Context, a *recording.Appender) error {
	list, err := s.own(ctx)
	if err != nil {
		return err
	}
	s.see(list)
	if slices.ContainsFunc(list, func(l sockdiag.UnixListener) bool { return l.Queue > 0 }) {
		select {
		case <-time.After(unixAgain):
		case <-ctx.Done():
			return fmt.Errorf("look again at the queues of AF_UNIX: %w", ctx.Err())
		}
		if list, err = s.own(ctx); err != nil {
			return err
		}
		s.see(list)
	}
	a.None(metric.UnixQueue, metric.UnixBacklog, metric.UnixOldest)
	for _, l := range list {
		by, name := s.owners.of(l.Inode), "unix:"+l.Name
		a.Gauge(metric.UnixQueue, float64(l.Queue), name, by.pid, by.comm)
		a.Gauge(metric.UnixBacklog, float64(l.Backlog), name, by.pid, by.comm)
		a.Gauge(metric.UnixOldest, s.oldest(l.Inode).Seconds(), name, by.pid, by.comm)
	}
	return nil
}

// own returns the listeners of the target.
func (s *unixSource) own(ctx context.Context) (list []sockdiag.UnixListener, err error) {
	all, err := s.conn.Listeners()
	if err != nil {
		return nil, err
	}
	inodes := make([]uint64, len(all))
	for i, l := range all {
		inodes[i] = l.Inode
	}
	s.owners.findOwn(ctx, inodes)
	return slices.DeleteFunc(all, func(l sockdiag.UnixListener) bool {
		return s.owners.of(l.Inode).pid == "" || ofRuntime(l.Name)
	}), nil
}

// ofRuntime reports whether a runtime listens there for tools, perfdoctor among them, so that it makes no program a
// server: HotSpot's attach socket (src/hotspot/os/posix/attachListener_posix.cpp in JDK 21), and .NET's diagnostic port
// (ds-ipc-pal-socket.c in 8.0).
func ofRuntime(name string) bool {
	base := path.Base(name)
	return strings.HasPrefix(base, ".java_pid") || strings.HasPrefix(base, "dotnet-diagnostic-")
}

// see notes since when each client has been seen to wait.
func (s *unixSource) see(list []sockdiag.UnixListener) {
	now := time.Now()
	for _, l := range list {
		since := make(map[uint32]time.Time, len(l.Waiting))
		for _, client := range l.Waiting {
			since[client] = now
			if at, known := s.waiting[l.Inode][client]; known {
				since[client] = at
			}
		}
		s.waiting[l.Inode] = since
	}
}

// oldest returns how long the client that waits longest has been seen to wait.
func (s *unixSource) oldest(inode uint64) (longest time.Duration) {
	for _, at := range s.waiting[inode] {
		longest = max(longest, time.Since(at))
	}
	return longest
}

// Close closes the netlink socket.
func (s *unixSource) Close() error { return s.conn.Close() }
