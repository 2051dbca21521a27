package threadstates

import (
	"context"
	"strings"
)

// namer returns a function that says what a place waits for and on what. Sockets and the ends of pipes are looked up
// once, at the end of the window.
func (s *source) namer(ctx context.Context) func(*thread, place) (reason, on string) {
	pipes, children := map[string]int{}, map[string]map[string]bool{} // pipes by owner, children by program
	pid := 0
	for _, t := range s.threads {
		pid = t.pid
		for p := range t.times {
			if strings.HasPrefix(p.link, "pipe:") {
				pipes[p.link] = t.pid
			}
			addChild(children, p)
		}
	}
	if len(s.sockets.wanted) > 0 {
		s.findSockets(ctx, pid)
	}
	ends := s.ends(ctx, pipes)
	return func(t *thread, p place) (reason, on string) {
		switch p.reason {
		case forLock:
			return p.reason, p.link + s.locks.heldBy(p.link)
		case forFile:
			return p.reason, p.link
		}
		if n, ok := inode(p.link, "socket"); ok {
			e, known := s.sockets.known[n]
			reason, on = ofSocket(e, known, s.sockets.listening, p.write)
			if p.reason == forConnect || p.reason == forClient {
				reason = p.reason
			}
			return reason, on
		}
		if p.reason == forPipe && p.link != "" {
			return s.ofLink(t.pid, p, ends)
		}
		if program := programOf(p.on); p.reason == forChild && len(children[program]) > 1 {
			return p.reason, program + " (another process each time)"
		}
		return p.reason, p.on
	}
}

// ofLink says what a read or write of anything but a socket waits for. A process that reads what its child writes
// waits for the child; one that reads what another process writes waits for its next piece of work. A file is not on
// a disk if the wait for it is an interruptible sleep: it is a named pipe or a device, whose other end is not known.
func (s *source) ofLink(reader int, p place, ends map[string]holder) (reason, on string) {
	link := p.link
	switch {
	case strings.HasPrefix(link, "pipe:") && !p.write && s.isBelow(ends[link].pid, reader):
		return forChild, ends[link].name
	case strings.HasPrefix(link, "pipe:") && !p.write && ends[link].pid != 0:
		return forMessage, ends[link].name
	case strings.HasPrefix(link, "pipe:"):
		return forPipe, ends[link].name
	case p.state == "waiting" && strings.HasPrefix(link, "/") && p.write:
		return forPipe, link
	case p.state == "waiting" && strings.HasPrefix(link, "/"):
		return forEvents, link
	case strings.HasPrefix(link, "anon_inode:[timerfd]"):
		return forSleep, ""
	case strings.HasPrefix(link, "anon_inode:"), strings.HasPrefix(link, "/dev/pts/"),
		strings.HasPrefix(link, "/dev/tty"):
		return forEvents, link
	}
	return forFile, link
}

// isBelow reports whether a process is a child of another, or of one of its children.
func (s *source) isBelow(pid, ancestor int) bool {
	const deepest = 32 // a script that starts a script ... is no deeper
	for range deepest {
		st, _, err := s.env.Host.ReadStat(pid, 0, nil)
		if err != nil || pid == 0 {
			return false
		}
		if pid = st.PPID; pid == ancestor {
			return true
		}
	}
	return false
}

// addChild adds the child that is waited for at a place.
func addChild(children map[string]map[string]bool, p place) {
	program := programOf(p.on)
	if p.reason != forChild || program == "" {
		return
	}
	if children[program] == nil {
		children[program] = map[string]bool{}
	}
	children[program][p.on] = true
}

// programOf returns the program in a name from nameOf.
func programOf(name string) string {
	_, program, _ := strings.Cut(strings.TrimSuffix(name, ")"), "(")
	return program
}
