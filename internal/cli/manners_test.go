package cli

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/host"
)

// TestProgressLine: the bar names its phase, and fits every terminal with a column to spare.
func TestProgressLine(t *testing.T) {
	for _, columns := range []int{1, 10, 60, 160} {
		line := progressLine("3 of 10 s", 3*time.Second, 10*time.Second, columns)
		if n := utf8.RuneCountInString(line); n >= columns {
			t.Errorf("%d columns of %d: %q", n, columns, line)
		}
	}
	want := "██████░░░░░░░░░░░░░░  3 of 10 s  (Ctrl-C: report of what was seen so far)"
	if got := progressLine("3 of 10 s", 3*time.Second, 10*time.Second, 160); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := progressLine("x", time.Second, 0, 160); !strings.HasPrefix(got, "░") {
		t.Errorf("no bar for a run without a length: %q", got)
	}
}

func TestNearCgroup(t *testing.T) {
	known := []named{{choice: "/system.slice/nginx.service"}, {choice: "/user.slice"}, {choice: "/app\x1b[2J"}}
	for name, want := range map[string]string{
		"nginx.service":               "did you mean --cgroup /system.slice/nginx.service?",
		"/system.slice/ngnix.service": "did you mean --cgroup /system.slice/nginx.service?",
		"/usr.slice":                  "did you mean --cgroup /user.slice?",
		"/somewhere/quite/else":       "",
	} {
		got := nearCgroup(host.ErrNoSuchCgroup, name, known).Error()
		if !strings.Contains(got, want) || want == "" && strings.Contains(got, "did you mean") {
			t.Errorf("%s: %q, want %q in it", name, got, want)
		}
	}
}

// TestDocParts: no word of a check's text is lost, and its fix is separate.
func TestDocParts(t *testing.T) {
	for _, c := range checks.Suite() {
		symptoms, fix, rest := docParts(c.Doc)
		if symptoms == "" {
			t.Errorf("%s: no symptoms", c.Name)
		}
		if strings.Contains(c.Doc, "\nFix:") && !strings.HasPrefix(fix, "Fix:") {
			t.Errorf("%s: its fix is not found: %q", c.Name, fix)
		}
		if n := len(strings.Fields(symptoms + " " + fix + " " + rest)); n != len(strings.Fields(c.Doc)) {
			t.Errorf("%s: %d words, want %d", c.Name, n, len(strings.Fields(c.Doc)))
		}
	}
}

func TestNearProcess(t *testing.T) {
	known := []named{{choice: "nginx"}, {choice: "postgres"}, {choice: "\x1b[2J"}}
	for name, want := range map[string]string{"ngnix": "; did you mean nginx?", "java": ""} {
		if got := nearProcess(host.ErrNoSuchProcess, name, known).Error(); got != host.ErrNoSuchProcess.Error()+want {
			t.Errorf("%s: %q, want %q at its end", name, got, want)
		}
	}
}
