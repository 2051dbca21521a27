package sockets

import (
	"context"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/kernel/sockdiag"
)

// A finder knows which of the target's processes hold sockets, by their descriptors.
type finder struct {
	env    collect.Env
	owners map[uint64]owner // by inode; of sockets that the target does not hold, the zero owner
}

func newFinder(env collect.Env) finder { return finder{env: env, owners: map[uint64]owner{}} }

// find looks for the owners of those that were not asked for before.
func (f *finder) find(ctx context.Context, inodes []uint64) {
	if len(f.owners) > maxRemember {
		clear(f.owners)
	}
	wanted := map[uint64]struct{}{}
	for _, inode := range inodes {
		if _, known := f.owners[inode]; !known && inode != 0 {
			wanted[inode] = struct{}{}
		}
	}
	if len(wanted) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	members, err := f.env.Host.LateMembers(ctx, f.env.Target)
	if err != nil {
		return // the target has ended, or time is up
	}
	names, pids := map[int]string{}, make([]int, 0, len(members))
	for _, m := range members {
		names[m.PID], pids = m.Comm, append(pids, m.PID)
	}
	got, err := sockdiag.Owners(ctx, f.env.Host.Proc, pids, wanted, searchFDs)
	for inode, pid := range got.PID {
		f.owners[inode] = owner{pid: strconv.Itoa(pid), comm: names[pid], target: true}
	}
	if err != nil || got.Truncated {
		return // the others are looked for again in the next sample
	}
	for inode := range wanted {
		if _, found := f.owners[inode]; !found {
			f.owners[inode] = owner{}
		}
	}
}
