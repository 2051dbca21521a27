// Package netfilter finds out whether a network namespace translates addresses, and how many rules a packet walks
// there.
//
// It reads nf_tables by netlink dumps and the legacy tables by getsockopt, changes nothing, and asks for nothing that
// would make the kernel load a module. 20,000 rules cost 17 ms of CPU and 49 kB (amd64). Parsing them into objects
// with github.com/google/nftables costs 137 ms and 27 MB, which is why this package has its own parser.
package netfilter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// The two reasons why nothing can be read. Both come wrapped with the remedy.
var (
	// ErrPermission: the user namespace that owns the network namespace grants no CAP_NET_ADMIN.
	ErrPermission = errors.New("no permission to read packet filter rules")
	// ErrUnsupported: the kernel answers that it has no nf_tables, or finding out would load a module.
	ErrUnsupported = errors.New("nf_tables is not available")
)

const (
	// maxRules bounds a reading: it is ten times the largest rule set worth measuring, and costs some 0.2 s.
	maxRules = 200_000
	// receiveTimeout bounds one wait; the kernel answers a dump at once, or not at all.
	receiveTimeout = 500 * time.Millisecond
	// receiveBuffer is the most a dump puts into one datagram (net/netlink/af_netlink.c, netlink_dump: 32 KiB).
	receiveBuffer = 32 << 10
	// maxTries bounds the repeats of a dump that a change of the rules cut short (NLM_F_DUMP_INTR).
	maxTries = 3
)

// Read summarises the rules of the calling thread's network namespace; a caller that has entered another one must
// have locked its goroutine to the thread. Legacy tables are read as well where there are any. When nf_tables cannot
// be read (ErrPermission, ErrUnsupported, ctx), the summary still holds the legacy tables, and Notes says what is
// missing. If the deadline of ctx passes while the rules are read, that is no error: the summary is Truncated.
func Read(ctx context.Context) (Summary, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r, err := readTables(ctx)
	s := r.finish()
	if err != nil {
		s.Notes = append(s.Notes, err.Error())
	}
	s.addLegacy()
	return s, err
}

// readTables repeats the dump if the rules changed meanwhile, and in the end takes the last one with Changed set. It
// does not repeat a dump that had no time for all rules.
func readTables(ctx context.Context) (*ruleset, error) {
	present, err := hasTables()
	if err != nil || !present {
		return newRuleset(), err
	}
	var r *ruleset
	for range maxTries {
		r = newRuleset()
		r.summary.Present = true
		if err := r.dumpAll(ctx, maxRules); err != nil {
			return r, err
		}
		if !r.summary.Changed || r.summary.Truncated {
			break
		}
	}
	return r, nil
}

// hasTables finds out whether nf_tables is in the kernel, since asking a kernel without it would make it load the
// module: socket(2) asks for net-pf-16-proto-12, and a message for nfnetlink-subsys-10 (net/netfilter/nfnetlink.c). A
// kernel without modules cannot load any. Built-in modules are not in /proc/modules, but in kallsyms.
func hasTables() (bool, error) {
	modules, err := os.ReadFile("/proc/modules")
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err == nil && (bytes.HasPrefix(modules, []byte("nf_tables ")) ||
		bytes.Contains(modules, []byte("\nnf_tables "))) {
		return true, nil
	}
	const path = "/proc/kallsyms"
	f, err := os.Open(path)
	if err != nil {
		return false, fmt.Errorf("%w: %w: cannot tell without loading the module; read as root", ErrUnsupported, err)
	}
	defer f.Close()
	found, err := hasSymbol(f, "nf_tables_getrule")
	if err != nil {
		return false, fmt.Errorf("%w: %s: %w", ErrUnsupported, path, err)
	}
	return found, nil
}

// hasSymbol looks for a symbol in kallsyms ("address type name [module]"), some 10 MB, without keeping it.
func hasSymbol(r io.Reader, prefix string) (bool, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), 64<<10)
	needle := []byte(" " + prefix)
	for lines.Scan() {
		if bytes.Contains(lines.Bytes(), needle) {
			return true, nil
		}
	}
	return false, lines.Err()
}

