package asprof

import (
	"context"
	"strconv"
	"strings"
)

// Lost is what async-profiler counted as lost in a session, over all events. Known is false where it did not say: the
// JVM has ended, or the library is older than 4.1.
type Lost struct {
	Known bool
	// samples not taken, because other threads were just storing theirs (Profiler::recordSample in src/profiler.cpp)
	Skipped   int64
	Overflows int64 // stacks beyond the memory limit; their samples are in the recording as storage_overflow
}

// lost asks the profiler after it has stopped, before the next session resets its counters. The answer goes to the
// log, to which nothing else is written any more.
func (s *Session) lost(ctx context.Context) Lost {
	if err := s.command(ctx, "metrics,quiet,loglevel=none,file="+s.lg.Path); err != nil {
		return Lost{}
	}
	return parseLost(s.said())
}

// parseLost reads lines such as "samples_skipped_total 0".
func parseLost(text string) Lost {
	var l Lost
	seen := 0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		to := map[string]*int64{
			"samples_skipped_total":            &l.Skipped,
			"calltracestorage_overflows_total": &l.Overflows,
		}[name]
		if to == nil {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 {
			return Lost{}
		}
		*to = n
		seen++
	}
	if l.Known = seen == 2; !l.Known {
		return Lost{}
	}
	return l
}
