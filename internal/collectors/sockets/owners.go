package sockets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/ebpf"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/kernel/sockdiag"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// Bounds of the search for owners, which reads a link per descriptor (about 1 µs each).
const (
	searchTime = 50 * time.Millisecond // of one sample; the next one looks for what is not found now
	searchFDs  = 20_000                // descriptors a sample
	// every n-th sample looks at all processes, the others at the target's: others' sockets matter less
	hostSearch = 5
	// complete searches after which a socket without a known holder is no longer looked for
	unknownTTL  = 3
	maxRemember = 50_000 // sockets remembered
)

// owner is a process that holds sockets; the zero owner is an unknown one.
type owner struct {
	pid, comm string
	target    bool
}

// owners finds and remembers which process holds a socket.
type owners struct {
	env      collect.Env
	programs *ebpf.Background[*ebpf.Sockets]
	next     time.Time // when the iterator over descriptors may start next
	known    map[uint64]owner
	// start time of each owner, by pid: another process with that pid is not the owner
	began  map[string]uint64
	tried  map[uint64]int           // sockets looked for in vain in all processes, and how often
	others map[uint64]bool          // sockets that the target does not hold
	flows  map[string]map[owner]int // by destination, the most sockets of an owner seen in one sample

	searched map[string]bool // destinations whose sockets were looked for in all processes
	waits    map[owner]int
	samples  int
	denied   int // processes whose descriptors may not be read, the most in one search
	asked    int // all processes in that search
	found    int
	cut      bool // the last search ended at its bounds
}

func newOwners(env collect.Env) *owners {
	return &owners{
		env: env, known: map[uint64]owner{}, began: map[string]uint64{}, tried: map[uint64]int{},
		others: map[uint64]bool{},
		flows:  map[string]map[owner]int{}, searched: map[string]bool{},
	}
}

func (o *owners) of(inode uint64) owner { return o.known[inode] }

// find looks for the owners, not yet known, of the sockets in the table, and sums up per destination and process.
func (o *owners) find(ctx context.Context, t *table) {
	o.samples++
	o.forget()
	if o.samples%hostSearch == 1 {
		o.forgetDead()
	}
	if it, ok := o.programs.Ready(); ok && o.env.Host.FirstPIDNamespace() {
		o.findByIterator(ctx, it, t)
		return
	}
	// on a busy host the last search may not have come far
	everywhere := len(o.env.Target.PIDs) == 0 || o.samples%hostSearch == 1 || o.cut
	wanted := o.wanted(t, everywhere)
	o.cut = false
	if len(wanted) > 0 {
		o.cut = !o.search(ctx, wanted, everywhere)
	}
	for inode := range wanted { // the rest was not found or, if the search was cut, maybe not looked for
		switch {
		case o.cut:
		case everywhere:
			o.tried[inode]++
		default:
			o.others[inode] = true
		}
	}
	if everywhere && !o.cut {
		for _, f := range t.list {
			o.searched[f.key.destination.String()] = true
		}
	}
	o.sum(t)
}

// forget bounds what is remembered.
func (o *owners) forget() {
	if len(o.known) > maxRemember {
		clear(o.known)
	}
	if len(o.tried) > maxRemember || len(o.others) > maxRemember {
		clear(o.tried)
		clear(o.others)
	}
	if len(o.flows) > maxRemember || len(o.searched) > maxRemember {
		clear(o.flows)
		clear(o.searched)
	}
}

// forgetDead forgets owners that have ended: whoever inherited their sockets is looked for anew. It reads one file
// per owner (8 µs).
func (o *owners) forgetDead() {
	dead := map[string]bool{}
	for pid, began := range o.began {
		n, _ := strconv.Atoi(pid) // a number, as the kernel gave it
		st, _, err := o.env.Host.ReadStat(n, 0, nil)
		if errors.Is(err, host.ErrNoSuchProcess) || err == nil && st.StartTime != began {
			dead[pid] = true
			delete(o.began, pid)
		}
	}
	if len(dead) == 0 {
		return
	}
	maps.DeleteFunc(o.known, func(_ uint64, p owner) bool { return dead[p.pid] })
	for destination, by := range o.flows {
		maps.DeleteFunc(by, func(p owner, _ int) bool { return dead[p.pid] })
		if len(by) == 0 {
			delete(o.flows, destination)
			delete(o.searched, destination)
		}
	}
}

// alive notes the start time of an owner while it can be read. An owner without a start time never counts as ended.
func (o *owners) alive(pid int) {
	name := strconv.Itoa(pid)
	if _, known := o.began[name]; known {
		return
	}
	if st, _, err := o.env.Host.ReadStat(pid, 0, nil); err == nil {
		o.began[name] = st.StartTime
	}
}

// findOwn looks for the owners of these sockets among the target's processes, or all of the host's if no target was
// named. A socket that none of them holds is not looked for again.
func (o *owners) findOwn(ctx context.Context, inodes []uint64) {
	o.forget()
	wanted := map[uint64]struct{}{}
	for _, inode := range inodes {
		if o.wants(inode, false) {
			wanted[inode] = struct{}{}
		}
	}
	if len(wanted) == 0 || !o.search(ctx, wanted, false) {
		return
	}
	for inode := range wanted {
		o.others[inode] = true
	}
}