// dumpAll reads the tables, chains, sets and rules, in this order: a rule needs its chain. It stops after the datagram
// that reaches the limit of rules.
func (r *ruleset) dumpAll(ctx context.Context, limit int) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return socketError(err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing is written to it
	timeout := unix.NsecToTimeval(receiveTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return fmt.Errorf("receive timeout of a netfilter socket: %w", err)
	}
	d := dumper{fd: fd, buf: make([]byte, receiveBuffer), r: r, limit: limit}
	steps := []struct {
		what    string
		request byte
		take    func(message) error
	}{
		{"tables", unix.NFT_MSG_GETTABLE, func(message) error { r.summary.Tables++; return nil }},
		{"chains", unix.NFT_MSG_GETCHAIN, r.addChain},
		{"sets", unix.NFT_MSG_GETSET, func(message) error { r.summary.Sets++; return nil }},
		{"rules", unix.NFT_MSG_GETRULE, r.addRule},
	}
	for _, step := range steps {
		if err := d.dump(ctx, step.request, step.take); err != nil {
			return fmt.Errorf("read nf_tables %s: %w", step.what, err)
		}
	}
	return nil
}

func socketError(err error) error {
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
		return fmt.Errorf("%w: netfilter socket: %w", ErrUnsupported, err)
	}
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: netfilter socket: %w: allow netlink in the seccomp profile", ErrPermission, err)
	}
	return fmt.Errorf("netfilter socket: %w", err)
}

type dumper struct {
	fd       int
	sequence uint32
	buf      []byte
	r        *ruleset
	limit    int // of rules
}

// dump sends one request and hands every answer to take until the kernel says it is done.
func (d *dumper) dump(ctx context.Context, request byte, take func(message) error) error {
	d.sequence++
	if err := unix.Sendto(d.fd, d.request(request), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	for {
		if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) && d.r.summary.Rules > 0 {
			d.r.summary.Truncated = true // what was read so far is a lower bound: on a busy host better than nothing
			return nil
		} else if err != nil {
			return err
		}
		n, _, flags, _, err := unix.Recvmsg(d.fd, d.buf, nil, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("no answer from the kernel in %v", receiveTimeout)
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		if flags&unix.MSG_TRUNC != 0 {
			return fmt.Errorf("%w: datagram above %d bytes", errShort, len(d.buf))
		}
		done, err := d.takeAll(d.buf[:n], take)
		if err != nil || done {
			return err
		}
		if d.r.summary.Rules >= d.limit {
			d.r.summary.Truncated = true // the socket is closed after the rules, which ends the kernel's dump
			return nil
		}
	}
}

// request is nlmsghdr and nfgenmsg; family 0 asks for all.
func (d *dumper) request(kind byte) []byte {
	b := make([]byte, unix.NLMSG_HDRLEN+genHeader)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.NFNL_SUBSYS_NFTABLES<<8|uint16(kind))
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	binary.NativeEndian.PutUint32(b[8:], d.sequence)
	return b
}

// takeAll handles the messages of one datagram. done says that the dump has ended.
func (d *dumper) takeAll(b []byte, take func(message) error) (done bool, err error) {
	for len(b) > 0 {
		var m message
		if m, b, err = nextMessage(b); err != nil {
			return false, err
		}
		if m.flags&unix.NLM_F_DUMP_INTR != 0 {
			d.r.summary.Changed = true
		}
		switch {
		case m.errno != 0:
			return false, dumpError(m.errno)
		case m.typ == unix.NLMSG_DONE:
			return true, nil
		case m.typ>>8 != unix.NFNL_SUBSYS_NFTABLES: // an acknowledgement or NLMSG_NOOP
		default:
			if err := take(m); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// dumpError explains an error answer. nfnetlink says EPERM without CAP_NET_ADMIN, EINVAL without the subsystem.
func dumpError(errno unix.Errno) error {
	switch errno {
	case unix.EPERM, unix.EACCES:
		return fmt.Errorf("%w: %w: run as root or grant CAP_NET_ADMIN in the target's network namespace",
			ErrPermission, errno)
	case unix.EINVAL, unix.EOPNOTSUPP, unix.ENOENT:
		return fmt.Errorf("%w: %w: the kernel has no nf_tables (CONFIG_NF_TABLES)", ErrUnsupported, errno)
	}
	return errno
}
