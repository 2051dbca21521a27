package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/compare"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/report"
	"github.com/perfdoctor/perfdoctor/internal/report/html"
)

// maxTrend bounds the recordings of a trend: they are read one after the other, and their numbers fill a page.
const maxTrend = 500

// leastTrend is the least number of recordings that can show a lasting change: two before it and two after.
const leastTrend = 4

func (a *app) trendCommand() *cobra.Command {
	c := &comparison{app: a}
	cmd := &cobra.Command{
		Use:   "trend DIR",
		Short: "Say where in many recordings of a program a lasting change began",
		Long: `Reads all recordings (diagnose --save) in the directory DIR, orders them by the
time they were made, and shows their numbers and findings over time. Where a
number changed for good, and by more than chance makes such recordings differ,
it names the first recording of the change, and the methods that grew. One
recording alone is not lasting.

Exit codes: 0 done, 1 perfdoctor failed, 2 wrong usage; with --fail-on
regression 3 when the last lasting change was for the worse.`,
		Example: `  perfdoctor diagnose --pid 4021 --save nightly/$(date +%F).zip
  perfdoctor trend nightly
  perfdoctor trend nightly -o html > trend.html`,
		Args: command.OneArg("a directory of recordings"),
		RunE: func(_ *cobra.Command, args []string) error { return c.trend(args[0]) },
	}
	f := cmd.Flags()
	command.AddOutputFlag(cmd, &c.output, trendFormats)
	f.StringVar(&c.failOn, "fail-on", "", "exit with 3 on `WHAT`: regression")
	f.StringArrayVar(&c.settings, "set", nil, "change a threshold: `X` is CHECK.PARAMETER=VALUE")
	addColorFlag(cmd, &c.color)
	command.CompleteFlag(cmd, "fail-on", failRegression)
	return cmd
}

func (c *comparison) trend(dir string) error {
	f, opts, err := c.validate(trendFormats)
	if err != nil {
		return err
	}
	list, err := c.readTrend(dir)
	if err != nil {
		return err
	}
	t := report.Trend{Trend: compare.MakeTrend(list, opts.Checks, opts.Check)}
	if len(t.Runs) < leastTrend {
		return tooFew(len(t.Runs), dir)
	}
	if c.failOn == failRegression && t.Regressed() {
		c.Exit = command.ExitFindings
	}
	switch f {
	case command.JSON:
		return command.OutputError(t.JSON(c.Streams.Out))
	case command.Markdown:
		return command.OutputError(t.Markdown(c.Streams.Out))
	case command.HTML:
		return command.OutputError(html.WriteTrend(c.Streams.Out, t))
	}
	return command.OutputError(t.Text(c.Streams.Out, report.TextOptions{Color: c.wantsColor(c.color)}))
}

// readTrend finds the recordings of a directory. It ignores files of another kind and recordings that are still being
// written. It leaves out a damaged recording with a note, so that the hole in the trend is seen.
func (a *app) readTrend(dir string) ([]compare.Source, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fromError(fmt.Errorf("trend: %w", err))
	}
	var list []compare.Source
	read := 0
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !isRecording(path, e) {
			continue
		}
		if read++; read > maxTrend {
			return nil, command.UsageErrorf("trend: there are more than %d recordings in %s: move some away", maxTrend,
				dir)
		}
		meta, err := recording.OpenMeta(path)
		if err != nil {
			a.leftOut(err)
			continue
		}
		list = append(list, compare.Source{Name: e.Name(), Started: meta.Started, Open: func() (*recording.Recording,
			error,
		) {
			rec, err := recording.Open(path)
			if err != nil {
				a.leftOut(err)
				return nil, err
			}
			rec.RankAll()
			return rec, nil
		}})
	}
	if len(list) < leastTrend {
		return nil, tooFew(len(list), dir)
	}
	return list, nil
}

func (a *app) leftOut(err error) {
	_, _ = fmt.Fprintf(a.Streams.Err, "perfdoctor: left out: %s\n", report.Escape(err.Error(), ""))
}

func tooFew(n int, dir string) error {
	return command.UsageErrorf("trend: there are %d recordings (.zip, .txtar, or directories with a meta.json) in %s, "+
		"and a trend "+
		"needs %d: compare two with `perfdoctor compare`", n, dir, leastTrend)
}

func isRecording(path string, e os.DirEntry) bool {
	// Save writes under such a name, next to the final one. What a killed run left behind is no recording either.
	if strings.HasSuffix(e.Name(), ".partial") {
		return false
	}
	if strings.HasSuffix(e.Name(), ".zip") || strings.HasSuffix(e.Name(), ".txtar") {
		return true
	}
	_, err := os.Stat(filepath.Join(path, "meta.json"))
	return err == nil || !errors.Is(err, fs.ErrNotExist) && e.IsDir()
}
