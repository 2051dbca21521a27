package signature

import (
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// LogAppenders returns a matcher of the stacks that write log lines, by the frames of logging-on-request-path.
func LogAppenders(prof *stacks.Profile) *Matcher {
	for _, s := range builtIn() {
		if s.Name == "logging-on-request-path" {
			c := s.Where[0]
			return matcherOf(prof, clause{Event: eventName(stacks.Wall), Frames: c.Frames, Without: c.Without}, nil)
		}
	}
	return matcherOf(prof, clause{Frames: []frameRule{{}}}, nil) // matches nothing
}

// KnownLocks returns matchers of the locks that have a signature, for a profile of any event.
func KnownLocks(prof *stacks.Profile) (known []*Matcher) {
	for _, s := range builtIn() {
		for _, w := range s.Where {
			if stacks.Event(w.Event) == stacks.Lock {
				known = append(known, matcherOf(prof, w, nil))
			}
		}
	}
	return known
}

// Claimed reports whether any of the matchers claims the sample.
func Claimed(known []*Matcher, s stacks.Sample) bool {
	return slices.ContainsFunc(known, func(m *Matcher) bool {
		_, theirs := m.At(s)
		return theirs
	})
}
