package threadstates

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/kernel/sockdiag"
	"github.com/perfdoctor/perfdoctor/internal/kernel/syscalls"
)

// link returns what a descriptor of the process leads to, "socket:[123]", "pipe:[45]" or a path; empty if it cannot
// be read.
func (s *source) link(pid int, fd uint64) string {
	if fd > 1<<30 { // an int in the kernel
		return ""
	}
	text, err := door.Descriptor(s.process(pid), strconv.FormatUint(fd, 10))
	if err != nil {
		return ""
	}
	return text
}

func (s *source) process(pid int) string { return s.env.Host.Proc + "/" + strconv.Itoa(pid) }

// inode takes the number out of "socket:[123]" and "pipe:[123]".
func inode(link, kind string) (uint64, bool) {
	text, ok := strings.CutPrefix(link, kind+":[")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64)
	return n, err == nil
}

// polled returns the one descriptor of a poll, and whether it waits for room; none for several.
func (s *source) polled(pid int, c syscalls.Entry) (fd uint64, write, ok bool) {
	if c.Args[1] != 1 {
		return 0, false, false
	}
	var entry [6]byte // struct pollfd: the descriptor, and what is waited for
	if !s.peek(pid, c.Args[0], entry[:]) {
		return 0, false, false
	}
	n, events := int32(binary.LittleEndian.Uint32(entry[:])), binary.LittleEndian.Uint16(entry[4:])
	return uint64(max(n, 0)), events&(unix.POLLIN|unix.POLLOUT) == unix.POLLOUT, n >= 0
}

// peek reads memory of the process.
func (s *source) peek(pid int, address uint64, into []byte) bool {
	m := s.memories[pid]
	if m == nil {
		if len(s.memories) >= maxMemories {
			clear(s.memories)
		}
		m = door.MemoryOf(s.process(pid))
		s.memories[pid] = m
	}
	_, err := m.ReadAt(into, int64(address))
	return err == nil
}

// maxMemories bounds the processes whose memory is kept open, including those that have ended.
const maxMemories = 1000

// lockHolder returns the thread that holds the lock that the thread waits for, 0 if it is not a lock or not known. In
// a mutex of glibc the word that is waited for is 2 while others wait, and its owner's id is two words on (struct
// __pthread_mutex_s, sysdeps/nptl/bits/struct_mutex.h); in a mutex with priority inheritance the word is the owner's
// id itself.
func (s *source) lockHolder(pid int, c syscalls.Entry, threads map[int]bool) (tid int, isLock bool) {
	var words [12]byte
	if !s.peek(pid, c.Args[0], words[:]) {
		return 0, false
	}
	value, owner := binary.LittleEndian.Uint32(words[:]), int(binary.LittleEndian.Uint32(words[8:]))
	switch c.Args[1] & futexCmd {
	case futexLockPI, futexLock2:
		return int(value & 0x3fffffff), true // FUTEX_TID_MASK
	case futexWait:
		if value == 2 && c.Args[2] == 2 && threads[owner] {
			return owner, true
		}
	}
	return 0, false
}

// endpoint is what is known of a socket.
type endpoint struct {
	local, remote netip.AddrPort
	listens       bool
	pushed        bool // the peer sends without being asked
}

// sockets are the sockets that were waited for, by inode, and the ports on which somebody listens.
type sockets struct {
	wanted    map[uint64]bool
	known     map[uint64]endpoint
	listening map[uint16]bool
	fresh     bool      // a wanted one was not looked for yet
	next      time.Time // when to look again at the earliest
}

func newSockets() sockets {
	return sockets{wanted: map[uint64]bool{}, known: map[uint64]endpoint{}, listening: map[uint16]bool{}}
}

func (s *sockets) want(inode uint64) {
	if !s.wanted[inode] {
		s.wanted[inode], s.fresh = true, true
	}
}

// lookPause is the shortest pause after a look at the sockets, as a multiple of what the look took, so that looks
// take less than a fiftieth of a CPU.
const lookPause = 50

// withFiles are the states of sockets that a descriptor may lead to, and of those that were just closed.
var withFiles = sockdiag.AllStates &^ sockdiag.StatesOf(sockdiag.TimeWait)

// findSockets looks up what the wanted sockets lead to, in the network namespace of the process. What was known about
// a socket stays when it is gone.
func (s *source) findSockets(ctx context.Context, pid int) {
	began := time.Now()
	_ = s.env.Host.InNetNS(pid, func() error {
		conn, err := sockdiag.Open(socketsTime)
		if err != nil {
			return err
		}
		err = conn.Dump(unix.AF_UNSPEC, withFiles, true, func(k *sockdiag.Socket) error {
			if k.State == sockdiag.Listen {
				s.sockets.listening[k.Local.Port()] = true
			}
			if s.sockets.wanted[k.Inode] {
				s.sockets.known[k.Inode] = endpoint{
					local: k.Local, remote: k.Remote, listens: k.State == sockdiag.Listen,
					pushed: k.HasInfo && k.Info.LastDataSent > unasked && k.Info.LastDataRecv < k.Info.LastDataSent,
				}
			}
			return ctx.Err()
		})
		return errors.Join(err, conn.Close())
	})
	s.findUDP(pid)
	s.sockets.fresh, s.sockets.next = false, time.Now().Add(lookPause*time.Since(began))
}

