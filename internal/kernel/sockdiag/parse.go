package sockdiag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Offsets in struct nlmsghdr (include/uapi/linux/netlink.h). Netlink is in the machine's byte order.
const (
	hdrType  = 4
	hdrFlags = 6
	hdrSeq   = 8
	hdrLen   = unix.NLMSG_HDRLEN
)

// Offsets in struct inet_diag_msg (include/uapi/linux/inet_diag.h); its ports and addresses are big-endian.
const (
	msgFamily  = 0
	msgState   = 1
	msgTimer   = 2
	msgRetrans = 3
	msgSport   = 4
	msgDport   = 6
	msgSrc     = 8  // four words, only the first of them for AF_INET
	msgDst     = 24 // likewise
	msgIf      = 40
	msgCookie  = 44 // two words, low one first
	msgExpires = 52
	msgRqueue  = 56
	msgWqueue  = 60
	msgUID     = 64
	msgInode   = 68
	msgLen     = 72 // the attributes follow
)

// Attribute types of the answer (enum in include/uapi/linux/inet_diag.h).
const (
	attrInfo     = 2  // INET_DIAG_INFO: struct tcp_info
	attrSKV6Only = 11 // INET_DIAG_SKV6ONLY: one byte, on LISTEN and CLOSE sockets of AF_INET6
)

// Offsets in struct tcp_info (include/uapi/linux/tcp.h). New fields only ever come at the end.
const (
	infoSndMSS        = 16
	infoUnacked       = 24
	infoLost          = 32
	infoRetrans       = 36
	infoLastDataSent  = 44
	infoLastDataRecv  = 52
	infoRTT           = 68
	infoRTTVar        = 72
	infoSndCwnd       = 80
	infoTotalRetrans  = 100 // the last field of 2.6 kernels
	infoBytesAcked    = 120
	infoBytesReceived = 128
	infoSegsOut       = 136
	infoSegsIn        = 140
	infoNotsent       = 144
	infoMinRTT        = 148
	infoDataSegsIn    = 152
	infoDataSegsOut   = 156
	infoDeliveryRate  = 160
	infoBusyTime      = 168
	infoRwndLimited   = 176
	infoSndbufLimited = 184
)

// InfoToDataSegs is the [Info.Len] of a tcp_info that ends with DataSegsOut.
const InfoToDataSegs = infoDataSegsOut + 4

var errTruncated = errors.New("truncated netlink message")

// A parser takes netlink datagrams apart and hands their sockets to fn.
type parser struct {
	seq         uint32 // messages of other requests are skipped
	fn          func(*Socket) error
	sock        Socket
	interrupted bool // some message had NLM_F_DUMP_INTR
}

// datagram handles all messages of one datagram. done is true at the end of the dump; an error of the kernel ends it
// too. After an error of fn or of decoding, datagram still searches the rest for the end of the dump, or a later
// drain would wait for it in vain.
func (p *parser) datagram(b []byte) (done bool, err error) {
	for len(b) > 0 && !done {
		if len(b) < hdrLen {
			return false, fmt.Errorf("%w: %d bytes left for a header of %d", errTruncated, len(b), hdrLen)
		}
		n := int(binary.NativeEndian.Uint32(b))
		if n < hdrLen || n > len(b) {
			return false, fmt.Errorf("%w: length %d in %d bytes", errTruncated, n, len(b))
		}
		if binary.NativeEndian.Uint32(b[hdrSeq:]) == p.seq {
			var failed error
			if done, failed = p.message(b[:n]); failed != nil && err == nil {
				err, p.fn = failed, nil
			}
		}
		b = b[min(align4(n), len(b)):]
	}
	return done, err
}

