// Package sockets collects the TCP sockets of the target's network namespace: per destination on the client's side,
// per listener on the server's, with their owners; the accept queues of the target's AF_UNIX sockets; and what UDP
// sockets lost.
package sockets

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/ebpf"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/kernel/sockdiag"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// dumpTimeout bounds one dump: a million sockets take 0.4 s of CPU; a host with more is sampled late and says so.
const dumpTimeout = 450 * time.Millisecond

// cpuShare is the share of a CPU that samples may take: a quarter of what all of perfdoctor may cost on a host that
// is busy with connections. There, 30,000 sockets in TIME_WAIT take 10 ms, and are read every other second: they last
// for 60 s.
const cpuShare = 0.005

// Collectors lists this package's collectors. The TCP collector loads its programs together with those of other
// collectors.
func Collectors(l *ebpf.Loader) []collect.Collector {
	return []collect.Collector{{
		Name: "sockets",
		Doc: "TCP sockets of the target's network namespace by state, per destination, per listener, and their " +
			"owners.",
		Overhead: "0.3 ms a sample, and 0.3 µs per TIME_WAIT or 0.8 µs per other socket; for their owners 0.75 µs a " +
			"descriptor in the " +
			"kernel, at most 2 % of the time, or 4 µs in /proc, at most 50 ms a sample; samples are left out to stay " +
			"below 0.5 % of a CPU",
		Provides: append(ebpf.Costs(),
			metric.Sockets, metric.DestinationSockets, metric.DestinationSmaller, metric.DestinationYoungTW,
			metric.DestinationOwner,
			metric.DestinationRTT, metric.DestinationMin, metric.DestinationBytes, metric.DestinationHeld,
			metric.DestinationAsked,
			metric.DestinationLost,
			metric.DestinationSegs, metric.DestinationData,
			metric.SynSentRetrans, metric.ListenerSockets, metric.ListenerQueue, metric.ListenerBacklog,
			metric.ListenerPeers,
			metric.ListenerBytes, metric.ListenerHeld, metric.ListenerOwes, metric.ListenerUnread,
			metric.ListenerSegments,
			metric.ProcessSockets, metric.TargetListenPorts),
		Share: cpuShare,
		Open: func(ctx context.Context, env collect.Env) (collect.Source, error) {
			defer l.Keep()() // opening the netlink socket takes as long as loading the other programs
			s, err := open(ctx, env)
			if err != nil {
				return nil, err
			}
			s.load(l)
			return s, nil
		},
	}, unixCollector(), udpCollector()}
}

// source reads by sock_diag, or by /proc if sock_diag is not available (conn is nil).
type source struct {
	env    collect.Env
	conn   *sockdiag.Conn
	noDiag error // why conn is nil
	table  *table
	owners *owners

	programs *ebpf.Background[*ebpf.Sockets] // nil: not used
	iterated bool                            // the last sample was read by the iterator
	moved    map[netip.AddrPort]uint64       // data segments of the target's listeners at the last sample
}

func open(_ context.Context, env collect.Env) (*source, error) {
	s := &source{env: env, table: newTable(), owners: newOwners(env)}
	connect := func() (err error) {
		s.conn, err = sockdiag.Open(dumpTimeout)
		return err
	}
	if pid := namespacePID(env.Target); pid == 0 {
		s.noDiag = connect()
	} else {
		s.noDiag = env.Host.InNetNS(pid, connect)
	}
	if s.noDiag != nil {
		if _, err := os.Stat(s.procFile("tcp")); err != nil {
			return nil, errors.Join(s.noDiag, err)
		}
	}
	return s, nil
}

// load makes the source use programs in the kernel once they are loaded.
func (s *source) load(l *ebpf.Loader) {
	s.programs = ebpf.Load(l, func(ctx context.Context) (*ebpf.Sockets, error) {
		return ebpf.OpenSockets(ctx, l, s.env, namespacePID(s.env.Target))
	})
	s.owners.programs = s.programs
}

// namespacePID returns a process in the namespace to read, 0 if that is perfdoctor's own.
func namespacePID(t host.Target) int {
	if len(t.PIDs) == 0 || t.Namespaces.Net.Same {
		return 0
	}
	return t.PIDs[0]
}

func (s *source) procFile(name string) string {
	dir := "self"
	if pid := namespacePID(s.env.Target); pid != 0 {
		dir = strconv.Itoa(pid)
	}
	return filepath.Join(s.env.Host.Proc, dir, "net", name)
}

// Sample appends one sample.
func (s *source) Sample(ctx context.Context, a *recording.Appender) error {
	if err := s.programs.Append(a, "whose the sockets are is told of a sample of them, by /proc/PID/fd"); err != nil {
		return err
	}
	if err := s.read(ctx, a); err != nil {
		return err
	}
	s.table.keepLargest()
	s.owners.find(ctx, s.table)
	s.table.append(a, s.owners)
	if err := s.unread(ctx, a); err != nil {
		return err
	}
	s.owners.note(a)
	if s.conn == nil && !s.iterated {
		s.missingInfo(a)
	} else {
		a.None(diagOnly()...)
	}
	return nil
}

// diagOnly returns the metrics that /proc/PID/net/tcp does not have.
func diagOnly() []metric.Metric {
	return []metric.Metric{
		metric.DestinationRTT, metric.DestinationMin, metric.DestinationBytes, metric.DestinationHeld,
		metric.DestinationAsked, metric.DestinationLost, metric.DestinationSegs, metric.DestinationData,
		metric.ListenerBacklog,
		metric.ListenerBytes, metric.ListenerHeld, metric.ListenerOwes, metric.ListenerUnread, metric.ListenerSegments,
	}
}

