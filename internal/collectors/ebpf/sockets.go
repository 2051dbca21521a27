package ebpf

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"unsafe"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/kernel/sockdiag"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// Sockets lists the TCP sockets of one network namespace, and the processes that hold them, with iterators in the
// kernel; see [SocketsFloor]. It is not safe for concurrent use.
type Sockets struct {
	set         *set
	sockets     *link.Iter
	descriptors *link.Iter
	enter       func(func() error) error // runs a function in the namespace
	hz          int64
}

// A Holder is a process's descriptor of a TCP socket of the namespace.
type Holder struct {
	PID, FD       int
	Comm          string
	Inode         uint64
	State         sockdiag.State
	Local, Remote netip.AddrPort
}

// SocketsFloor is the oldest kernel that [OpenSockets] works on.
func SocketsFloor() collect.Floor {
	return collect.Floor{Release: "5.9", Brought: "BPF iterators over TCP sockets"}
}

// OpenSockets loads the programs for the namespace of the environment's target, perfdoctor's own for a host. pid is a
// process in the namespace, 0 when it is perfdoctor's own. Opening takes as long as it does for a collector of this
// package.
func OpenSockets(ctx context.Context, l *Loader, env collect.Env, pid int) (*Sockets, error) {
	if err := allowed(env.Host); err != nil {
		return nil, err
	}
	netns, err := targetNetNS(env)
	if err != nil {
		return nil, err
	}
	hz, err := ticks()
	if err != nil {
		return nil, err
	}
	s := &Sockets{hz: hz, enter: func(fn func() error) error { return fn() }}
	if pid != 0 {
		s.enter = func(fn func() error) error { return env.Host.InNetNS(pid, fn) }
	}
	s.set, err = l.open(ctx, bpf.LoadSockets, func(spec *cilium.CollectionSpec, kernel *btf.Spec) error {
		_, err := kernel.AnyTypeByName("bpf_sock_from_file")
		return errors.Join(spec.Variables[bpf.SocketsVarHasSockFromFile].Set(err == nil),
			spec.Variables[bpf.SocketsVarOnlyNetns].Set(netns))
	})
	if err != nil {
		return nil, err
	}
	s.sockets, err = link.AttachIter(link.IterOptions{Program: s.set.collection.Programs[bpf.SocketsProgSockets]})
	if err != nil {
		return nil, unavailable(errors.Join(err, s.set.Close()))
	}
	s.set.links[bpf.SocketsProgSockets] = s.sockets
	s.descriptors,
		err = link.AttachIter(link.IterOptions{Program: s.set.collection.Programs[bpf.SocketsProgDescriptors]})
	if err != nil {
		return nil, unavailable(errors.Join(err, s.set.Close()))
	}
	s.set.links[bpf.SocketsProgDescriptors] = s.descriptors
	return s, nil
}

// ticks returns the kernel's CONFIG_HZ: the coarse clocks advance once a tick (kernel/time/posix-timers.c,
// KTIME_LOW_RES).
func ticks() (int64, error) {
	var res unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &res); err != nil {
		return 0, fmt.Errorf("read the length of a tick: %w", err)
	}
	if res.Sec != 0 || res.Nsec <= 0 {
		return 0, fmt.Errorf("a tick of %d s %d ns: no kernel has that", res.Sec, res.Nsec)
	}
	return int64(math.Round(1e9 / float64(res.Nsec))), nil
}

// Each calls fn with every TCP socket of the namespace, listeners first, as [sockdiag.Conn.Dump] does. It reports less
// than that: inodes only for LISTEN and CLOSE_WAIT, timers only as the time left in TIME_WAIT and the retransmissions
// of SYN_SENT, queues only of listeners, tcp_info only for ESTABLISHED, and of it what is recorded up to DataSegsOut;
// no cookie, interface or user. It reports [sockdiag.Info.Last] in addition. fn's socket is used again.
func (s *Sockets) Each(ctx context.Context, fn func(*sockdiag.Socket) error) error {
	var r io.ReadCloser
	// An iterator belongs to the namespace in which it is created (bpf_iter_init_seq_net in net/core or
	// fs/proc/proc_net.c).
	err := s.enter(func() (err error) {
		r, err = s.sockets.Open()
		return err
	})
	if err != nil {
		return fmt.Errorf("start an iterator over sockets: %w", err)
	}
	defer r.Close()
	var sk sockdiag.Socket
	return s.set.measured(func() error {
		return readRecords(ctx, r, func(rec *bpf.SocketsTcpSocket) error {
			s.convert(&sk, rec)
			return fn(&sk)
		})
	})
}

