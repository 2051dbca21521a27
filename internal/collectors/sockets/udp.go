package sockets

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/prometheus/procfs"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// keptUDP bounds the UDP sockets of a sample that are recorded: a resolver opens one for each query.
const keptUDP = 64

func udpCollector() collect.Collector {
	return collect.Collector{
		Name:     "udp-sockets",
		Doc:      "UDP sockets that lost datagrams, and what waits in them: the target's, or those of the host.",
		Overhead: "0.1 ms a sample, and 2 µs for each UDP socket of the network namespace",
		Provides: []metric.Metric{metric.UDPDrops, metric.UDPQueue},
		Share:    cpuShare,
		Open: func(_ context.Context, env collect.Env) (collect.Source, error) {
			pid := "self"
			if n := namespacePID(env.Target); n != 0 {
				pid = strconv.Itoa(n)
			}
			return &udpSource{dir: filepath.Join(env.Host.Proc, pid), owners: newOwners(env)}, nil
		},
	}
}

type udpSource struct {
	dir    string
	owners *owners
}

// udpSocket is a UDP socket, or the sum of those of a process at one address.
type udpSocket struct {
	addr         netip.AddrPort
	inode        uint64
	drops, queue uint64
}

// Sample appends the sockets that lost the most.
func (s *udpSource) Sample(ctx context.Context, a *recording.Appender) error {
	all, err := s.read()
	if err != nil {
		return err
	}
	if s.owners.env.Target.Kind == host.KindHost {
		all = slices.DeleteFunc(all, func(u udpSocket) bool { return u.drops == 0 })
	}
	inodes := make([]uint64, len(all))
	for i, u := range all {
		inodes[i] = u.inode
	}
	s.owners.findOwn(ctx, inodes)
	if s.owners.env.Target.Kind != host.KindHost {
		all = slices.DeleteFunc(all, func(u udpSocket) bool { return s.owners.of(u.inode).pid == "" })
	}
	slices.SortFunc(all, func(x, y udpSocket) int {
		return cmp.Or(cmp.Compare(y.drops, x.drops), x.addr.Compare(y.addr), cmp.Compare(x.inode, y.inode))
	})
	a.None(metric.UDPDrops, metric.UDPQueue)
	type key struct{ addr, pid, comm string }
	sums := map[key]udpSocket{}
	for _, u := range all[:min(len(all), keptUDP)] {
		by := s.owners.of(u.inode)
		k := key{u.addr.String(), by.pid, by.comm}
		sums[k] = udpSocket{drops: sums[k].drops + u.drops, queue: sums[k].queue + u.queue}
	}
	for k, u := range sums {
		a.Counter(metric.UDPDrops, float64(u.drops), k.addr, k.pid, k.comm)
		a.Gauge(metric.UDPQueue, float64(u.queue), k.addr, k.pid, k.comm)
	}
	return nil
}

// read returns the sockets that are bound to a port, of both families.
func (s *udpSource) read() (all []udpSocket, err error) {
	proc, err := procfs.NewFS(s.dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.dir, err)
	}
	v4, err := proc.NetUDP()
	if err != nil {
		return nil, fmt.Errorf("%s/net/udp: %w", s.dir, err)
	}
	v6, err := proc.NetUDP6()
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel may have no IPv6
		return nil, fmt.Errorf("%s/net/udp6: %w", s.dir, err)
	}
	for _, line := range slices.Concat(v4, v6) {
		addr, ok := netip.AddrFromSlice(line.LocalAddr)
		if !ok || line.LocalPort == 0 || line.Drops == nil {
			continue
		}
		all = append(all, udpSocket{
			addr: netip.AddrPortFrom(addr, uint16(line.LocalPort)), inode: line.Inode, drops: *line.Drops,
			queue: line.RxQueue,
		})
	}
	return all, nil
}

// Close has nothing to do.
func (s *udpSource) Close() error { return nil }
