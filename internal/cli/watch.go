package cli

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/report"
)

// watchWindow is the window of --watch if no --duration is given: long enough for the checks, short enough to be
// called live.
const watchWindow = 5 * time.Second

// watchHistory is how many windows the sparklines of --watch show: five minutes.
const watchHistory = 60

// validateWatch rejects flags that do not go with --watch, which is for a person at a terminal.
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
	// Attaching a profiler every few seconds would be noticeable, and a screen has no room for its output.
	d.jvm.off = true
	return nil
}

// watching is a screen and what its keys act on.
type watching struct {
	*diagnosis
	mu     sync.Mutex
	screen *report.Watch
	rec    *recording.Recording // of the last window
	paused bool
	end    context.CancelFunc
}

// watchKeys is shown on the screen if there is a keyboard.
const watchKeys = "keys: s sort, p pause, m mark, w save, q quit"

// runWatch diagnoses window after window until the user has seen enough. Its exit code is the last whole window's.
func (d *diagnosis) runWatch(ctx context.Context, list []*check.Check, opts check.Options) error {
	h := host.Local()
	t, described, err := d.resolve(ctx, h, d.selector)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &watching{diagnosis: d, screen: report.NewWatch(watchHistory), end: cancel}
	if k := openKeyboard(); k != nil {
		defer k.close()
		w.screen.Keys = watchKeys
		go k.keys(w.press)
	}
	for ctx.Err() == nil {
		rec, err := d.collect(ctx, h, t, described, list, func() string { return endedReason(h, t) })
		// A window cut short by Ctrl-C says less than the one on the screen, and failing then is no failure.
		if err = unlessEnded(ctx, err); err != nil || ctx.Err() != nil {
			return err
		}
		if err := w.watched(rec, list, opts); err != nil {
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

func (w *watching) watched(rec *recording.Recording, list []*check.Check, opts check.Options) error {
	data := report.Build(rec, check.Run(rec, list, opts))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Exit, w.rec = data.ExitCode(), rec
	if w.paused {
		w.screen.Skip()
		return nil
	}
	w.screen.Add(data, keynumber.Of(rec))
	return w.draw()
}

func (w *watching) draw() error {
	columns, lines, ok := w.terminalSize()
	if !ok {
		return errors.New("--watch: the terminal is gone")
	}
	text := report.TextOptions{Color: w.wantsColor(w.color), Width: columns}
	// the last line is the progress of the next window
	return command.OutputError(w.screen.Frame(w.Streams.Out, text, lines-1))
}

// press does what a key stands for. Before the first window there is nothing to act on.
func (w *watching) press(key byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if key == 'q' {
		w.end()
	}
	if w.rec == nil {
		return
	}
	switch key {
	case 's':
		w.screen.Sort()
	case 'p', ' ':
		w.paused = !w.paused
		w.screen.Note = ""
		if w.paused {
			w.screen.Note = "PAUSED: p goes on"
		}
	case 'm':
		w.screen.Mark()
	case 'w':
		w.screen.Note = w.saved()
	default:
		return
	}
	if w.draw() != nil {
		w.end()
	}
}

// saved saves the last window into the working directory, and says so.
func (w *watching) saved() string {
	path := "perfdoctor-" + w.rec.Meta.Started.UTC().Format("20060102-150405") + ".zip"
	if err := w.validateNew("saved", path); err != nil {
		return err.Error()
	}
	if err := w.rec.SaveAs(path, w.how()); err != nil {
		return err.Error()
	}
	return "saved the last window as " + path
}

// shown writes a text report where it will be read: through a pager if it is longer than the terminal.
func (d *diagnosis) shown(data *report.Data) error {
	opts := report.TextOptions{Color: d.wantsColor(d.color), Verbose: d.verbose, Width: d.width(d.wide)}
	return d.paged(func(w io.Writer) error { return data.Text(w, opts) })
}
