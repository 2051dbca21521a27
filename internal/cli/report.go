package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/report/html"
)

func (a *app) reportCommand() *cobra.Command {
	d := &diagnosis{app: a}
	cmd := &cobra.Command{
		Use:   "report [flags] RECORDING",
		Short: "Show what a recording says, as text or as a web page",
		Long: `Applies the checks to what diagnose --save kept, on any machine and without
rights, and prints the same report. With --html it writes a page too: one file
that opens in any browser and loads nothing, with charts over the window, flame
graphs, the facts, and each finding linked to what proves it.

Exit codes: 0 nothing at warning or above, 1 perfdoctor failed, 2 wrong usage,
3 findings.`,
		Example: `  perfdoctor report incident.zip
  perfdoctor report incident.zip --html report.html`,
		Args: command.OneArg("the path of a recording"),
		RunE: func(cmd *cobra.Command, args []string) error { return d.runReport(cmd, args[0]) },
	}
	command.AddOutputFlag(cmd, &d.output, reportFormats)
	d.addReadingFlags(cmd)
	return cmd
}

func (d *diagnosis) runReport(cmd *cobra.Command, path string) error {
	f, err := command.ParseFormat(d.output, reportFormats)
	if err != nil {
		return err
	}
	list, opts, err := d.validateReading(cmd)
	if err != nil {
		return err
	}
	rec, err := recording.Open(path)
	if err != nil {
		return fromError(err)
	}
	if rec, err = d.redacted(rec); err != nil {
		return err
	}
	rec.RankAll()
	return d.report(rec, list, opts, f)
}

// validatePage rejects an --html that cannot work, before ten seconds are spent.
func (d *diagnosis) validatePage(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("html") {
		return nil
	}
	if d.html == "" {
		return command.UsageErrorf("--html is empty: give the path of a new file")
	}
	return d.validateNew("--html", d.html)
}

// writePage writes the HTML report. Only the user who writes the file can read it: a report may show what its owner
// would not.
func (d *diagnosis) writePage(in html.Input) error {
	if err := d.how().File(d.html, func(f *os.File) error { return html.Write(f, in) }); err != nil {
		return fmt.Errorf("--html %s: %w", d.html, err)
	}
	return nil
}
