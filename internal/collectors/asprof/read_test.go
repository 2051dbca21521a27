package asprof

import (
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

func TestBlind(t *testing.T) {
	for _, tc := range []struct {
		engine, warning string
		want            bool
	}{
		{"async-profiler 4.6 perf_events", "", false},
		{"async-profiler 4.6 perf_events", "perf_event_open for TID 7 failed: No such process", false},
		{"async-profiler 4.6 perf_events", "Kernel symbols are unavailable due to restrictions. Try", true},
		{"async-profiler 4.6 ctimer", "", true},
	} {
		if got := blind(&stacks.Profile{Engine: tc.engine}, []string{tc.warning}); got != tc.want {
			t.Errorf("%s, %q: %v", tc.engine, tc.warning, got)
		}
	}
}
