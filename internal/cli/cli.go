// Package cli is perfdoctor's command line. It is the only place that knows all other parts.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/cli/experiment"
	"github.com/perfdoctor/perfdoctor/internal/collect/vantage"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/jvm"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// A Maker makes a command from what all commands share.
type Maker func(*command.App) *cobra.Command

// Run runs one command line and returns the process's exit code. It adds commands of other packages, such as the
// commands of scenarios, to its own.
func Run(ctx context.Context, version string, args []string, s command.Streams, joined ...Maker) int {
	app := &app{&command.App{Version: version, Streams: s}}
	root := app.root(joined)
	root.SetArgs(args)
	if err := firewall.Run("this command", func() error { return root.ExecuteContext(ctx) }); err != nil {
		s.Say("perfdoctor: %s\n", oneLine(err))
		return exitCode(err)
	}
	return app.Exit
}

// oneLine keeps joined errors on one line, and keeps names of the host from acting on the terminal.
func oneLine(err error) string { return printable(strings.ReplaceAll(err.Error(), "\n", "; ")) }

// app makes the commands of this package.
type app struct{ *command.App }

// Command returns the whole command tree, for man pages.
func Command(version string, joined ...Maker) *cobra.Command {
	return (&app{&command.App{Version: version}}).root(joined)
}

func (a *app) root(joined []Maker) *cobra.Command {
	root := &cobra.Command{
		Use:   "perfdoctor [PID | NAME | -- COMMAND ARGS...]",
		Short: "Says what holds a Linux system back, with proof, and what to change first",
		Long: `perfdoctor reads the kernel's counters for a few seconds, applies the rules of
performance experts to them, and names the one bottleneck to fix first, with
its arithmetic, the fix, the fix's risk, and what would disprove it.

With a process id, the name of a process, or a command after --, it does what
perfdoctor diagnose does, and takes the same flags.

It changes no setting of the host. Only perfdoctor experiment does, and only
when told to.

Exit codes: 0 nothing at warning or above, 1 perfdoctor failed, 2 wrong usage,
3 findings, 4 incomplete: most of what was asked for could not be assessed, or
what fills a thread or the CPUs has no name.`,
		Example: `  perfdoctor diagnose                # this host, for 10 s
  perfdoctor 4021                    # one process, with its network and limits
  perfdoctor nginx -d 30             # the process of this name, for 30 s
  perfdoctor -- ./server --port 80   # start it, diagnose it, end it
  perfdoctor preflight               # what can be measured here, and what not`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	a.addRootDiagnosis(root)
	a.addVersionFlag(root)
	root.SetOut(a.Streams.Out)
	root.SetErr(a.Streams.Err)
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(wrappedFlags(root.UsageFunc()))
	root.SetHelpCommand(a.helpCommand())
	root.AddCommand(a.diagnoseCommand(), a.exporterCommand(), a.pingCommand(), a.reportCommand(), a.compareCommand(),
		a.trendCommand(), a.disproveCommand(), a.experimentCommand(), a.preflightCommand(), a.checksCommand(),
		a.metricsCommand(), a.perfmapCommand(), a.licensesCommand(), a.versionCommand(), a.completionCommand())
	for _, join := range joined {
		root.AddCommand(join(a.App))
	}
	return root
}

// addVersionFlag adds --version. cobra's own prints another line, or takes a template; for a template the linker
// would keep every method of the program (docs/decisions/0076-pages-without-methods.md).
func (a *app) addVersionFlag(root *cobra.Command) {
	asked, run := root.Flags().Bool("version", false, "version for perfdoctor"), root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *asked {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "perfdoctor %s\n", a.Version)
			return err
		}
		return run(cmd, args)
	}
}

// wrappedFlags breaks the descriptions of flags in cobra's usage at 80 columns.
func wrappedFlags(usage func(*cobra.Command) error) func(*cobra.Command) error {
	return func(c *cobra.Command) error {
		var b strings.Builder
		out := c.OutOrStderr()
		c.SetOut(&b)
		err := usage(c)
		c.SetOut(out)
		text := b.String()
		for _, flags := range []*pflag.FlagSet{c.LocalFlags(), c.InheritedFlags()} {
			text = strings.Replace(text, strings.TrimSpace(flags.FlagUsages()),
				strings.TrimSpace(flags.FlagUsagesWrapped(80)), 1)
		}
		_, writing := io.WriteString(out, text)
		return errors.Join(err, writing)
	}
}

func exitCode(err error) int {
	var usage *command.UsageError
	switch {
	case errors.As(err, &usage),
		errors.Is(err, recording.ErrFormat), errors.Is(err, host.ErrNoSuchProcess),
		errors.Is(err, host.ErrNoSuchCgroup),
		errors.Is(err, host.ErrNoSuchContainer), errors.Is(err, host.ErrAmbiguous), errors.Is(err, host.ErrSelector),
		errors.Is(err, host.ErrPermission), errors.Is(err, vantage.ErrPlan), errors.Is(err, experiment.ErrRefused),
		errors.Is(err, vantage.ErrApart):
		return command.ExitUsage
	}
	if r, ok := errors.AsType[*jvm.Refusal](err); ok && (r.Cause == jvm.NotJVM || r.Cause == jvm.Gone ||
		r.Cause == jvm.Denied) {
		return command.ExitUsage
	}
	return command.ExitFailed
}

// Every command writes these two; commands that judge write further ones.
var (
	plainFormats  = []command.Format{command.Text, command.JSON}
	reportFormats = []command.Format{command.Text, command.JSON, command.Markdown, command.JUnit, command.HTML}
)

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, isFile := w.(*os.File)
	return isFile && term.IsTerminal(int(f.Fd()))
}
