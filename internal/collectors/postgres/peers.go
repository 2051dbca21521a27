package postgres

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/kernel/sockdiag"
)

const (
	// dumpTime bounds a look at the sockets of a namespace: 100,000 take 50 ms.
	dumpTime = 200 * time.Millisecond
	// maxDescriptors bounds the search for their owners: a link takes 1 µs, and a session has some twenty.
	maxDescriptors = 20_000
	// maxConnections bounds the connections of one namespace that are looked at: 100 bytes each.
	maxConnections = 20_000
	// peersPause is the shortest pause after a search, as a multiple of the search's time, so that searches take less
	// than a hundredth of a CPU. leastPause is the shortest pause in any case: few clients connect more than once a
	// second.
	peersPause, leastPause = 100, time.Second
)

// A connection is a TCP connection. Seen from its other end it has the same two addresses.
type connection struct{ client, server netip.AddrPort }

func (c connection) reversed() connection { return connection{client: c.server, server: c.client} }

// peers are the sessions of servers on this host, outside of the target, that serve it: the other ends of its
// connections, in whichever network namespace they are.
type peers struct {
	none    bool // the target had none at first, and there is no further search
	serving map[int]bool
	clients map[int]connection // of each session that ever served it
	servers map[int]host.Process
	next    time.Time
}

// members lists the processes of the servers that serve the target.
func (p *peers) members(ctx context.Context, h *host.Host, target []host.Process) map[int]host.Process {
	if p.none || len(target) == 0 || time.Now().Before(p.next) {
		return p.servers
	}
	began := time.Now()
	p.find(ctx, h, target)
	p.none = len(p.clients) == 0
	p.next = began.Add(max(leastPause, peersPause*time.Since(began)))
	return p.servers
}

// find looks for the other ends among all processes that may be a server's. If there are none, it costs a listing of
// the host's processes.
func (p *peers) find(ctx context.Context, h *host.Host, target []host.Process) {
	all, err := h.Members(ctx, host.Target{Kind: host.KindHost})
	if err != nil {
		return
	}
	all = slices.DeleteFunc(all, func(m host.Process) bool { return !isProgram(m.Comm) })
	if all = all[:min(len(all), maxSessions)]; len(all) == 0 {
		return
	}
	near := map[connection]bool{}
	for _, pids := range networks(h, target) {
		for _, c := range sockets(ctx, h, pids[0], func(*connection) bool { return true }) {
			near[c.reversed()] = true
		}
	}
	far := connectionsOf(ctx, h, all, func(c *connection) bool { return near[*c] })
	near = map[connection]bool{}
	for c := range far {
		near[c.reversed()] = true
	}
	p.serving = map[int]bool{}
	for c := range connectionsOf(ctx, h, target, func(c *connection) bool { return near[*c] }) {
		pid := far[c.reversed()]
		p.serving[pid] = true
		if len(p.clients) < maxConnections {
			p.clients[pid] = c.reversed()
		}
	}
	p.servers = serversOf(all, p.serving)
}

// serversOf returns all processes of the servers that have these sessions: what keeps a session from a lock is
// another session.
func serversOf(all []host.Process, sessions map[int]bool) map[int]host.Process {
	first := map[int]bool{}
	for _, m := range all {
		if sessions[m.PID] {
			first[m.PPID] = true
		}
	}
	out := map[int]host.Process{}
	for _, m := range all {
		if first[m.PID] || first[m.PPID] {
			out[m.PID] = m
		}
	}
	return out
}

// networks groups processes by their network namespace.
func networks(h *host.Host, list []host.Process) (out [][]int) {
	at := map[uint64]int{}
	for _, m := range list {
		ns := h.NetNS(m.PID)
		if _, known := at[ns]; !known && ns != 0 {
			at[ns] = len(out)
			out = append(out, nil)
		}
		if ns != 0 {
			out[at[ns]] = append(out[at[ns]], m.PID)
		}
	}
	return out
}

// connectionsOf finds the wanted established connections of processes, and which process has each. That process
// counts as the server.
func connectionsOf(
	ctx context.Context, h *host.Host, list []host.Process, wanted func(*connection) bool,
) map[connection]int {
	out := map[connection]int{}
	for _, pids := range networks(h, list) {
		found := sockets(ctx, h, pids[0], wanted)
		inodes := map[uint64]struct{}{}
		for inode := range found {
			inodes[inode] = struct{}{}
		}
		if len(inodes) == 0 {
			continue
		}
		got, _ := sockdiag.Owners(ctx, h.Proc, pids, inodes, maxDescriptors) // an error: fewer are found
		for inode, pid := range got.PID {
			out[found[inode]] = pid
		}
	}
	return out
}

// sockets lists the established connections in a process's network namespace, by inode; none if the process ends.
func sockets(ctx context.Context, h *host.Host, pid int, wanted func(*connection) bool) map[uint64]connection {
	out := map[uint64]connection{}
	_ = h.InNetNS(pid, func() error {
		conn, err := sockdiag.Open(dumpTime)
		if err != nil {
			return err
		}
		states := sockdiag.StatesOf(sockdiag.Established)
		err = conn.Dump(unix.AF_UNSPEC, states, false, func(k *sockdiag.Socket) error {
			c := connection{client: k.Remote, server: k.Local}
			if k.Inode != 0 && len(out) < maxConnections && wanted(&c) {
				out[k.Inode] = c
			}
			return ctx.Err()
		})
		return errors.Join(err, conn.Close())
	})
	return out
}
