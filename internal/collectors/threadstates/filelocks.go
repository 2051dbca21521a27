package threadstates

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

const (
	// maxLocks bounds what is read of /proc/locks: 4,000 locks of 64 bytes. A lock beyond that has a holder without a
	// name.
	maxLocks = 256 << 10
	// maxFDInfo bounds what is read of a descriptor in /proc/PID/fdinfo: its locks come after a hundred bytes.
	maxFDInfo = 4096
	// locksPause is the shortest time from one look at the locks to the next. locksShare is that time as a multiple
	// of what the look took, so that looks take less than a hundredth of a CPU.
	locksPause = 200 * time.Millisecond
	locksShare = 100
)

// A fileLock is a held lock, with the processes that wait for it, as /proc/locks lists it (fs/locks.c,
// lock_get_status). A holder of 0 has ended, or is in a pid namespace above or beside this one; -1 stands for a lock
// of an open file (F_OFD_SETLK), which no process has.
type fileLock struct {
	holder  int
	inode   uint64
	waiters []int
}

// parseLocks reads lines such as "1: FLOCK  ADVISORY  WRITE 88 fe:00:99 0 EOF"; the line of a waiter has an arrow
// behind the number, and follows the lock that it waits for.
func parseLocks(text []byte) (out []fileLock, err error) {
	for line := range bytes.Lines(text) {
		words := bytes.Fields(line)
		waits := len(words) > 1 && string(words[1]) == "->"
		if waits {
			words = slices.Delete(words, 1, 2)
		}
		if len(words) != 8 {
			return nil, fmt.Errorf("locks: %d words, want 8", len(words))
		}
		pid, err := strconv.Atoi(string(words[4]))
		if err != nil {
			return nil, errors.New("locks: bad pid")
		}
		if waits && len(out) == 0 {
			return nil, errors.New("locks: somebody waits for no lock")
		}
		if waits {
			last := &out[len(out)-1]
			last.waiters = append(last.waiters, pid)
			continue
		}
		file := words[5][bytes.LastIndexByte(words[5], ':')+1:] // "MAJOR:MINOR:INODE", or "<none>:0"
		inode, err := strconv.ParseUint(string(file), 10, 64)
		if err != nil {
			return nil, errors.New("locks: bad inode")
		}
		out = append(out, fileLock{holder: pid, inode: inode})
	}
	return out, nil
}

// lockOf returns the lock that a process waits for. A lock of an open file does not say who waits for it; for these,
// and if the threads of a process wait for several locks, the file decides. ok is false if the lock is not certain.
func lockOf(locks []fileLock, pid int, inode uint64) (l fileLock, ok bool) {
	of := func(who int, file bool) (found []fileLock) {
		for _, l := range locks {
			if slices.Contains(l.waiters, who) && (!file || l.inode == inode) {
				found = append(found, l)
			}
		}
		return found
	}
	found := of(pid, false)
	if len(found) > 1 {
		found = of(pid, true)
	}
	if len(found) == 0 {
		found = of(-1, true)
	}
	if len(found) != 1 {
		return fileLock{}, false
	}
	return found[0], true
}

// A lockWait is a thread's wait for a lock of the file behind a descriptor.
type lockWait struct {
	pid  int
	fd   uint64
	link string
}

// fileLocks are the file locks that threads of the target wait for, and who was seen to hold them.
type fileLocks struct {
	waits   map[lockWait]bool         // of this pass
	holders map[string]map[string]int // by the file and the holder, in how many looks
	next    time.Time
}

func newFileLocks() fileLocks {
	return fileLocks{waits: map[lockWait]bool{}, holders: map[string]map[string]int{}}
}

