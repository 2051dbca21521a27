package cli

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/report"
)

// watchWindow is the window of --watch when no --duration is given: long enough for the checks, short enough to be
// called live.
const watchWindow = 5 * time.Second

// watchHistory is how many windows the sparklines of --watch show: five minutes of them.
const watchHistory = 60

// validateWatch finds what does not go with --watch, which is for a person at a terminal.
func (d *diagnosis) validateWatch(cmd *cobra.Command) error {
	if !d.watch {
		return nil
	}
	for _, flag := range []string{"save", "vantage", "from", "html", "output", "redact"} {
		if cmd.Flags().Changed(flag) {
			return command.UsageErrorf("--watch shows a screen until Ctrl-C: it goes with no --%s", flag)
		}
	}
	if len(d.command) > 0 {
		return command.UsageErrorf("--watch looks at what runs: start the command, then give its --pid")
	}
	if !isTerminal(d.Streams.Out) {
		return command.UsageErrorf("--watch needs a terminal: for a log or a pipe run diagnose again and again, with " +
			"-o json")
	}
	if !cmd.Flags().Changed("duration") {
		d.duration = watchWindow
	}
	// A profiler that is attached every few seconds would be felt, and a screen has no room for what it says.
	d.jvm.off = true
	return nil
}

// runWatch diagnoses window after window until the user has seen enough. The exit code is that of the last whole
// window.
func (d *diagnosis) runWatch(ctx context.Context, list []*check.Check, opts check.Options) error {
	h := host.Local()
	t, described, err := d.resolve(ctx, h, d.selector)
	if err != nil {
		return err
	}
	w := report.NewWatch(watchHistory)
	for ctx.Err() == nil {
		rec, err := d.collect(ctx, h, t, described, list, func() string { return endedReason(h, t) })
		// A window cut short by Ctrl-C says less than the one on the screen, and failing then is no failure.
		if err = unlessEnded(ctx, err); err != nil || ctx.Err() != nil {
			return err
		}
		if err := d.watched(w, rec, list, opts); err != nil {
			return err
		}
		if rec.Meta.EndedEarly != "" {
			return nil
		}
	}
	return nil
}

func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func (d *diagnosis) watched(w *report.Watch, rec *recording.Recording, list []*check.Check, opts check.Options) error {
	data := report.Build(rec, check.Run(rec, list, opts))
	d.Exit = data.ExitCode()
	w.Add(data, keynumber.Of(rec))
	columns, lines, ok := d.terminalSize()
	if !ok {
		return errors.New("--watch: the terminal is gone")
	}
	text := report.TextOptions{Color: d.wantsColor(d.color), Width: columns}
	// the last line is the progress of the next window
	return command.OutputError(w.Frame(d.Streams.Out, text, lines-1))
}

// shown writes a text report where it is to be read: through a pager if it is longer than the terminal.
func (d *diagnosis) shown(data *report.Data) error {
	opts := report.TextOptions{Color: d.wantsColor(d.color), Verbose: d.verbose, Width: d.width(d.wide)}
	return d.paged(func(w io.Writer) error { return data.Text(w, opts) })
}
