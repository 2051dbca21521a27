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

// wideWithoutTerminal is the width that --wide gives where there is no terminal to ask: that of a wide window.
const wideWithoutTerminal = 160

// widestText is from where on lines are hard to follow with the eye; --wide goes beyond.
const widestText = 160

// width gives the columns of a text report: those of the terminal, at most 160 without --wide; where there is none, 0
// for the report's own 80, which every mail shows, or 160 with --wide.
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

// terminalSize gives the size of the terminal on the standard output; ok is false if it is none.
func (a *app) terminalSize() (columns, lines int, ok bool) { return sizeOf(a.Streams.Out) }

// sizeOf gives the size of a terminal; ok is false if w is none.
func sizeOf(w io.Writer) (columns, lines int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, 0, false
	}
	columns, lines, err := term.GetSize(int(f.Fd()))
	return columns, lines, err == nil && columns > 0 && lines > 0
}

// paged writes a text through the user's pager when it is longer than the terminal, and else as it is: to a pipe or a
// file always.
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

// pagerCommand gives the pager: what PAGER says, where "" and cat mean none, as for git and man; else less, with
// colours (-R), which ends when all fits (-F) and leaves the text on the screen (-X).
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

// page shows the text; shown is false when the pager could not be run.
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
