package sockdiag

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// procBufferSize is the read buffer; a line has at most about 200 bytes, and a read of the file returns a page or
// more.
const procBufferSize = 32 << 10

// DumpProc calls fn with every socket in the text of /proc/PID/net/tcp (r4) and /proc/PID/net/tcp6 (r6), for kernels
// without sock_diag. Either may be nil: without IPv6 there is no tcp6. On Linux 6.18 it costs three ([Established])
// to six ([TimeWait]) times the CPU of [Conn.Dump], nearly all of it in the kernel, and knows less: no Info, Cookie,
// Interface, V6Only or backlog. fn's Socket is reused; an error of fn ends the dump and is returned unchanged. A bad
// line is an error with its number.
func DumpProc(r4, r6 io.Reader, fn func(*Socket) error) error {
	if err := dumpProcFile(r4, unix.AF_INET, fn); err != nil {
		return err
	}
	return dumpProcFile(r6, unix.AF_INET6, fn)
}

func dumpProcFile(r io.Reader, family uint8, fn func(*Socket) error) error {
	if r == nil {
		return nil
	}
	name := "net/tcp"
	if family == unix.AF_INET6 {
		name = "net/tcp6"
	}
	in := bufio.NewReaderSize(r, procBufferSize)
	s := Socket{Family: family}
	for number := 1; ; number++ {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 && number > 1 {
			return nil
		}
		if err != nil { // also a last line cut off: the kernel ends every line
			return fmt.Errorf("%s line %d: %w", name, number, endOfLine(err))
		}
		if number == 1 {
			err = checkHeader(line)
		} else {
			err = s.decodeProc(line)
		}
		if err != nil {
			return fmt.Errorf("%s line %d: %w", name, number, err)
		}
		if number == 1 {
			continue
		}
		if err := fn(&s); err != nil {
			return err
		}
	}
}

func endOfLine(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func checkHeader(line []byte) error {
	if !strings.HasPrefix(strings.TrimLeft(string(line), " "), "sl ") {
		return fmt.Errorf("header is %.40q, want sl local_address and so on", line)
	}
	return nil
}

// decodeProc reads a line of get_tcp4_sock (net/ipv4/tcp_ipv4.c) or get_tcp6_sock (net/ipv6/tcp_ipv6.c):
//
//	sl: local:port remote:port st tx:rx tr:when retrnsmt uid timeout inode ref pointer ...
func (s *Socket) decodeProc(line []byte) error {
	f := fields{rest: line}
	f.decimal(':', 32) // the line's number in the table
	addrWords := 1
	if s.Family == unix.AF_INET6 {
		addrWords = 4
	}
	local := f.address(addrWords)
	sport := uint16(f.hex(' ', 4))
	remote := f.address(addrWords)
	dport := uint16(f.hex(' ', 4))
	s.State = State(f.hex(' ', 2))
	s.WQueue, s.RQueue = uint32(f.hex(':', 8)), uint32(f.hex(' ', 8))
	s.Timer = Timer(f.hex(':', 2))
	ticks := f.hex(' ', 16)
	s.Retransmits = uint8(min(f.hex(' ', 8), 255))
	s.UID = uint32(f.decimal(' ', 32))
	f.decimal(' ', 32) // timeout: unanswered probes
	s.Inode = f.decimal(' ', 64)
	if f.err != nil {
		return f.err
	}
	// Ticks are USER_HZ, which is 100 on amd64 and arm64. Negative delays are written as 0 by the kernel.
	const msPerTick = 10
	s.Expires = uint32(min(ticks, 1<<32/msPerTick-1) * msPerTick)
	if s.Family == unix.AF_INET6 {
		s.setAddrs6(local, remote, sport, dport)
		return nil
	}
	s.Local = netip.AddrPortFrom(netip.AddrFrom4([4]byte(local[:])), sport)
	s.Remote = netip.AddrPortFrom(netip.AddrFrom4([4]byte(remote[:])), dport)
	return nil
}

// fields reads a line from left to right. After the first error all further fields are zero.
type fields struct {
	rest []byte
	err  error
}

// next skips blanks and takes the bytes up to end, or for the last field of a line the line end.
func (f *fields) next(end byte) []byte {
	for len(f.rest) > 0 && f.rest[0] == ' ' {
		f.rest = f.rest[1:]
	}
	for i, c := range f.rest {
		if c == end || end == ' ' && c == '\n' {
			field := f.rest[:i]
			f.rest = f.rest[i+1:]
			return field
		}
	}
	f.fail("line ends early", f.rest)
	return nil
}

func (f *fields) fail(what string, field []byte) {
	if f.err == nil {
		f.err = fmt.Errorf("%s: %.40q", what, field)
	}
	f.rest = nil
}

// hex reads a field of at most digits hexadecimal digits, at most 16.
func (f *fields) hex(end byte, digits int) uint64 {
	field := f.next(end)
	if f.err != nil {
		return 0
	}
	return f.hexDigits(field, digits)
}

func (f *fields) hexDigits(field []byte, digits int) uint64 {
	if len(field) == 0 || len(field) > digits {
		f.fail("bad hexadecimal number", field)
		return 0
	}
	v := uint64(0)
	for _, c := range field {
		switch {
		case '0' <= c && c <= '9':
			v = v<<4 | uint64(c-'0')
		case 'A' <= c && c <= 'F':
			v = v<<4 | uint64(c-'A'+10)
		default: // the kernel writes capitals
			f.fail("bad hexadecimal number", field)
			return 0
		}
	}
	return v
}

// decimal reads a field as a number of at most bits bits.
func (f *fields) decimal(end byte, bits int) uint64 {
	field := f.next(end)
	if f.err != nil {
		return 0
	}
	limit := ^uint64(0) >> (64 - bits)
	v := uint64(0)
	for _, c := range field {
		d := uint64(c - '0')
		if d > 9 || v > (limit-d)/10 {
			f.fail("bad decimal number", field)
			return 0
		}
		v = v*10 + d
	}
	if len(field) == 0 {
		f.fail("bad decimal number", field)
	}
	return v
}

// address reads words of eight digits up to a colon: each is a big-endian word printed as if it were a number
// of this machine.
func (f *fields) address(words int) (addr [16]byte) {
	field := f.next(':')
	if f.err != nil {
		return addr
	}
	if len(field) != words*8 {
		f.fail("bad address", field)
		return addr
	}
	for i := range words {
		binary.NativeEndian.PutUint32(addr[i*4:], uint32(f.hexDigits(field[i*8:i*8+8], 8)))
	}
	return addr
}
