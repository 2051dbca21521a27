package asprof

import (
	"strings"
	"testing"
)

// FuzzLog: the JVM's user can write anything to the log.
func FuzzLog(f *testing.F) {
	f.Add("[WARN] Kernel symbols are unavailable\n[WARN] Kernel symbols are unavailable\n")
	f.Add("samples_skipped_total 3\ncalltracestorage_overflows_total 4\n")
	f.Add("samples_skipped_total -1\r\n[")
	f.Fuzz(func(t *testing.T, text string) {
		seen := map[string]bool{}
		for _, line := range lines(text) {
			if seen[line] || line == "" || strings.TrimSpace(line) != line || !strings.Contains(text, line) {
				t.Errorf("a line %q of %q", line, text)
			}
			seen[line] = true
		}
		if l := parseLost(text); l.Skipped < 0 || l.Overflows < 0 || !l.Known && l != (Lost{}) {
			t.Errorf("%q: %+v", text, l)
		}
	})
}