// wants reports whether to look for the owner of a socket. A socket that the target does not hold waits for a search
// of all processes.
func (o *owners) wants(inode uint64, everywhere bool) bool {
	return inode != 0 && o.known[inode].pid == "" && o.tried[inode] < unknownTTL && (everywhere || !o.others[inode])
}

// wanted returns the sockets of the table to look for.
func (o *owners) wanted(t *table, everywhere bool) map[uint64]struct{} {
	wanted := map[uint64]struct{}{}
	want := func(inode uint64) {
		if o.wants(inode, everywhere) {
			wanted[inode] = struct{}{}
		}
	}
	for _, l := range t.listeners {
		want(l.inode)
	}
	for _, f := range t.list {
		if o.searched[f.key.destination.String()] && len(o.flows[f.key.destination.String()]) > 0 {
			continue // the holders of its sockets are known
		}
		for _, inode := range f.inodes {
			want(inode)
		}
	}
	for _, inode := range t.closeWaits {
		want(inode)
	}
	return wanted
}

// search reads the descriptors of the target's processes and, if everywhere is set, those of all others. It removes
// what it finds from wanted, and reports whether it came to its end.
func (o *owners) search(ctx context.Context, wanted map[uint64]struct{}, everywhere bool) bool {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	members, err := o.env.Host.LateMembers(ctx, o.env.Target)
	if err != nil {
		return false // the target has ended, or time is up: what was found before still stands
	}
	names := map[int]string{}
	isTarget := map[int]bool{}
	var pids []int
	for _, m := range members {
		names[m.PID], isTarget[m.PID] = m.Comm, len(o.env.Target.PIDs) > 0
		pids = append(pids, m.PID)
	}
	whole := o.searchIn(ctx, pids, wanted, names, isTarget)
	if len(o.env.Target.PIDs) == 0 || len(wanted) == 0 || !everywhere {
		return whole
	}
	all, err := o.env.Host.Members(ctx, host.Target{Kind: host.KindHost})
	if err != nil {
		return false
	}
	pids = pids[:0]
	for _, p := range all {
		if !isTarget[p.PID] {
			names[p.PID] = p.Comm
			pids = append(pids, p.PID)
		}
	}
	return o.searchIn(ctx, pids, wanted, names, isTarget) && whole
}

func (o *owners) searchIn(
	ctx context.Context, pids []int, wanted map[uint64]struct{}, names map[int]string, isTarget map[int]bool,
) (whole bool) {
	got, err := sockdiag.Owners(ctx, o.env.Host.Proc, pids, wanted, searchFDs)
	if got.Denied > o.denied {
		o.denied, o.asked = got.Denied, len(pids)
	}
	for inode, pid := range got.PID {
		o.known[inode] = owner{pid: strconv.Itoa(pid), comm: names[pid], target: isTarget[pid]}
		o.alive(pid)
		o.found++
		delete(wanted, inode)
	}
	return err == nil && !got.Truncated
}

func (o *owners) sum(t *table) {
	for d, now := range o.flowsNow(t) {
		for p, n := range now {
			o.most(d, p, n)
		}
	}
	o.sumWaits(t)
}

// most notes that a process was seen to hold a number of sockets to a destination.
func (o *owners) most(destination string, p owner, n int) {
	if o.flows[destination] == nil {
		o.flows[destination] = map[owner]int{}
	}
	o.flows[destination][p] = max(o.flows[destination][p], n)
}

func (o *owners) sumWaits(t *table) {
	o.waits = map[owner]int{}
	for _, inode := range t.closeWaits {
		if p := o.known[inode]; p.pid != "" {
			o.waits[p]++
		}
	}
}

// flowsNow counts this sample's sockets with a known owner, per destination.
func (o *owners) flowsNow(t *table) map[string]map[owner]int {
	now := map[string]map[owner]int{}
	for _, f := range t.list {
		d := f.key.destination.String()
		for _, inode := range f.inodes {
			p := o.known[inode]
			if p.pid == "" {
				continue
			}
			if now[d] == nil {
				now[d] = map[owner]int{}
			}
			now[d][p]++
		}
	}
	return now
}

// note records the owners found so far.
func (o *owners) note(a *recording.Appender) {
	if o.cut {
		a.LostOfSample(1, "search for the owners of sockets that ended at its bound: of "+searchTime.String()+" or "+
			strconv.Itoa(searchFDs)+" descriptors in /proc, or of "+passTime.String()+" in the kernel")
	}
	for d, byOwner := range o.flows {
		for p, n := range byOwner {
			a.Gauge(metric.DestinationOwner, float64(n), d, p.pid, p.comm)
		}
	}
	for p, n := range o.waits {
		a.Gauge(metric.ProcessSockets, float64(n), p.pid, p.comm, sockdiag.CloseWait.String())
	}
	if o.found == 0 && o.denied > 0 && 2*o.denied >= o.asked { // a security module refuses a few even to root
		reason := fmt.Sprintf("the descriptors of %d of %d processes may not be read", o.denied, o.asked)
		for _, m := range []metric.Metric{metric.DestinationOwner, metric.ProcessSockets, metric.TargetListenPorts} {
			a.Missing(m, recording.StatusDenied, reason, "run as root or with CAP_SYS_PTRACE")
		}
		return
	}
	a.None(metric.DestinationOwner, metric.ProcessSockets, metric.TargetListenPorts)
}
