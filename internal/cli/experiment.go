package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/cli/experiment"
	"github.com/perfdoctor/perfdoctor/internal/host"
)

// trial is one call of a command of experiment.
type trial struct {
	*diagnosis

	agreed  bool
	to      float64
	suspect host.Selector // --suspect-pid or --suspect-cgroup
}

// yesFlag agrees to a change of the host.
const yesFlag = "yes-change-this-host"

func (a *app) experimentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "experiment",
		Short: "Change one thing of this host for some seconds, to prove a finding",
		Long: `Measures the target before, during and after a change of this host, with the
same counters, and says from the numbers whether the finding stands. It is the
only command that changes a setting of the host, and only with
--yes-change-this-host. Without that flag it says what it would change.

It names the change beforehand and undoes it after the window. If perfdoctor is
interrupted, killed or late, a watchdog, a process of its own, undoes it. If
both are killed at once, nothing does: the command that undoes it by hand is
printed before the change. What somebody else has changed meanwhile is left as
it is.

Exit codes: 0 the finding stands, 1 perfdoctor failed, 2 wrong usage, or refused,
3 the finding falls, 4 it cannot be told.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.quotaCommand(), a.pauseCommand())
	return cmd
}

func (a *app) quotaCommand() *cobra.Command {
	t := a.trial()
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "Raise the CPU limit of the target's control group",
		Long: `Raises the tightest CPU limit on the target, its own or one above (cpu.max,
cpu.cfs_quota_us), and measures the group that has it. The finding that the
limit holds the group back stands if the group uses 12 % more CPU time with a
higher limit, or waits half as long for each second of it, and is as before
without.`,
		Example: `  perfdoctor experiment quota --pid 4021
  perfdoctor experiment quota --pid 4021 --to 2 --yes-change-this-host`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.run(cmd, func(h *host.Host, of host.Target) (*experiment.Experiment, error) {
				return experiment.RaiseQuota(h, of, t.to)
			})
		},
	}
	cmd.Flags().Float64Var(&t.to, "to", 0, "raise the limit to this many `CPUS`; 0 lifts it")
	t.addFlags(cmd)
	return cmd
}

func (a *app) pauseCommand() *cobra.Command {
	t := a.trial()
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Pause a neighbour that is suspected of taking the CPUs",
		Long: `Pauses a neighbour of the target: a control group by its freezer
(cgroup.freeze, freezer.state), or one process by SIGSTOP (its parent is
notified). The finding that the neighbour takes the CPUs stands if the target
uses 12 % more CPU time without it, or waits half as long for each second of it,
and is as before when the neighbour is back.`,
		Example: `  perfdoctor experiment pause --pid 4021 --suspect-cgroup /system.slice/backup.service
  perfdoctor experiment pause --pid 4021 --suspect-pid 5120 --yes-change-this-host`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := t.validateSuspect(cmd); err != nil {
				return err
			}
			return t.run(cmd, func(h *host.Host, of host.Target) (*experiment.Experiment, error) {
				if t.suspect.PID != 0 {
					return experiment.PauseProcess(cmd.Context(), h, of, t.suspect.PID)
				}
				return experiment.PauseGroup(cmd.Context(), h, of, t.suspect.CgroupPath)
			})
		},
	}
	cmd.Flags().IntVar(&t.suspect.PID, "suspect-pid", 0, "pause process `N`, without its children")
	cmd.Flags().StringVar(&t.suspect.CgroupPath, "suspect-cgroup", "", "pause the control group at `PATH`")
	t.addFlags(cmd)
	completeRunning(cmd, "suspect-pid", processIDs)
	completeRunning(cmd, "suspect-cgroup", cgroups)
	return cmd
}

func (a *app) trial() *trial { return &trial{diagnosis: &diagnosis{app: a}} }

func (t *trial) addFlags(cmd *cobra.Command) {
	addTargetFlags(cmd, &t.selector)
	timeVarP(cmd.Flags(), &t.duration, "duration", "d", 5*time.Second,
		"length of each of the three windows, and of the change: a `time` from 500ms to 1m")
	cmd.Flags().BoolVar(&t.agreed, yesFlag, false, "make the change")
	command.AddOutputFlag(cmd, &t.output, plainFormats)
}

const (
	// leastTrial is five periods of a CPU limit, usually 100 ms each.
	leastTrial = 500 * time.Millisecond
	// longestTrial bounds the cost of a mistake.
	longestTrial = time.Minute
)

func (t *trial) validateSuspect(cmd *cobra.Command) error {
	pid, group := cmd.Flags().Changed("suspect-pid"), cmd.Flags().Changed("suspect-cgroup")
	switch {
	case pid == group:
		return command.UsageErrorf("give either --suspect-pid or --suspect-cgroup: whom to pause")
	case pid && t.suspect.PID <= 0:
		return command.UsageErrorf("--suspect-pid %d is not a process id: give a positive number", t.suspect.PID)
	case group && t.suspect.CgroupPath == "":
		return command.UsageErrorf("--suspect-cgroup is empty: give the path of a control group")
	}
	return nil
}

func (t *trial) validate(cmd *cobra.Command) (command.Format, error) {
	f, err := command.ParseFormat(t.output, plainFormats)
	if err = cmp.Or(err, checkTargetFlags(cmd, t.selector)); err != nil {
		return "", err
	}
	switch {
	case t.selector == (host.Selector{}):
		return "", command.UsageErrorf("give a target to measure: --pid, --comm, --cgroup or --container")
	case t.duration < leastTrial || t.duration > longestTrial:
		return "", command.UsageErrorf("--duration %v: give a time from %v to %v", t.duration, leastTrial, longestTrial)
	case !(t.to >= 0) || math.IsInf(t.to, 1) || t.to > math.MaxInt32:
		return "", command.UsageErrorf("--to %v: give a number of CPUs, or 0 to lift the limit", t.to)
	}
	return f, nil
}

// run names the change, and makes it if the user agreed to it.
func (t *trial) run(cmd *cobra.Command, prepare func(*host.Host, host.Target) (*experiment.Experiment, error)) error {
	f, err := t.validate(cmd)
	if err != nil {
		return err
	}
	h := host.Local()
	of, _, err := t.resolve(cmd.Context(), h, t.selector)
	if err != nil {
		return err
	}
	e, err := prepare(h, of)
	if err != nil {
		return err
	}
	defer e.Close()
	e.Duration = t.duration
	t.Streams.Say("%s", e.Change().Text())
	if !t.agreed {
		return command.UsageErrorf("nothing was changed: --%s makes the change, for %v", yesFlag, t.duration)
	}
	r, err := e.Run(cmd.Context())
	if errors.Is(err, context.Canceled) {
		err = errors.Join(errors.New("interrupted"), err)
	}
	if err != nil {
		return err
	}
	t.Exit = r.ExitCode()
	if f == command.JSON {
		enc := json.NewEncoder(t.Streams.Out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false) // a command has > in it
		return command.OutputError(enc.Encode(r))
	}
	return command.OutputError(r.Text(t.Streams.Out))
}
