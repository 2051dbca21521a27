package cli

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/compare"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/report"
	"github.com/perfdoctor/perfdoctor/internal/report/html"
)

// comparison holds the flags of compare.
type comparison struct {
	*app
	files
	output, failOn, requests, p99 string

	folded   string
	settings []string
	verbose  bool
	color    string
}

// failRegression is the one value of --fail-on.
const failRegression = "regression"

// The formats that compare and trend write.
var (
	compareFormats = []command.Format{command.Text, command.JSON, command.Markdown, command.HTML}
	trendFormats   = []command.Format{command.Text, command.JSON, command.Markdown, command.HTML}
)

func (a *app) compareCommand() *cobra.Command {
	c := &comparison{app: a}
	cmd := &cobra.Command{
		Use:   "compare BEFORE AFTER",
		Short: "Say whether a program got better or worse between two recordings",
		Long: `Compares two recordings (diagnose --save) of a program. Throughput, failures and
times of requests decide first, then the CPU time per request, then findings and
further numbers, each with the bounds its samples leave, and last the methods
whose share of the CPU time grew or shrank. More answers with no more requests
in progress are better; more of both is a heavier load. Normal run-to-run noise
is ignored: the verdict may be "no difference", and says how small a difference
these samples could have shown.

Requests come from --requests and --p99, if a load generator counted them and
they are not in the recordings. Otherwise the segments with data received on the
target's own ports stand for them. Different programs are refused (--force).

Exit codes: 0 compared, 1 perfdoctor failed, 2 wrong usage; with --fail-on
regression 3 when something got worse.`,
		Example: `  perfdoctor diagnose --pid 4021 --duration 60s --save before.zip
  perfdoctor diagnose --pid 4187 --duration 60s --save after.zip
  perfdoctor compare before.zip after.zip
  perfdoctor compare before.zip after.zip --fail-on regression -o markdown
  perfdoctor compare before.zip after.zip -o html > comparison.html`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return command.UsageErrorf("give two recordings, that of before and that of after: see `%s --help`",
					cmd.CommandPath())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return c.run(args[0], args[1]) },
	}
	f := cmd.Flags()
	command.AddOutputFlag(cmd, &c.output, compareFormats)
	f.StringVar(&c.failOn, "fail-on", "", "exit with 3 on `WHAT`: regression")
	f.StringVar(&c.requests, "requests", "", "requests per second that a load generator counted: `BEFORE,AFTER`")
	f.StringVar(&c.p99, "p99", "", "99th percentile of request times that it printed: `BEFORE,AFTER`, such as 12ms,9ms")
	f.StringVar(&c.folded, "folded", "", "write the stacks of both to `FILE`, as difffolded.pl does for "+
		"flamegraph.pl")
	f.BoolVar(&c.force, "force", false, "compare different programs all the same, and overwrite a file that exists")
	f.StringArrayVar(&c.settings, "set", nil, "change a threshold: `X` is CHECK.PARAMETER=VALUE")
	f.BoolVarP(&c.verbose, "verbose", "v", false, "show infos and all metrics that moved")
	addColorFlag(cmd, &c.color)
	command.CompleteFlag(cmd, "fail-on", failRegression)
	command.CompleteFlagBy(cmd, "set", completeSettings)
	return cmd
}

func (c *comparison) run(before, after string) error {
	f, opts, err := c.validate(compareFormats)
	if err == nil && c.folded != "" {
		err = c.validateNew("--folded", c.folded)
	}
	if err != nil {
		return err
	}
	var recs [2]*recording.Recording
	for i, path := range []string{before, after} {
		if recs[i], err = recording.Open(path); err != nil {
			return fromError(err)
		}
		recs[i].RankAll()
	}
	if why := compare.Different(recs[0], recs[1]); why != "" && !c.force {
		return command.UsageErrorf("%s: what one does is nothing that the other can do better or worse; --force "+
			"compares them all the same", why)
	}
	data := compare.Compare(recs[0], recs[1], opts)
	if c.failOn == failRegression && data.Regressed() {
		c.Exit = command.ExitFindings
	}
	err = c.print(report.Comparison{Data: data}, f)
	if c.folded != "" {
		err = errors.Join(err, c.writeFolded(data))
	}
	return err
}

