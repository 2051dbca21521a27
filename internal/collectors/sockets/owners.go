package sockets

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/sockdiag"
)

// Bounds of the search for owners, which reads a link per descriptor (about 1 µs each).
const (
	searchTime  = 50 * time.Millisecond // of one sample; what is not found now is looked for in the next one
	searchFDs   = 20_000                // descriptors a sample
	hostSearch  = 5                     // every n-th sample looks at all processes, the others at the target's: others' sockets matter less
	unknownTTL  = 3                     // samples after which a socket that nobody was found to hold is looked for no more
	maxRemember = 50_000                // sockets remembered
)

// owner is a process that holds sockets; the zero owner is not known.
type owner struct {
	pid, comm string
	target    bool
}

// owners finds and remembers which process holds a socket.
type owners struct {
	env     collect.Env
	known   map[uint64]owner
	tried   map[uint64]int // sockets looked for in vain, and how often
	flows   map[string]map[owner]int
	waits   map[owner]int
	samples int
	denied  int
	found   int
}

func newOwners(env collect.Env) *owners {
	return &owners{env: env, known: map[uint64]owner{}, tried: map[uint64]int{}, flows: map[string]map[owner]int{}}
}

func (o *owners) of(inode uint64) owner { return o.known[inode] }

// find looks for the owners of the sockets in the table that are not known yet, and sums up per destination and process.
func (o *owners) find(ctx context.Context, t *table) {
	o.samples++
	if len(o.known) > maxRemember {
		clear(o.known)
	}
	if len(o.tried) > maxRemember {
		clear(o.tried)
	}
	wanted := o.wanted(t)
	if len(wanted) > 0 {
		o.search(ctx, wanted)
	}
	for inode := range wanted {
		if o.known[inode].pid == "" {
			o.tried[inode]++
		}
	}
	o.sum(t)
}

func (o *owners) wanted(t *table) map[uint64]struct{} {
	wanted := map[uint64]struct{}{}
	want := func(inode uint64) {
		if inode != 0 && o.known[inode].pid == "" && o.tried[inode] < unknownTTL {
			wanted[inode] = struct{}{}
		}
	}
	for _, l := range t.listeners {
		want(l.inode)
	}
	for _, f := range t.list {
		for _, inode := range f.inodes {
			if len(o.flows[f.key.destination.String()]) == 0 { // one owner is enough to name the offender
				want(inode)
			}
		}
	}
	for _, inode := range t.closeWaits {
		want(inode)
	}
	return wanted
}

// search reads the descriptors of the target's processes, and now and then of all others.
func (o *owners) search(ctx context.Context, wanted map[uint64]struct{}) {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	members, err := o.env.Host.Members(ctx, o.env.Target)
	if err != nil {
		return // the target has ended, or time is up: what was found before still stands
	}
	names := map[int]string{}
	isTarget := map[int]bool{}
	var pids []int
	for _, m := range members {
		names[m.PID], isTarget[m.PID] = m.Comm, len(o.env.Target.PIDs) > 0
		pids = append(pids, m.PID)
	}
	o.searchIn(ctx, pids, wanted, names, isTarget)
	if len(o.env.Target.PIDs) == 0 || len(wanted) == 0 || o.samples%hostSearch != 1 {
		return
	}
	all, err := o.env.Host.Members(ctx, host.Target{Kind: host.KindHost})
	if err != nil {
		return
	}
	pids = pids[:0]
	for _, p := range all {
		if !isTarget[p.PID] {
			names[p.PID] = p.Comm
			pids = append(pids, p.PID)
		}
	}
	o.searchIn(ctx, pids, wanted, names, isTarget)
}

func (o *owners) searchIn(ctx context.Context, pids []int, wanted map[uint64]struct{}, names map[int]string, isTarget map[int]bool) {
	got, err := sockdiag.Owners(ctx, o.env.Host.Proc, pids, wanted, searchFDs)
	if err != nil {
		return
	}
	o.denied = max(o.denied, got.Denied)
	for inode, pid := range got.PID {
		o.known[inode] = owner{pid: strconv.Itoa(pid), comm: names[pid], target: isTarget[pid]}
		o.found++
		delete(wanted, inode)
	}
}

func (o *owners) sum(t *table) {
	for _, f := range t.list {
		d := f.key.destination.String()
		for _, inode := range f.inodes {
			if p := o.known[inode]; p.pid != "" {
				if o.flows[d] == nil {
					o.flows[d] = map[owner]int{}
				}
				o.flows[d][p]++
			}
		}
	}
	o.waits = map[owner]int{}
	for _, inode := range t.closeWaits {
		if p := o.known[inode]; p.pid != "" {
			o.waits[p]++
		}
	}
}

// note records the owners found so far.
func (o *owners) note(a *recording.Appender) {
	a.None(metric.DestinationOwner, metric.ProcessSockets, metric.TargetListenPorts)
	for d, byOwner := range o.flows {
		for p, n := range byOwner {
			a.Gauge(metric.DestinationOwner, float64(n), d, p.pid, p.comm)
		}
	}
	for p, n := range o.waits {
		a.Gauge(metric.ProcessSockets, float64(n), p.pid, p.comm, sockdiag.CloseWait.String())
	}
	if o.denied > 0 && o.found == 0 {
		reason := fmt.Sprintf("the descriptors of %d processes may not be read", o.denied)
		a.Missing(metric.DestinationOwner, recording.StatusDenied, reason, "run as root or with CAP_SYS_PTRACE")
	}
}