const (
	// unreadAfter is how long bytes lie unread before they count: a busy event loop comes back within a second.
	unreadAfter = 1000 // ms
	// mostDumped bounds the connections that are looked at, at 0.8 µs each.
	mostDumped = 20_000
)

// unread appends how many connections have unread bytes, for each listener of the target at which nothing happened
// since the last sample although answers are owed. The iterator does not read the length of a receive queue.
func (s *source) unread(ctx context.Context, a *recording.Appender) error {
	if s.conn == nil || s.table.states[sockdiag.Established] > mostDumped {
		return nil
	}
	var stalled map[*listener]int
	if stalled, s.moved = s.table.stalled(s.owners, s.moved); len(stalled) == 0 {
		return nil
	}
	n := 0
	err := s.conn.Dump(unix.AF_UNSPEC, sockdiag.StatesOf(sockdiag.Established), true, func(sk *sockdiag.Socket) error {
		if n++; n%checkEvery == 0 && ctx.Err() != nil {
			return fmt.Errorf("second look at sockets ended after %d: %w", n, ctx.Err())
		}
		l := s.table.listenerOf(sk.Local)
		if _, asked := stalled[l]; asked && sk.RQueue > 0 && sk.Info.LastDataRecv >= unreadAfter {
			stalled[l]++
		}
		return nil
	})
	if err != nil && !errors.Is(err, sockdiag.ErrInterrupted) {
		return err
	}
	for l, unread := range stalled {
		a.Gauge(metric.ListenerUnread, float64(unread), l.addr.String())
	}
	return nil
}

// Close closes the netlink socket and unloads the programs.
func (s *source) Close() error {
	err := s.programs.Close()
	if s.conn == nil {
		return err
	}
	return errors.Join(err, s.conn.Close())
}

// The cost of a pass of the iterator relative to a dump by sock_diag, in ns of CPU (BenchmarkSocketIterator, Linux
// 6.18, with the kernel counting what programs cost): it calls the program for every socket and begins late, but need
// not build a message with tcp_info. So it is more expensive for few sockets and for many in TIME_WAIT (371 against
// 267 ns), and cheaper from about 6400 connections on (700 against 930 ns).
const (
	iteratorBegins   = 1_500_000
	iteratorTimeWait = 100
	iteratorSaves    = 230 // for a socket in another state
)

// iteratorPays reports whether the iterator is cheaper, judging by the sockets of the last sample.
func (t *table) iteratorPays() bool {
	waiting, all := t.states[sockdiag.TimeWait], 0
	for _, n := range t.states {
		all += n
	}
	return iteratorSaves*(all-waiting) > iteratorBegins+iteratorTimeWait*waiting
}

// read fills the table: by the iterator if that is cheaper or a target was named, otherwise by sock_diag.
func (s *source) read(ctx context.Context, a *recording.Appender) error {
	it, ok := s.programs.Ready()
	pays := s.table.iteratorPays()
	s.table.reset()
	// For a target the iterator shows what sock_diag cannot: which requests have no answer, where they follow each
	// other at once. It leaves the owner of a connection to the other iterator.
	if ok && (pays || s.conn == nil || len(s.env.Target.PIDs) > 0) && s.env.Host.FirstPIDNamespace() {
		err := it.Each(ctx, s.adder(ctx))
		if err == nil || ctx.Err() != nil {
			s.iterated = true
			return err
		}
		s.table.reset() // for example, the process whose namespace it enters has ended
	}
	s.iterated = false
	return s.dump(ctx, a)
}

// dump reads the listeners first: a socket is on the server side if its local port is a listener's.
func (s *source) dump(ctx context.Context, a *recording.Appender) error {
	add := s.adder(ctx)
	if s.conn == nil {
		return s.dumpProc(add)
	}
	for _, states := range []sockdiag.States{
		sockdiag.StatesOf(sockdiag.Listen),
		sockdiag.AllStates &^ sockdiag.StatesOf(sockdiag.Listen),
	} {
		err := s.conn.Dump(unix.AF_UNSPEC, states, true, add)
		if errors.Is(err, sockdiag.ErrInterrupted) {
			a.LostOfSample(1, "socket dump with sockets missing or doubled because the table changed under it")
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkEvery is the number of sockets between two looks at the context: 0.3 ms of a dump.
const checkEvery = 1024

// adder adds to the table until the context is done.
func (s *source) adder(ctx context.Context) func(*sockdiag.Socket) error {
	n := 0
	return func(sk *sockdiag.Socket) error {
		if n++; n%checkEvery == 0 && ctx.Err() != nil {
			return fmt.Errorf("socket dump ended after %d sockets: %w", n, ctx.Err())
		}
		return s.table.add(sk)
	}
}

// dumpProc reads the text files. They list listeners first (net/ipv4/tcp_ipv4.c tcp_seq_start).
func (s *source) dumpProc(add func(*sockdiag.Socket) error) error {
	r4, err := os.Open(s.procFile("tcp"))
	if err != nil {
		return err
	}
	defer r4.Close()
	r6, err := os.Open(s.procFile("tcp6"))
	if errors.Is(err, os.ErrNotExist) { // no IPv6
		return sockdiag.DumpProc(r4, nil, add)
	}
	if err != nil {
		return err
	}
	defer r6.Close()
	return sockdiag.DumpProc(r4, r6, add)
}

// missingInfo records which metrics /proc/PID/net/tcp does not have.
func (s *source) missingInfo(a *recording.Appender) {
	st, reason, remedy := collect.Classify(s.noDiag)
	reason = fmt.Sprintf("read from %s, which does not tell it, because %s", s.procFile("tcp"), reason)
	for _, m := range diagOnly() {
		a.Missing(m, st, reason, remedy)
	}
}