func (p *parser) message(b []byte) (done bool, err error) {
	if binary.NativeEndian.Uint16(b[hdrFlags:])&unix.NLM_F_DUMP_INTR != 0 {
		p.interrupted = true
	}
	body := b[hdrLen:]
	switch typ := binary.NativeEndian.Uint16(b[hdrType:]); typ {
	case unix.SOCK_DIAG_BY_FAMILY, tcpdiagGetsock:
		if p.fn == nil { // draining
			return false, nil
		}
		if err := p.sock.decode(body); err != nil {
			return false, err
		}
		return false, p.fn(&p.sock)
	case unix.NLMSG_DONE:
		// The payload is the dump's result since Linux 4.14, and absent or 0 before.
		if len(body) < 4 {
			return true, nil
		}
		return true, kernelError(body)
	case unix.NLMSG_ERROR:
		if len(body) < 4 {
			return false, fmt.Errorf("%w: error of %d bytes", errTruncated, len(body))
		}
		return true, kernelError(body)
	case unix.NLMSG_NOOP:
		return false, nil
	case unix.NLMSG_OVERRUN:
		return false, kernelErrno(unix.ENOBUFS)
	default:
		return false, fmt.Errorf("unexpected netlink message of type %d", typ)
	}
}

// kernelErrno is an errno from a netlink message, as opposed to one in an error of fn.
type kernelErrno unix.Errno

func (e kernelErrno) Error() string { return unix.Errno(e).Error() }

// kernelError returns the negative errno at the start of the body of NLMSG_ERROR or NLMSG_DONE.
func kernelError(body []byte) error {
	code := int32(binary.NativeEndian.Uint32(body))
	if code >= 0 {
		return nil
	}
	return kernelErrno(uint32(-code))
}

// decode fills s from an inet_diag_msg and its attributes.
func (s *Socket) decode(b []byte) error {
	if len(b) < msgLen {
		return fmt.Errorf("%w: inet_diag_msg of %d bytes, want %d", errTruncated, len(b), msgLen)
	}
	m := b[:msgLen:msgLen]
	if s.HasInfo { // else it is clean: clearing 130 bytes for each of 100,000 TIME_WAIT would be noticeable
		s.Info, s.HasInfo = Info{}, false
	}
	s.Family = m[msgFamily]
	s.State = State(m[msgState])
	s.Timer = Timer(m[msgTimer])
	s.Retransmits = m[msgRetrans]
	s.Interface = binary.NativeEndian.Uint32(m[msgIf:])
	s.Cookie = uint64(binary.NativeEndian.Uint32(m[msgCookie:])) |
		uint64(binary.NativeEndian.Uint32(m[msgCookie+4:]))<<32
	s.Expires = binary.NativeEndian.Uint32(m[msgExpires:])
	s.RQueue = binary.NativeEndian.Uint32(m[msgRqueue:])
	s.WQueue = binary.NativeEndian.Uint32(m[msgWqueue:])
	s.UID = binary.NativeEndian.Uint32(m[msgUID:])
	s.Inode = uint64(binary.NativeEndian.Uint32(m[msgInode:]))
	s.HasBacklog = s.State == Listen
	s.V6Only = false
	sport, dport := binary.BigEndian.Uint16(m[msgSport:]), binary.BigEndian.Uint16(m[msgDport:])
	if s.Family != unix.AF_INET && s.Family != unix.AF_INET6 {
		return fmt.Errorf("inet_diag_msg of address family %d", s.Family)
	}
	s.SetAddrs([16]byte(m[msgSrc:]), [16]byte(m[msgDst:]), sport, dport)
	if len(b) == msgLen { // TIME_WAIT has no attributes
		return nil
	}
	return s.attributes(b[msgLen:])
}

// SetAddrs sets the addresses of a socket whose family is already set, from the kernel's bytes: for AF_INET the first
// four.
func (s *Socket) SetAddrs(src, dst [16]byte, sport, dport uint16) {
	if s.Family == unix.AF_INET6 {
		s.setAddrs6(src, dst, sport, dport)
		return
	}
	s.DualStack = false
	s.Local = netip.AddrPortFrom(netip.AddrFrom4([4]byte(src[:])), sport)
	s.Remote = netip.AddrPortFrom(netip.AddrFrom4([4]byte(dst[:])), dport)
}