// writeFolded writes the stacks of both recordings for flamegraph.pl.
func (c *comparison) writeFolded(data *compare.Data) error {
	if data.Stacks == nil {
		return command.UsageErrorf("--folded: there are no two CPU profiles of one kind in the recordings")
	}
	write := func(f *os.File) error { return data.Stacks.All.WriteFolded(f) }
	if err := c.how().File(c.folded, write); err != nil {
		return fmt.Errorf("--folded %s: %w", c.folded, err)
	}
	return nil
}

func (c *comparison) validate(formats []command.Format) (command.Format, compare.Options, error) {
	var opts compare.Options
	f, err := command.ParseFormat(c.output, formats)
	if err != nil {
		return "", opts, err
	}
	if c.failOn != "" && c.failOn != failRegression {
		return "", opts, command.UsageErrorf("--fail-on %q: use %s", c.failOn, failRegression)
	}
	if err := validateColor(c.color); err != nil {
		return "", opts, err
	}
	if opts.Load, err = parseLoad(c.requests, c.p99); err != nil {
		return "", opts, err
	}
	suite, causes, err := suiteWith("")
	if err != nil {
		return "", opts, err
	}
	params, err := parseParams(c.settings, suite, suite)
	opts.Checks, opts.Check = suite, check.Options{Params: params, Causes: causes}
	return f, opts, err
}

// parseLoad reads the output of a load generator: requests per second and 99th percentiles, before and after.
func parseLoad(requests, p99 string) (out [2]keynumber.Told, err error) {
	rates, err := parsePair("--requests", requests, "positive number of requests per second", "4100,3900", number)
	if err != nil {
		return out, err
	}
	times, err := parsePair("--p99", p99, "time", "12ms,9ms", func(s string) (float64, error) {
		d, err := time.ParseDuration(s)
		return d.Seconds(), err
	})
	for i := range out {
		out[i] = keynumber.Told{Requests: rates[i], P99: times[i]}
	}
	return out, err
}

func number(s string) (float64, error) { return strconv.ParseFloat(s, 64) }

// most is beyond any rate or time that a load generator prints.
const most = 1e12

// parsePair reads two positive values with a comma between. It returns none if the flag was not given.
func parsePair(flag, s, what, example string, parse func(string) (float64, error)) (out [2]float64, err error) {
	if s == "" {
		return out, nil
	}
	parts := strings.Split(s, ",")
	if len(parts) != len(out) {
		return out, command.UsageErrorf("%s %q: give two values, that of before and that of after, such as %s", flag, s,
			example)
	}
	for i, p := range parts {
		n, err := parse(strings.TrimSpace(p))
		if err != nil || !(n > 0) || n > most {
			return out, command.UsageErrorf("%s %q: %q is no %s", flag, s, p, what)
		}
		out[i] = n
	}
	return out, nil
}

func (c *comparison) print(data report.Comparison, f command.Format) error {
	switch f {
	case command.JSON:
		return command.OutputError(data.JSON(c.Streams.Out))
	case command.Markdown:
		return command.OutputError(data.Markdown(c.Streams.Out))
	case command.HTML:
		return command.OutputError(html.WriteComparison(c.Streams.Out, data))
	}
	return command.OutputError(data.Text(c.Streams.Out, report.TextOptions{
		Color:   c.wantsColor(c.color),
		Verbose: c.verbose,
	}))
}

// addColorFlag adds --color.
func addColorFlag(cmd *cobra.Command, when *string) {
	cmd.Flags().StringVar(when, "color", "auto", "`when` to colour: auto, always or never")
	command.CompleteFlag(cmd, "color", "auto", "always", "never")
}

func validateColor(when string) error {
	switch when {
	case "auto", "always", "never":
		return nil
	}
	return command.UsageErrorf("--color %q: use auto, always or never", when)
}

// wantsColor decides for the standard output.
func (a *app) wantsColor(when string) bool {
	wanted := os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return when == "always" || when == "auto" && wanted && isTerminal(a.Streams.Out)
}
