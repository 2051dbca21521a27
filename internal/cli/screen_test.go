package cli

import (
	"bytes"
	"io"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/cli/command"
)

func TestPagerCommand(t *testing.T) {
	for _, tt := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"TERM": "xterm"}, "less -RFX"},
		{map[string]string{"TERM": "xterm", "PAGER": ""}, ""},
		{map[string]string{"TERM": "xterm", "PAGER": "cat"}, ""},
		{map[string]string{"TERM": "xterm", "PAGER": "less"}, "less -R"},
		{map[string]string{"TERM": "xterm", "PAGER": "more -s"}, "more -s"},
		{map[string]string{"TERM": "dumb", "PAGER": "less"}, ""},
		{map[string]string{}, ""},
	} {
		got := pagerCommand(func(name string) (string, bool) { v, ok := tt.env[name]; return v, ok })
		if got != tt.want {
			t.Errorf("with %v the pager is %q, want %q", tt.env, got, tt.want)
		}
	}
}

// TestNoPagerInAPipe: output that is not a terminal gets the text, whatever PAGER says.
func TestNoPagerInAPipe(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("PAGER", "false")
	var b bytes.Buffer
	a := &app{&command.App{Streams: command.Streams{Out: &b, Err: io.Discard}}}
	err := a.paged(func(w io.Writer) error {
		_, err := io.WriteString(w, "text\n")
		return err
	})
	if err != nil || b.String() != "text\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
	if a.width(false) != 0 || a.width(true) != wideWithoutTerminal {
		t.Errorf("widths %d and %d", a.width(false), a.width(true))
	}
}
