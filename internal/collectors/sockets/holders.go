package sockets

import (
	"context"
	"net/netip"
	"strconv"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collectors/ebpf"
	"github.com/perfdoctor/perfdoctor/internal/kernel/sockdiag"
)

const (
	// passTime bounds one pass over all descriptors: 0.75 µs of CPU each (BenchmarkHolders, Linux 6.18), so that
	// 100,000 sockets take 75 ms, where the links in /proc took 4 µs each. A sample may take half a second.
	passTime = 200 * time.Millisecond
	// passShare is the share of time that passes may take.
	passShare = 0.02
)

// A pass is one look at all descriptors of TCP sockets in the namespace.
type pass struct {
	table   *table
	members map[int]bool // the target's processes
	wanted  map[uint64]bool
	seen    map[uint64]bool // a socket that several descriptors hold counts once
	names   map[int]string
	counts  map[netip.AddrPort]map[int]int // of client-side sockets, by destination and pid
	found   map[uint64]owner
}

// findByIterator counts all sockets of the recorded destinations by owner, and finds the owners of listeners and of
// sockets in CLOSE_WAIT. It skips a pass that would find nothing new.
func (o *owners) findByIterator(ctx context.Context, it *ebpf.Sockets, t *table) {
	o.cut = false
	defer o.sumWaits(t)
	if time.Now().Before(o.next) || o.samples%hostSearch != 1 && !o.unknown(t) {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, passTime)
	defer cancel()
	p := o.newPass(ctx, t)
	if err := it.Holders(ctx, p.add); err != nil {
		o.cut = true // time was up: what was found still stands
	}
	o.next = began.Add(time.Duration(float64(time.Since(began)) / passShare))
	o.take(p)
}

// unknown reports whether a pass would find something new.
func (o *owners) unknown(t *table) bool {
	for _, f := range t.list {
		if f.total > f.states[sockdiag.TimeWait] && len(o.flows[f.key.destination.String()]) == 0 {
			return true
		}
	}
	for _, l := range t.listeners {
		if l.inode != 0 && o.known[l.inode].pid == "" && o.tried[l.inode] < unknownTTL {
			return true
		}
	}
	for _, inode := range t.closeWaits {
		if o.known[inode].pid == "" && o.tried[inode] < unknownTTL {
			return true
		}
	}
	return false
}

func (o *owners) newPass(ctx context.Context, t *table) *pass {
	p := &pass{
		table: t, members: map[int]bool{}, wanted: map[uint64]bool{}, seen: map[uint64]bool{}, names: map[int]string{},
		counts: map[netip.AddrPort]map[int]int{}, found: map[uint64]owner{},
	}
	if len(o.env.Target.PIDs) > 0 {
		members, _ := o.env.Host.LateMembers(ctx, o.env.Target) // an error: the target has ended, and holds nothing
		for _, m := range members {
			p.members[m.PID] = true
		}
	}
	for _, l := range t.listeners {
		p.wanted[l.inode] = true
	}
	for _, inode := range t.closeWaits {
		p.wanted[inode] = true
	}
	for _, f := range t.list {
		p.counts[f.key.destination] = map[int]int{}
	}
	return p
}

func (p *pass) add(h *ebpf.Holder) error {
	if p.wanted[h.Inode] {
		// if several processes share a socket, the target's matters
		if old, twice := p.found[h.Inode]; !twice || !old.target && p.members[h.PID] {
			p.found[h.Inode] = owner{pid: strconv.Itoa(h.PID), comm: h.Comm, target: p.members[h.PID]}
		}
	}
	if h.State == sockdiag.Listen {
		return nil
	}
	byPID := p.counts[h.Remote]
	if byPID == nil || p.seen[h.Inode] || p.table.listenerOf(h.Local) != nil {
		return nil
	}
	p.seen[h.Inode] = true
	byPID[h.PID]++
	if p.names[h.PID] == "" {
		p.names[h.PID] = h.Comm
	}
	return nil
}

// take remembers what a pass found.
func (o *owners) take(p *pass) {
	for inode, by := range p.found {
		o.known[inode] = by
		if pid, err := strconv.Atoi(by.pid); err == nil {
			o.alive(pid)
		}
		o.found++
	}
	for inode := range p.wanted {
		if _, ok := p.found[inode]; !ok && !o.cut {
			o.tried[inode]++
		}
	}
	for d, byPID := range p.counts {
		for pid, n := range byPID {
			o.alive(pid)
			o.most(d.String(), owner{pid: strconv.Itoa(pid), comm: p.names[pid], target: p.members[pid]}, n)
		}
	}
}
