package sockdiag

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Ownership says which processes hold which sockets, and how much of the search was done.
type Ownership struct {
	// PID is the first of the searched pids to hold the socket, by inode. A socket shared over fork has more.
	PID map[uint64]int
	// FDs counts the file descriptors looked at.
	FDs int
	// Denied counts the pids whose descriptors may not be read: that takes the same uid or CAP_SYS_PTRACE.
	Denied int
	// Gone counts the pids that had ended.
	Gone int
	// Truncated: the deadline or the descriptor budget ended the search before all pids were read.
	Truncated bool
}

// Owners finds the owners of the sockets in wanted by reading the links in procRoot/PID/fd of pids, in that order. It
// stops at the end of ctx, after maxFDs descriptors (each costs about a microsecond), or when every wanted socket has
// an owner. It counts what could not be read; any other failure is an error.
func Owners(ctx context.Context, procRoot string, pids []int, wanted map[uint64]struct{}, maxFDs int,
) (Ownership, error) {
	s := ownerSearch{ctx: ctx, wanted: wanted, maxFDs: maxFDs}
	s.found.PID = make(map[uint64]int)
	for _, pid := range pids {
		if s.complete() {
			break
		}
		path := filepath.Join(procRoot, strconv.Itoa(pid), "fd")
		if err := s.process(pid, path); err != nil {
			return s.found, fmt.Errorf("socket owners: %s: %w", path, err)
		}
		if s.found.Truncated {
			break
		}
	}
	return s.found, nil
}

type ownerSearch struct {
	ctx    context.Context //nolint:containedctx // lives for one call of Owners
	wanted map[uint64]struct{}
	maxFDs int
	found  Ownership
	dir    [16 << 10]byte // 680 entries of getdents64 at a time
	link   [64]byte       // "socket:[18446744073709551615]" has 29 bytes; longer links are files
}

func (s *ownerSearch) complete() bool { return len(s.found.PID) == len(s.wanted) }

// process searches one pid. It counts a pid that may not be read or has ended, which is no error.
func (s *ownerSearch) process(pid int, path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = s.descriptors(pid, fd)
		err = errors.Join(err, unix.Close(fd))
	}
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		s.found.Denied++
		return nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESRCH):
		s.found.Gone++
		return nil
	}
	return err
}

func (s *ownerSearch) descriptors(pid, dirfd int) error {
	for {
		n, err := unix.Getdents(dirfd, s.dir[:])
		if err != nil || n <= 0 {
			return err
		}
		if err := s.entries(pid, dirfd, s.dir[:n]); err != nil {
			return err
		}
		if s.found.Truncated || s.complete() {
			return nil
		}
	}
}

// entries reads the links of one buffer of struct linux_dirent64 (include/linux/dirent.h).
func (s *ownerSearch) entries(pid, dirfd int, b []byte) error {
	const reclenAt, nameAt = 16, 19
	for len(b) > nameAt {
		reclen := int(binary.NativeEndian.Uint16(b[reclenAt:]))
		if reclen <= nameAt || reclen > len(b) {
			return fmt.Errorf("directory entry of %d bytes in %d", reclen, len(b))
		}
		name, _, _ := bytes.Cut(b[nameAt:reclen], []byte{0})
		b = b[reclen:]
		if len(name) == 0 || name[0] < '0' || name[0] > '9' { // . and ..
			continue
		}
		if s.exhausted() {
			s.found.Truncated = true
			return nil
		}
		s.found.FDs++
		if err := s.descriptor(pid, dirfd, string(name)); err != nil {
			return err
		}
	}
	return nil
}

// exhausted reports that the search has used up its time or its number of descriptors; what it found stays true.
func (s *ownerSearch) exhausted() bool { return s.found.FDs >= s.maxFDs || s.ctx.Err() != nil }

func (s *ownerSearch) descriptor(pid, dirfd int, name string) error {
	n, err := unix.Readlinkat(dirfd, name, s.link[:])
	if errors.Is(err, unix.ENOENT) { // closed meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	inode, ok := socketInode(s.link[:n])
	if !ok {
		return nil
	}
	if _, want := s.wanted[inode]; !want {
		return nil
	}
	if _, known := s.found.PID[inode]; !known {
		s.found.PID[inode] = pid
	}
	return nil
}

// socketInode returns N of "socket:[N]" (sockfs_dname in net/socket.c).
func socketInode(link []byte) (uint64, bool) {
	digits, ok := bytes.CutPrefix(link, []byte("socket:["))
	if !ok {
		return 0, false
	}
	digits, ok = bytes.CutSuffix(digits, []byte("]"))
	if !ok {
		return 0, false
	}
	inode, err := strconv.ParseUint(string(digits), 10, 64)
	return inode, err == nil
}