// newSynRecv is TCP_NEW_SYN_RECV (include/net/tcp_states.h), which sock_diag shows as SYN_RECV.
const newSynRecv = 12

func (s *Sockets) convert(to *sockdiag.Socket, from *bpf.SocketsTcpSocket) {
	e := &from.Ends
	state := sockdiag.State(e.State)
	if e.State == newSynRecv {
		state = sockdiag.SynRecv
	}
	if to.HasInfo {
		to.Info, to.HasInfo = sockdiag.Info{}, false
	}
	to.Family, to.State, to.Inode = e.Family, state, from.Inode
	to.SetAddrs(addr(e.Local), addr(e.Remote), e.LocalPort, ntohs(e.RemotePort))
	to.V6Only, to.HasBacklog = from.V6Only != 0, state == sockdiag.Listen
	to.RQueue, to.WQueue = from.AcceptQueue, from.Backlog
	to.Timer, to.Expires, to.Retransmits = sockdiag.TimerNone, 0, uint8(from.Retransmits)
	switch {
	case from.Expires > 0:
		to.Timer, to.Expires = sockdiag.TimerTimeWait, uint32(int64(from.Expires)*1000/s.hz)
	case state == sockdiag.Established:
		to.HasInfo = true
		to.Info.Len = sockdiag.InfoToDataSegs
		to.Info.RTT, to.Info.MinRTT = from.SrttUs>>3, from.MinRttUs
		to.Info.TotalRetrans, to.Info.SegsOut = from.TotalRetrans, from.SegsOut
		// write_seq is behind snd_nxt while a FIN is under way: tcp_get_info (net/ipv4/tcp.c) has 0 then.
		to.Info.Notsent = uint32(max(0, int32(from.Notsent)))
		to.Info.Unacked, to.Info.SndMSS = from.PacketsOut, from.Mss
		to.Info.LastDataSent, to.Info.LastDataRecv = s.millis(from.SinceSent), s.millis(from.SinceReceived)
		to.Info.DataSegsIn, to.Info.DataSegsOut = from.DataSegsIn, from.DataSegsOut
		to.Info.Last = sockdiag.Side(from.Last)
		to.Info.BytesAcked, to.Info.BytesReceived = from.BytesAcked, from.BytesReceived
	}
}

// millis turns jiffies into milliseconds.
func (s *Sockets) millis(jiffies uint32) uint32 { return uint32(int64(jiffies) * 1000 / s.hz) }

// addr returns the bytes of an address as they are in the kernel's memory.
func addr(words [4]uint32) (b [16]byte) {
	for i, w := range words {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	return b
}

func ntohs(port uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], port)
	return binary.BigEndian.Uint16(b[:])
}

// Holders calls fn with every descriptor of a TCP socket of the namespace that a process in perfdoctor's pid namespace
// or below holds. The pids are those of the first pid namespace. fn's holder is used again.
func (s *Sockets) Holders(ctx context.Context, fn func(*Holder) error) error {
	r, err := s.descriptors.Open()
	if err != nil {
		return fmt.Errorf("start an iterator over descriptors: %w", err)
	}
	defer r.Close()
	var h Holder
	var sk sockdiag.Socket
	var last uint32
	return s.set.measured(func() error {
		return readRecords(ctx, r, func(rec *bpf.SocketsHeldSocket) error {
			sk.Family = rec.Ends.Family
			sk.SetAddrs(addr(rec.Ends.Local), addr(rec.Ends.Remote), rec.Ends.LocalPort, ntohs(rec.Ends.RemotePort))
			if rec.Pid != last || h.Comm == "" { // a process's descriptors come one after the other
				last, h.Comm = rec.Pid, comm(&rec.Comm)
			}
			h.PID, h.FD, h.Inode, h.State = int(rec.Pid), int(rec.Fd), rec.Inode, sockdiag.State(rec.Ends.State)
			h.Local, h.Remote = sk.Local, sk.Remote
			return fn(&h)
		})
	})
}

func comm(c *[16]int8) string {
	b := unsafe.Slice((*byte)(unsafe.Pointer(c)), len(c))
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}

// AppendCost records what the programs cost until now.
func (s *Sockets) AppendCost(a *recording.Appender) error { return s.set.appendCost(a) }

// Close unloads the programs.
func (s *Sockets) Close() error { return s.set.Close() }