// findUDP adds the UDP sockets. Their tables are files of the process's namespace.
func (s *source) findUDP(pid int) {
	missing := func(inode uint64) bool {
		_, known := s.sockets.known[inode]
		return s.sockets.wanted[inode] && !known
	}
	if !slices.ContainsFunc(slices.Collect(maps.Keys(s.sockets.wanted)), missing) {
		return
	}
	fs, err := procfs.NewFS(s.process(pid))
	if err != nil {
		return
	}
	v4, _ := fs.NetUDP()
	v6, _ := fs.NetUDP6()
	for _, l := range append(v4, v6...) {
		if !missing(l.Inode) {
			continue
		}
		remote, _ := netip.AddrFromSlice(l.RemAddr)
		local, _ := netip.AddrFromSlice(l.LocalAddr)
		s.sockets.known[l.Inode] = endpoint{
			local:  netip.AddrPortFrom(local.Unmap(), uint16(l.LocalPort)),
			remote: netip.AddrPortFrom(remote.Unmap(), uint16(l.RemPort)),
		}
	}
}

// socketsTime bounds the look at the sockets of a namespace: 100,000 take 50 ms.
const socketsTime = 500 * time.Millisecond

// unasked is the number of milliseconds after which data is not an answer: the process has sent nothing for that
// long, and received since. A subscription is like that, or a replica.
const unasked = 1000

// ofSocket says what a wait for a socket is for, and on what. If somebody listens on the socket's local port, it is a
// client's.
func ofSocket(e endpoint, known bool, listening map[uint16]bool, write bool) (reason, on string) {
	switch {
	case !known:
		return forSocket, ""
	case e.listens:
		return forClient, ":" + strconv.Itoa(int(e.local.Port()))
	case !e.remote.IsValid() || e.remote.Port() == 0:
		return forSocket, ":" + strconv.Itoa(int(e.local.Port()))
	case listening[e.local.Port()] && write:
		return forRoom, ":" + strconv.Itoa(int(e.local.Port()))
	case listening[e.local.Port()]:
		return forRequest, ":" + strconv.Itoa(int(e.local.Port()))
	case write:
		return forRoom, e.remote.String()
	case e.pushed:
		return forMessage, e.remote.String()
	}
	return forAnswer, e.remote.String()
}

// holder is a process that holds a descriptor.
type holder struct {
	pid  int
	name string
}

// ends names a process that holds each pipe besides the one that waits there: the one with the lowest pid.
func (s *source) ends(ctx context.Context, pipes map[string]int) map[string]holder {
	out := map[string]holder{}
	if len(pipes) == 0 {
		return out
	}
	procs, err := os.ReadDir(s.env.Host.Proc)
	if err != nil {
		return out
	}
	looked := 0
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil || ctx.Err() != nil || looked > maxLinks {
			continue
		}
		fds, err := door.Descriptors(s.process(pid), maxLinksOfProcess)
		if err != nil {
			continue
		}
		looked += len(fds)
		for _, fd := range fds {
			link, err := door.Descriptor(s.process(pid), fd)
			if owner, wanted := pipes[link]; err == nil && wanted && owner != pid && out[link].pid == 0 {
				out[link] = holder{pid, s.nameOf(pid)}
			}
		}
	}
	return out
}

// Bounds of the search for a pipe's other end: a link takes 1 µs.
const (
	maxLinks          = 50_000
	maxLinksOfProcess = 1000
)

// nameOf returns a process's pid with its program's name.
func (s *source) nameOf(pid int) string {
	st, _, err := s.env.Host.ReadStat(pid, 0, nil)
	if err != nil {
		return fmt.Sprintf("pid %d", pid)
	}
	return fmt.Sprintf("pid %d (%s)", pid, st.Comm)
}

// childOf says which child a thread waits for. The kernel lists a process's children in the file of the thread that
// made them (fs/proc/array.c, CONFIG_PROC_CHILDREN).
func (s *source) childOf(pid int, c syscalls.Entry) string {
	if n := int64(int32(c.Args[0])); c.Name == "wait4" && n > 0 {
		return s.nameOf(int(n))
	}
	if n := int64(int32(c.Args[1])); c.Name == "waitid" && c.Args[0] == unix.P_PID && n > 0 {
		return s.nameOf(int(n))
	}
	text, err := host.ReadFile(s.process(pid)+"/task/"+strconv.Itoa(pid)+"/children", make([]byte, 512))
	if err != nil {
		return ""
	}
	var names []string
	for _, word := range strings.Fields(string(text)) {
		child, err := strconv.Atoi(word)
		if err == nil && len(names) < namedChildren {
			names = append(names, s.nameOf(child))
		}
	}
	return strings.Join(names, ", ")
}

// namedChildren is how many children are named: enough to tell what they are.
const namedChildren = 1
