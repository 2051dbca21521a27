package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/collect"
)

// wideWithoutTerminal is the width that --wide means without a terminal to ask: the width of a wide window.
const wideWithoutTerminal = 160

// widestText is the width beyond which lines are hard to follow with the eye; --wide goes beyond.
const widestText = 160

// width returns the columns of a text report: the terminal's, at most 160 without --wide. Without a terminal it
// returns 160 with --wide, else 0 for the report's own 80, which every mail shows.
func (a *app) width(wide bool) int {
	columns, _, ok := a.terminalSize()
	switch {
	case ok && wide:
		return columns
	case ok:
		return min(columns, widestText)
	case wide:
		return wideWithoutTerminal
	}
	return 0
}

// terminalSize returns the size of the terminal on the standard output; ok is false if that is not a terminal.
func (a *app) terminalSize() (columns, lines int, ok bool) { return sizeOf(a.Streams.Out) }

// sizeOf returns the size of a terminal; ok is false if w is not a terminal.
func sizeOf(w io.Writer) (columns, lines int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, 0, false
	}
	columns, lines, err := term.GetSize(int(f.Fd()))
	return columns, lines, err == nil && columns > 0 && lines > 0
}

// paged writes a text through the user's pager if it is longer than the terminal. Otherwise, and always to a pipe or
// a file, it writes the text as it is.
func (a *app) paged(write func(io.Writer) error) error {
	_, lines, ok := a.terminalSize()
	pager := pagerCommand(os.LookupEnv)
	if !ok || pager == "" {
		return command.OutputError(write(a.Streams.Out))
	}
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return command.OutputError(err)
	}
	if bytes.Count(b.Bytes(), []byte("\n")) >= lines {
		if shown := a.page(pager, b.Bytes()); shown {
			return nil
		}
	}
	_, err := a.Streams.Out.Write(b.Bytes())
	return command.OutputError(err)
}

// pagerCommand returns the pager. That is PAGER, where "" and cat mean none, as for git and man; else less, with
// colours (-R). less exits if everything fits (-F) and leaves the text on the screen (-X).
func pagerCommand(env func(string) (string, bool)) string {
	if termType, _ := env("TERM"); termType == "" || termType == "dumb" {
		return ""
	}
	pager, given := env("PAGER")
	switch {
	case !given:
		return "less -RFX"
	case strings.TrimSpace(pager) == "cat":
		return ""
	case strings.TrimSpace(pager) == "less":
		return "less -R"
	}
	return strings.TrimSpace(pager)
}

// page shows the text; shown is false if the pager could not be run.
func (a *app) page(pager string, text []byte) (shown bool) {
	cmd := exec.Command("sh", "-c", pager) //nolint:noctx // PAGER is a command of the user's own; it lives as long as they read
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), a.Streams.Out, a.Streams.Err
	collect.RunAsOthers()
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, unix.EPIPE): // who leaves the pager early has read enough
		return true
	case errors.As(err, &exit):
		const notFound, notExecutable = 127, 126 // sh(1)
		return exit.ExitCode() != notFound && exit.ExitCode() != notExecutable
	}
	return false
}
