package asprof

import (
	"context"
	"strconv"
	"strings"
)

// Lost is what async-profiler counted as lost in a session, of all events together. Known is false where it did not
// say: the JVM has ended, or the library is a release before 4.1.
type Lost struct {
	Known bool
	// samples that were not taken: other threads were just storing theirs (Profiler::recordSample in src/profiler.cpp)
	Skipped   int64
	Overflows int64 // stacks beyond the memory limit; their samples are in the recording as storage_overflow
}

// lost asks the profiler after its end, before the next session sets its counters to zero. The log takes the answer:
// nothing else is written to it any more.
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