// setAddrs6 sets the addresses of an AF_INET6 socket, IPv4-mapped ones as IPv4.
func (s *Socket) setAddrs6(src, dst [16]byte, sport, dport uint16) {
	local, remote := netip.AddrFrom16(src), netip.AddrFrom16(dst)
	s.DualStack = local.Is4In6() || remote.Is4In6()
	s.Local = netip.AddrPortFrom(local.Unmap(), sport)
	s.Remote = netip.AddrPortFrom(remote.Unmap(), dport)
}

func (s *Socket) attributes(b []byte) error {
	for len(b) > 0 {
		if len(b) < unix.NLA_HDRLEN {
			return fmt.Errorf("%w: %d bytes left for an attribute", errTruncated, len(b))
		}
		n, typ := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])
		if n < unix.NLA_HDRLEN || n > len(b) {
			return fmt.Errorf("%w: attribute of %d bytes in %d", errTruncated, n, len(b))
		}
		if err := s.attribute(typ, b[unix.NLA_HDRLEN:n]); err != nil {
			return err
		}
		b = b[min(align4(n), len(b)):]
	}
	return nil
}

func (s *Socket) attribute(typ uint16, b []byte) error {
	switch typ {
	case attrInfo:
		// On a LISTEN socket tcp_get_info puts the accept queue into tcpi_unacked (net/ipv4/tcp.c). These are not a
		// connection's figures, so none are better than misread ones.
		if s.State == Listen {
			return nil
		}
		return s.setInfo(b)
	case attrSKV6Only:
		if len(b) < 1 {
			return fmt.Errorf("%w: empty INET_DIAG_SKV6ONLY", errTruncated)
		}
		s.V6Only = s.State == Listen && b[0] != 0
	}
	return nil
}

// setInfo reads tcp_info as far as this kernel provides it.
func (s *Socket) setInfo(b []byte) error {
	if len(b) < infoTotalRetrans+4 {
		return fmt.Errorf("%w: tcp_info of %d bytes, Linux 2.6 had %d", errTruncated, len(b), infoTotalRetrans+4)
	}
	u32 := func(off int) uint32 { return binary.NativeEndian.Uint32(b[off:]) }
	u64 := func(off int) uint64 { return binary.NativeEndian.Uint64(b[off:]) }
	s.HasInfo = true
	s.Info = Info{
		Len: len(b),
		RTT: u32(infoRTT), RTTVar: u32(infoRTTVar), SndCwnd: u32(infoSndCwnd),
		SndMSS: u32(infoSndMSS), Unacked: u32(infoUnacked), Lost: u32(infoLost), Retrans: u32(infoRetrans),
		TotalRetrans: u32(infoTotalRetrans),
		LastDataSent: u32(infoLastDataSent), LastDataRecv: u32(infoLastDataRecv),
	}
	i := &s.Info
	if i.HasBytes() {
		i.BytesAcked, i.BytesReceived = u64(infoBytesAcked), u64(infoBytesReceived)
	}
	if i.HasSegs() {
		i.SegsOut, i.SegsIn = u32(infoSegsOut), u32(infoSegsIn)
	}
	if i.HasNotsent() {
		i.Notsent = u32(infoNotsent)
	}
	if i.HasMinRTT() {
		i.MinRTT = u32(infoMinRTT)
	}
	if i.HasDataSegs() {
		i.DataSegsIn, i.DataSegsOut = u32(infoDataSegsIn), u32(infoDataSegsOut)
	}
	if i.HasDeliveryRate() {
		i.DeliveryRate = u64(infoDeliveryRate)
	}
	if i.HasBusyTime() {
		i.BusyTime, i.RwndLimited, i.SndbufLimited = u64(infoBusyTime), u64(infoRwndLimited), u64(infoSndbufLimited)
	}
	return nil
}

// align4 rounds up to NLMSG_ALIGNTO and NLA_ALIGNTO, both 4.
func align4(n int) int { return (n + 3) &^ 3 }
