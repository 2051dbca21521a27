package threadstates

import (
	"context"
	"strings"
)

// namer gives a function that says what a place waits for and on what. Sockets and the ends of pipes are looked up once,
// at the end of the window.
func (s *source) namer(ctx context.Context) func(*thread, place) (reason, on string) {
	pipes := map[string]int{}
	pid := 0
	for _, t := range s.threads {
		pid = t.pid
		for p := range t.times {
			if strings.HasPrefix(p.link, "pipe:") {
				pipes[p.link] = t.pid
			}
		}
	}
	if len(s.sockets.wanted) > 0 {
		s.findSockets(ctx, pid)
	}
	ends := s.ends(ctx, pipes)
	return func(_ *thread, p place) (reason, on string) {
		if p.reason == forLock || p.reason == forFile {
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
			return ofLink(p.link, ends)
		}
		return p.reason, p.on
	}
}

// ofLink says what a read or write of something else than a socket waits for.
func ofLink(link string, ends map[string]string) (reason, on string) {
	switch {
	case strings.HasPrefix(link, "pipe:"):
		return forPipe, ends[link]
	case strings.HasPrefix(link, "anon_inode:[timerfd]"):
		return forSleep, ""
	case strings.HasPrefix(link, "anon_inode:"), strings.HasPrefix(link, "/dev/pts/"), strings.HasPrefix(link, "/dev/tty"):
		return forEvents, link
	}
	return forFile, link
}
