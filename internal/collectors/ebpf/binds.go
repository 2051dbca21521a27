package ebpf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func bindsCollector(l *Loader) collect.Collector {
	return collect.Collector{
		Name: "bpf-binds",
		Doc: "TCP sockets that have bind() choose their local port, by process and source address, and whether " +
			"there was one.",
		Overhead: "1 µs a bind(); nothing else calls the programs, which are attached to the root of the v2 cgroups",
		Provides: append(Costs(), bindMetrics()...),
		Requires: append(requires(), host.NetAdmin),
		Since:    collect.Floor{Release: "5.10", Brought: "reading the current task in BPF programs of control groups"},
		Open: func(ctx context.Context, env collect.Env) (collect.Source, error) {
			return openBinds(ctx, l, env)
		},
	}
}

func bindMetrics() []metric.Metric {
	return []metric.Metric{metric.BindsAsked, metric.BindsFound, metric.BindSearchSeconds}
}

// binds is the source of bpf-binds.
type binds struct {
	set   *set
	names names
	netns uint32 // the target's network namespace
}

func openBinds(ctx context.Context, l *Loader, env collect.Env) (collect.Source, error) {
	netns, err := targetNetNS(env)
	if err != nil {
		return nil, err
	}
	root, err := env.Host.UnifiedRoot()
	if err != nil {
		return nil, collect.Unavailable(recording.StatusUnsupported,
			"mount the v2 cgroups, and run perfdoctor outside of containers",
			"the programs are attached to the root of the v2 cgroups: %v", err)
	}
	b := &binds{names: newNames(env.Host.Proc), netns: netns}
	b.set, err = l.open(ctx, bpf.LoadBinds, func(spec *cilium.CollectionSpec, _ *btf.Spec) error {
		if env.Target.Kind == host.KindHost {
			return nil
		}
		return spec.Variables[bpf.BindsVarOnlyNetns].Set(b.netns)
	})
	if err != nil {
		return nil, err
	}
	if err := b.set.attachCgroup(root); err != nil {
		return nil, unavailable(errors.Join(err, b.set.Close()))
	}
	return b, nil
}

// attachCgroup attaches the programs of cgroups, beside those of others. It attaches each by a link, which ends with
// the process. It does not try the older way, which would outlive the process (link.AttachCgroup would).
func (s *set) attachCgroup(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open the root of the cgroups: %w", err)
	}
	defer f.Close() // the kernel keeps what the links need
	types := map[string]cilium.AttachType{
		bpf.BindsProgBind4: cilium.AttachCGroupInet4Bind, bpf.BindsProgBind6: cilium.AttachCGroupInet6Bind,
		bpf.BindsProgFound4: cilium.AttachCGroupInet4PostBind, bpf.BindsProgFound6: cilium.AttachCGroupInet6PostBind,
	}
	// The programs that report success come first: a bind() between two is then counted by neither.
	for _, name := range []string{bpf.BindsProgFound4, bpf.BindsProgFound6, bpf.BindsProgBind4, bpf.BindsProgBind6} {
		l, err := link.AttachRawLink(link.RawLinkOptions{
			Target: int(f.Fd()), Program: s.collection.Programs[name],
			Attach: types[name],
		})
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("attach program %s to %s: %w: another program is attached there exclusively", name, dir,
				err)
		}
		if err != nil {
			return fmt.Errorf("attach program %s to %s: %w", name, dir, err)
		}
		s.links[name] = l
	}
	return nil
}

// Close unloads the programs.
func (b *binds) Close() error { return b.set.Close() }

// Sample appends the totals since the programs were loaded.
func (b *binds) Sample(_ context.Context, a *recording.Appender) error {
	if err := b.set.appendCost(a); err != nil {
		return err
	}
	err := readHash(b.set.collection.Maps[bpf.BindsMapAskers], func(by bpf.BindsAsker, t *bpf.BindsAsked) {
		labels := []string{
			netnsLabel(by.Netns, b.netns), addressOf(by.Addr).String(), strconv.FormatUint(uint64(by.Pid), 10),
			b.names.of(by.Pid, t.Comm[:]),
		}
		a.Counter(metric.BindsAsked, float64(t.Asked), labels...)
		a.Counter(metric.BindsFound, float64(t.Found), labels...)
		a.Counter(metric.BindSearchSeconds, float64(t.SearchNs)*1e-9, labels...)
	})
	if err != nil {
		return err
	}
	a.None(bindMetrics()...)
	_, err = b.set.appendLost(a, "binds of processes past the kernel's table")
	return err
}

// addressOf returns the address in a program's key, whose words are in network order.
func addressOf(words [4]uint32) netip.Addr {
	var b [16]byte
	for i, w := range words {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	return netip.AddrFrom16(b).Unmap()
}

// netnsLabel names a network namespace as the metrics do.
func netnsLabel(inode, target uint32) string {
	if inode == target {
		return metric.NetNSTarget
	}
	return fmt.Sprintf("net:[%d]", inode)
}
