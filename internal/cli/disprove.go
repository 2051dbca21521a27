package cli

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/collectors/asprof"
	"github.com/perfdoctor/perfdoctor/internal/compare"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/report"
)

func (a *app) disproveCommand() *cobra.Command {
	d := &diagnosis{app: a, interval: time.Second}
	cmd := &cobra.Command{
		Use:   "disprove RECORDING [SECOND]",
		Short: "Try to prove a recording's findings wrong",
		Long: `Looks for each finding at warning or above in both halves of the recording, and
in a second window of the same target: another recording, or what is observed
now with --pid, --comm, --cgroup or --container. It only reads.

A finding stands if it is there again. It falls if the second window could have
shown it and does not, with as much to do as in the first. Otherwise it cannot
be told, and the report says why: what is needed was not read, there is less to
do, the second window is too short, or only a change, or something that only
others know, would disprove the finding. The halves alone overturn nothing. What
was fixed between the windows falls too. A check of --check that finds nothing
falls if the recording passes it.

Exit codes: 0 none falls and one stands, or there are none, 1 perfdoctor failed,
2 wrong usage, 3 a finding falls, 4 none can be told.`,
		Example: `  perfdoctor disprove incident.zip
  perfdoctor disprove incident.zip --pid 4021 --duration 20s
  perfdoctor disprove monday.zip tuesday.zip --check cpu-throttled -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return command.UsageErrorf("give a recording, and perhaps a second one: see `%s --help`",
					cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return d.runDisprove(cmd, args) },
	}
	addTargetFlags(cmd, &d.selector)
	timeVarP(cmd.Flags(), &d.duration, "duration", "d", 10*time.Second, "observe the target for this `time`")
	command.AddOutputFlag(cmd, &d.output, plainFormats)
	cmd.Flags().StringSliceVar(&d.checks, "check", nil, "test what these checks find, at any severity: "+
		"comma-separated `NAMES`")
	addColorFlag(cmd, &d.color)
	command.CompleteFlagBy(cmd, "check", completeCheckList)
	return cmd
}

func (d *diagnosis) runDisprove(cmd *cobra.Command, args []string) error {
	f, list, opts, err := d.validateDisprove(cmd, args)
	if err != nil {
		return err
	}
	first, err := recording.Open(args[0])
	if err != nil {
		return fromError(err)
	}
	first = first.AtIncident()
	second, err := d.secondWindow(cmd.Context(), first, args[1:])
	if err != nil {
		return err
	}
	t := report.Test{Test: compare.Disprove(first, second, d.checks, compare.Options{Checks: list, Check: opts})}
	d.Exit = t.ExitCode()
	if f == command.JSON {
		return command.OutputError(t.JSON(d.Streams.Out))
	}
	return command.OutputError(t.Text(d.Streams.Out, report.TextOptions{Color: d.wantsColor(d.color)}))
}

func (d *diagnosis) validateDisprove(cmd *cobra.Command, args []string) (command.Format, []*check.Check, check.Options,
	error,
) {
	live, given := d.selector != (host.Selector{}), cmd.Flags().Changed
	f, err := command.ParseFormat(d.output, plainFormats)
	if err == nil {
		err = cmp.Or(checkTargetFlags(cmd, d.selector), validateColor(d.color), d.validateTimes())
	}
	switch {
	case err != nil:
	case live && len(args) > 1:
		err = command.UsageErrorf("give a second recording or a target to observe, not both")
	case given("duration") && !live:
		err = command.UsageErrorf("--duration goes with a target to observe: --pid, --comm, --cgroup or --container")
	case given("check") && len(d.checks) == 0:
		err = command.UsageErrorf("--check is empty: give names of checks, as `perfdoctor checks list` shows them")
	}
	if err != nil {
		return "", nil, check.Options{}, err
	}
	suite, causes, err := suiteWith("")
	if err != nil {
		return "", nil, check.Options{}, err
	}
	list, err := chosen(suite, d.checks)
	return f, list, check.Options{Causes: causes}, err
}

// secondWindow reads the second recording, or observes the target. It returns nil if there is neither. The second
// must be of the same program and of other seconds.
func (d *diagnosis) secondWindow(ctx context.Context, first *recording.Recording, paths []string) (
	second *recording.Recording, err error,
) {
	switch {
	case len(paths) > 0:
		if second, err = recording.Open(paths[0]); err != nil {
			return nil, fromError(err)
		}
		second = second.AtIncident()
	case d.selector != (host.Selector{}):
		// if the JVM was left alone before, leave it alone again
		d.jvm = jvmFlags{
			events: jvmEvents(), interval: asprof.DefaultInterval, off: !first.Recorded(metric.JVMInfo),
		}
		d.alone = true
		if second, err = d.recording(ctx, checks.Suite()); err != nil {
			return nil, err
		}
	default:
		return nil, nil //nolint:nilnil // there is none
	}
	if why := cmp.Or(compare.Different(first, second), compare.Overlap(first, second)); why != "" {
		return nil, command.UsageErrorf("%s: a finding is tested in other seconds of the same target", why)
	}
	return second, nil
}