// seeHolders looks at who holds the locks that threads wait for now.
func (s *source) seeHolders(ctx context.Context) {
	began := time.Now()
	defer clear(s.locks.waits)
	if len(s.locks.waits) == 0 || began.Before(s.locks.next) {
		return
	}
	text, _, err := door.Read(s.env.Host.Proc+"/locks", maxLocks)
	if err != nil {
		return
	}
	locks, err := parseLocks(text[:bytes.LastIndexByte(text, '\n')+1])
	if err != nil {
		return
	}
	for w := range s.locks.waits {
		var inode uint64
		if st, err := door.StatMagic(s.process(w.pid), "fd/"+strconv.FormatUint(w.fd, 10)); err == nil {
			inode = st.Ino
		}
		l, ok := lockOf(locks, w.pid, inode)
		if !ok {
			continue
		}
		pid := s.whoHas(ctx, w.link, l)
		if pid > 0 && (s.locks.holders[w.link] != nil || len(s.locks.holders) < maxSeries) {
			if s.locks.holders[w.link] == nil {
				s.locks.holders[w.link] = map[string]int{}
			}
			s.locks.holders[w.link][s.nameOf(pid)]++
		}
	}
	s.locks.next = began.Add(max(locksPause, locksShare*time.Since(began)))
}

// whoHas returns the process that has a lock, 0 if none is known. The process that took it may have ended: in the
// first pid namespace the lock still has its pid (locks_translate_pid), which may be another process's by now.
func (s *source) whoHas(ctx context.Context, link string, l fileLock) int {
	if l.holder > 0 && s.has(l.holder, link, l.inode) {
		return l.holder
	}
	if pid := s.holderOf(ctx, link, l.inode); pid != 0 || l.holder <= 0 {
		return pid
	}
	if _, _, err := s.env.Host.ReadStat(l.holder, 0, nil); err != nil {
		return 0
	}
	return l.holder // it may see the file by another path
}

// holderOf returns the first process that has the file open with a lock on it, 0 if there is none. It serves locks
// whose own pid is not a holder's: the program that took the lock for its parent has ended (flock(1) with a
// descriptor), and a child shares it.
func (s *source) holderOf(ctx context.Context, link string, inode uint64) (first int) {
	procs, err := os.ReadDir(s.env.Host.Proc)
	if err != nil {
		return 0
	}
	looked := 0
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil || ctx.Err() != nil || looked > maxLinks || first != 0 && pid > first {
			continue
		}
		n, has := s.descriptors(pid, link, inode)
		if looked += n; has {
			first = pid
		}
	}
	return first
}

// has reports whether a process has the file open with a lock on it.
func (s *source) has(pid int, link string, inode uint64) bool {
	_, has := s.descriptors(pid, link, inode)
	return has
}

// descriptors is has, and also returns how many descriptors it looked at.
func (s *source) descriptors(pid int, link string, inode uint64) (looked int, has bool) {
	fds, err := door.Descriptors(s.process(pid), maxLinksOfProcess)
	if err != nil {
		return 0, false
	}
	for _, fd := range fds {
		if to, err := door.Descriptor(s.process(pid), fd); err == nil && to == link && s.locked(pid, fd, inode) {
			return len(fds), true
		}
	}
	return len(fds), false
}

// locked reports whether a descriptor has a lock on the file: fdinfo has a line for each, as in /proc/locks behind
// "lock:" (fs/locks.c, show_fd_locks; Linux 4.1).
func (s *source) locked(pid int, fd string, inode uint64) bool {
	text, _, err := door.Read(s.process(pid)+"/fdinfo/"+fd, maxFDInfo)
	if err != nil {
		return false
	}
	for line := range bytes.Lines(text) {
		rest, ok := bytes.CutPrefix(line, []byte("lock:"))
		if locks, err := parseLocks(rest); ok && err == nil && len(locks) == 1 && locks[0].inode == inode {
			return true
		}
	}
	return false
}

// heldBy names the process that was seen most often to hold a lock on the file, " held by pid 88 (sh)"; empty if none
// was.
func (l *fileLocks) heldBy(link string) string {
	most, n := "", 0
	for name, looks := range l.holders[link] {
		if looks > n || looks == n && name < most {
			most, n = name, looks
		}
	}
	if most == "" {
		return ""
	}
	return " held by " + most
}
