package ebpf

import (
	"context"
	"errors"
	"fmt"
	"time"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// Bandwidth reads the CPU limits of all control groups below one, itself included, in one pass of the kernel (Linux
// 6.1). It is not safe for concurrent use.
type Bandwidth struct {
	set  *set
	link *cgroupLink
}

// A CPULimit is the limit of a group and what came of it, as in its cpu.stat.
type CPULimit struct {
	ID            uint64 // the inode of the group's directory
	Quota, Period time.Duration
	Burst         time.Duration // 0 before Linux 5.14
	ThrottledTime time.Duration // a sum over CPUs
	Periods       uint64
	Throttled     uint64 // periods
}

// ErrTooManyLimits says that there are more groups with a limit than the kernel reports in one pass; those that it
// reported are right.
var ErrTooManyLimits = errors.New("more control groups with a CPU limit than one pass of the kernel tells")

// BandwidthFloor is the oldest kernel that [OpenBandwidth] works on.
func BandwidthFloor() collect.Floor {
	return collect.Floor{Release: "6.1", Brought: "BPF iterators over control groups"}
}

// OpenBandwidth loads the program for the group whose directory is given, in v2 or in the cpu controller's tree of v1.
func OpenBandwidth(ctx context.Context, l *Loader, h *host.Host, dir string) (*Bandwidth, error) {
	if err := allowed(h); err != nil {
		return nil, err
	}
	set, err := l.open(ctx, bpf.LoadBandwidth, func(_ *cilium.CollectionSpec, kernel *btf.Spec) error {
		var iterator *btf.Func // the kernel attaches by the types of its arguments (DEFINE_BPF_ITER_FUNC)
		if err := kernel.TypeByName("bpf_iter_cgroup", &iterator); err != nil {
			return BandwidthFloor().Explain(host.Local(), collect.Unavailable(recording.StatusUnsupported,
				"Linux 6.1 or newer, with control groups", "bpf_iter_cgroup is not among the kernel's types"))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	b := &Bandwidth{set: set}
	if b.link, err = linkCgroups(set.collection.Programs[bpf.BandwidthProgLimits], dir); err != nil {
		return nil, unavailable(errors.Join(err, set.Close()))
	}
	return b, nil
}

// Each calls fn with every group that has a limit, parents before their children. fn's limit is used again.
func (b *Bandwidth) Each(ctx context.Context, fn func(*CPULimit) error) error {
	r, err := b.link.open()
	if err != nil {
		return err
	}
	defer r.Close()
	var l CPULimit
	err = b.set.measured(func() error {
		return readRecords(ctx, r, func(rec *bpf.BandwidthLimit) error {
			l = CPULimit{
				ID: rec.Id, Quota: time.Duration(rec.Quota), Period: time.Duration(rec.Period),
				Burst:         time.Duration(rec.Burst),
				ThrottledTime: time.Duration(rec.ThrottledNs), Periods: uint64(rec.Periods),
				Throttled: uint64(rec.Throttled),
			}
			return fn(&l)
		})
	})
	// what does not fit in one read ends the pass (cgroup_iter_seq_start in kernel/bpf/cgroup_iter.c)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: %w", ErrTooManyLimits, err)
	}
	return err
}

// AppendCost records what the program costs until now.
func (b *Bandwidth) AppendCost(a *recording.Appender) error { return b.set.appendCost(a) }

// Close unloads the program.
func (b *Bandwidth) Close() error { return errors.Join(b.link.Close(), b.set.Close()) }
