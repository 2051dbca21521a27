// Package cli is perfdoctor's command line. It is the only place that knows all other parts.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/perfdoctor/perfdoctor/internal/collect/vantage"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/jvm"
	"github.com/perfdoctor/perfdoctor/internal/lab/scenario"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// The exit codes, in every output format.
const (
	exitFine     = 0 // nothing at warning or above
	exitFailed   = 1 // perfdoctor failed
	exitUsage    = 2 // the call was wrong, or names something that is not there
	exitFindings = 3 // a finding at warning or above
	// 4, incomplete: most of what was asked for could not be assessed; only a report gives it, see [report.Data.ExitCode].
)

// Streams are where a run writes: the report to Out and nothing else, all other words to Err.
type Streams struct {
	Out, Err io.Writer
}

// say writes to the standard error. Where even that fails there is nobody left to tell.
func (s Streams) say(format string, args ...any) { _, _ = fmt.Fprintf(s.Err, format, args...) }

// Run runs one command line and gives the process's exit code.
func Run(ctx context.Context, version string, args []string, s Streams) int {
	app := &app{version: version, streams: s}
	root := app.root()
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		s.say("perfdoctor: %s\n", oneLine(err))
		return exitCode(err)
	}
	return app.exit
}

// oneLine keeps joined errors on one line, and names of the host from acting on the terminal.
func oneLine(err error) string { return printable(strings.ReplaceAll(err.Error(), "\n", "; ")) }

// app is one run's state: what the commands share.
type app struct {
	version string
	streams Streams
	exit    int // of a run without an error
}

// Command gives the whole command tree, for man pages.
func Command(version string) *cobra.Command { return (&app{version: version}).root() }

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "perfdoctor",
		Short: "Says what holds a Linux system back, with proof, and what to change first",
		Long: `perfdoctor reads the kernel's counters for a few seconds, applies the rules of
performance experts to them, and names the one bottleneck to mend first, with
its arithmetic, the cure, the cure's risk, and what would show it wrong.

It never changes the host it looks at.

Exit codes: 0 nothing at warning or above, 1 perfdoctor failed, 2 wrong usage,
3 findings, 4 incomplete: most of what was asked for could not be assessed.`,
		Example: `  perfdoctor diagnose                # this host, for 10 s
  perfdoctor diagnose --pid 4021     # one process, as its network and limits are
  perfdoctor preflight               # what can be measured here, and what not`,
		Version:       a.version,
		Args:          noArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(a.streams.Out)
	root.SetErr(a.streams.Err)
	root.SetFlagErrorFunc(flagError)
	root.SetUsageTemplate(wrappedFlags(root.UsageTemplate()))
	root.SetVersionTemplate("perfdoctor {{.Version}}\n")
	root.SetHelpCommand(a.helpCommand())
	root.AddCommand(a.diagnoseCommand(), a.exporterCommand(), a.pingCommand(), a.reportCommand(), a.compareCommand(),
		a.trendCommand(), a.preflightCommand(), a.checksCommand(), a.metricsCommand(), a.scenarioCommand(), a.perfmapCommand(),
		a.licensesCommand(), a.versionCommand(), a.completionCommand())
	return root
}

// wrappedFlags makes cobra break the descriptions of flags at 80 columns.
func wrappedFlags(template string) string {
	return strings.ReplaceAll(template, ".FlagUsages |", ".FlagUsagesWrapped 80 |")
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
		errors.Is(err, host.ErrPermission), errors.Is(err, scenario.ErrInvalid), errors.Is(err, vantage.ErrPlan),
		errors.Is(err, vantage.ErrApart):
		return exitUsage
	}
	if r, ok := errors.AsType[*jvm.Refusal](err); ok && (r.Cause == jvm.NotJVM || r.Cause == jvm.Gone || r.Cause == jvm.Denied) {
		return exitUsage
	}
	return exitFailed
}

// outputError says what a failed write to the standard output means for the reader.
func outputError(err error) error {
	var path *fs.PathError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPIPE):
		return errors.New("the reader of the standard output ended before it had read all (broken pipe)")
	case errors.As(err, &path):
		err = path.Err
	}
	return fmt.Errorf("write to the standard output: %w", err)
}

// format is an output format of -o.
type format string

const (
	formatText     format = "text"
	formatJSON     format = "json"
	formatMarkdown format = "markdown"
	formatJUnit    format = "junit"
	formatHTML     format = "html"
)

// Every command writes these two; those that judge write further ones.
var (
	plainFormats  = []format{formatText, formatJSON}
	reportFormats = []format{formatText, formatJSON, formatMarkdown, formatJUnit}
)

func parseFormat(s string, known []format) (format, error) {
	if f := format(s); slices.Contains(known, f) {
		return f, nil
	}
	return "", usageErrorf("unknown output format %q: use %s", s, alternatives(known))
}

// alternatives gives "text, json or markdown".
func alternatives(known []format) string {
	s := string(known[0])
	for _, f := range known[1 : len(known)-1] {
		s += ", " + string(f)
	}
	return s + " or " + string(known[len(known)-1])
}

// addOutputFlag adds -o.
func addOutputFlag(cmd *cobra.Command, output *string, known []format) {
	cmd.Flags().StringVarP(output, "output", "o", string(formatText), "output `format`: "+alternatives(known))
	var names []string
	for _, f := range known {
		names = append(names, string(f))
	}
	completeFlag(cmd, "output", names...)
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, isFile := w.(*os.File)
	return isFile && term.IsTerminal(int(f.Fd()))
}
