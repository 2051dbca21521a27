package ebpf

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"time"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/kernel/sockdiag"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func exchangesCollector(l *Loader) collect.Collector {
	return collect.Collector{
		Name: "bpf-exchanges",
		Doc: "How long the target's exchanges over TCP take, as a server and as a client: from a request until its " +
			"answer. Requests that are sent together and answered together are one exchange.",
		Overhead: "measured by the kernel and recorded as bpf_program_seconds_total: about 0.2 µs a segment that " +
			"comes on a connection of the target's, less on others; above 40,000 segments a second and CPU an " +
			"eighth of the time is measured",
		Provides: append(Costs(), metric.ExchangeDurations, metric.ExchangesCounted,
			metric.ExchangesAtTimer, metric.AfterTimer),
		Requires: requires(),
		Since:    collect.Floor{Release: "5.9", Brought: "the BPF helper bpf_skc_to_tcp_sock"},
		Open: func(ctx context.Context, env collect.Env) (collect.Source, error) {
			return openExchanges(ctx, l, env)
		},
	}
}

// exchanges is the source of bpf-exchanges.
type exchanges struct {
	set   *set
	turns turns
	times exchangeTimes
}

func openExchanges(ctx context.Context, l *Loader, env collect.Env) (collect.Source, error) {
	members, err := targetMembers(ctx, env, "each exchange")
	if err != nil {
		return nil, err
	}
	netns, err := targetNetNS(env)
	if err != nil {
		return nil, err
	}
	s, err := l.open(ctx, bpf.LoadExchanges, func(spec *cilium.CollectionSpec, _ *btf.Spec) error {
		ports, err := ownPorts(ctx, env, members)
		spec.Maps[bpf.ExchangesMapListeners].Contents = portBits(ports)
		return errors.Join(err, setTargets(spec, members),
			spec.Variables[bpf.ExchangesVarOnlyNetns].Set(netns))
	})
	if err != nil {
		return nil, err
	}
	e := &exchanges{set: s}
	if err := e.startTurns(env.Host.Proc, members); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// portBits returns the words that have any ports, with a bit for each port.
func portBits(ports map[uint16]bool) (list []cilium.MapKV) {
	words := map[uint32]uint64{}
	for port := range ports {
		words[uint32(port)>>6] |= 1 << (port & 63)
	}
	for word, bits := range words {
		list = append(list, cilium.MapKV{Key: word, Value: bits})
	}
	return list
}

// searchOwnFDs bounds the descriptors that are read in search of the target's listeners, a microsecond each: a server
// opens its listeners first.
const searchOwnFDs = 20_000

// ownPorts returns the ports that processes of the target listen on.
func ownPorts(ctx context.Context, env collect.Env, members []host.Process) (map[uint16]bool, error) {
	ports, wanted := map[uint64]uint16{}, map[uint64]struct{}{}
	err := eachListener(env, members[0].PID, func(s *sockdiag.Socket) error {
		ports[s.Inode], wanted[s.Inode] = s.Local.Port(), struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, m := range members {
		pids = append(pids, m.PID)
	}
	found, err := sockdiag.Owners(ctx, env.Host.Proc, pids, wanted, searchOwnFDs)
	if err != nil {
		return nil, fmt.Errorf("find the sockets that the target listens on: %w", err)
	}
	own := map[uint16]bool{}
	for inode := range found.PID {
		own[ports[inode]] = true
	}
	return own, nil
}

// Close unloads the programs.
func (e *exchanges) Close() error {
	e.turns.close()
	return e.set.Close()
}

// Sample appends the exchanges since the programs were loaded.
func (e *exchanges) Sample(_ context.Context, a *recording.Appender) error {
	if err := e.appendExchanges(a); err != nil {
		return err
	}
	if err := e.set.appendCost(a); err != nil {
		return err
	}
	_, err := e.set.appendLost(a, "exchanges of connections past the kernel's table",
		"exchanges with endpoints past the kernel's table")
	return err
}

func (e *exchanges) appendExchanges(a *recording.Appender) error {
	e.turns.mu.Lock()
	defer e.turns.mu.Unlock()
	if err := errors.Join(e.turns.failed, e.read(!e.turns.attached)); err != nil {
		return err
	}
	met, err := e.met()
	if err != nil {
		return err
	}
	runs := uint64(0)
	for _, n := range met {
		runs += n
	}
	a.Counter(metric.ExchangesCounted, e.turns.attachedFor(time.Now()).Seconds())
	var slots uint64
	if err := e.set.collection.Variables[bpf.ExchangesVarSlots].Get(&slots); err != nil {
		return fmt.Errorf("read how many timed waits ended: %w", err)
	}
	a.Counter(metric.AfterTimer, float64(slots)*timerSlot.Seconds())
	a.None(metric.ExchangeDurations, metric.ExchangesAtTimer)
	for end, t := range e.times.ends {
		side := "client"
		if end.Side == sideServer {
			side = "server"
		}
		endpoint := netip.AddrPortFrom(addressOf(end.Addr), end.Port).String()
		if t.atTimer > 0 {
			a.Counter(metric.ExchangesAtTimer, float64(t.atTimer), endpoint)
		}
		for i, n := range t.sum {
			count := uint64(math.Round(n))
			appendCount(a, metric.ExchangeDurations, count, 1, []string{side, endpoint}, exchangeBound(i))
		}
	}
	return e.set.countRuns(runs, bpf.ExchangesProgArrive)
}

// timerSlot is the length of a slot of time in which ended timed waits are noted (SLOT_SHIFT in exchanges.bpf.c).
const timerSlot = (1 << 20) * time.Nanosecond

// exchangeBuckets is the number of buckets in use (BUCKETS in exchanges.bpf.c).
const exchangeBuckets = 2 + 26*16

// exchangeBound returns the upper bound in seconds of bucket i of an exchange's times (bucket() in exchanges.bpf.c).
func exchangeBound(i int) string {
	if i == exchangeBuckets-1 {
		return "+Inf"
	}
	at := float64(1024)
	if i > 0 {
		doubling, part := (i-1)/16, (i-1)%16
		at = math.Ldexp(float64(16+part+1), doubling+6)
	}
	return strconv.FormatFloat(at*time.Nanosecond.Seconds(), 'g', 6, 64)
}
