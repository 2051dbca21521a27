// Package cli is perfdoctor's command line. It is the only place that knows all other parts.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// The exit codes, in every output format.
const (
	exitFine     = 0 // nothing at warning or above
	exitFailed   = 1 // perfdoctor failed
	exitUsage    = 2 // the call was wrong, or names something that is not there
	exitFindings = 3 // a finding at warning or above
)

// Streams are where a run writes: the report to Out and nothing else, all other words to Err.
type Streams struct {
	Out, Err io.Writer
}

// Run runs one command line and gives the process's exit code.
func Run(ctx context.Context, version string, args []string, s Streams) int {
	app := &app{version: version, streams: s}
	root := app.root()
	root.SetArgs(args)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(s.Err, "perfdoctor: %v\n", err)
		return exitCode(err)
	}
	return app.exit
}

// app is one run's state: what the commands share.
type app struct {
	version string
	streams Streams
	exit    int // of a run without an error
}

// Command gives the whole command tree, for man pages and completion.
func Command(version string) *cobra.Command { return (&app{version: version}).root() }

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "perfdoctor",
		Short: "Says what holds a Linux system back, proves it with numbers, and names what to change first",
		Long: `perfdoctor reads the kernel's counters for a few seconds, applies the rules of performance experts to them, and names the one
bottleneck to mend first, with its arithmetic, the cure, the cure's risk, and what would show the verdict wrong.

It never changes the host it looks at.

Exit codes: 0 nothing at warning or above, 1 perfdoctor failed, 2 wrong usage, 3 findings.`,
		Args:          noArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageErrorf("%v: see `%s --help`", err, cmd.CommandPath())
	})
	root.AddCommand(a.diagnoseCommand(), a.preflightCommand(), a.checksCommand(), a.metricsCommand(), a.versionCommand())
	return root
}

// usageError is a mistake in the call.
type usageError struct{ msg string }

func (e *usageError) Error() string { return e.msg }

func usageErrorf(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

func exitCode(err error) int {
	var usage *usageError
	switch {
	case errors.As(err, &usage),
		errors.Is(err, recording.ErrFormat), errors.Is(err, host.ErrNoSuchProcess), errors.Is(err, host.ErrNoSuchCgroup),
		errors.Is(err, host.ErrNoSuchContainer), errors.Is(err, host.ErrAmbiguous), errors.Is(err, host.ErrSelector),
		errors.Is(err, host.ErrPermission):
		return exitUsage
	}
	return exitFailed
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageErrorf("unknown command or argument %q: see `%s --help`", args[0], cmd.CommandPath())
	}
	return nil
}

// format is an output format of -o.
type format string

const (
	formatText format = "text"
	formatJSON format = "json"
)

func parseFormat(s string) (format, error) {
	switch f := format(s); f {
	case formatText, formatJSON:
		return f, nil
	}
	return "", usageErrorf("unknown output format %q: use text or json", s)
}

// isTerminal reports whether w is a terminal, and its width in columns.
func isTerminal(w io.Writer) (width int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0, true
	}
	return width, true
}
