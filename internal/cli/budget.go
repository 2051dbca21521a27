package cli

import (
	"errors"
	"io/fs"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
)

// usualBudget is what perfdoctor may use, in percent of the host's CPUs: on two CPUs 0.4 s in ten seconds. An idle
// host takes 0.16 s of that, including the start.
const usualBudget = 2

func addBudgetFlag(cmd *cobra.Command, percent *float64) {
	cmd.Flags().Float64Var(percent, "budget", usualBudget,
		"observe with at most `PERCENT` of the host's CPUs: samples, then collectors are given up past it; 0 for no "+
			"limit")
}

func validateBudget(percent float64) error {
	if !(percent >= 0 && percent <= 100) {
		return command.UsageErrorf("--budget %v: give percent of the host's CPUs, from 0 (no limit) to 100", percent)
	}
	return nil
}

func budgetOf(h *host.Host, percent float64) (*collect.Budget, error) {
	if percent == 0 {
		return nil, nil
	}
	online, err := h.OnlineCPUs()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) { // no /sys in this container
		return collect.NewBudget(percent, runtime.NumCPU()), nil
	}
	if err != nil {
		return nil, err
	}
	return collect.NewBudget(percent, len(online)), nil
}
