package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/lab/scenario"
	"github.com/perfdoctor/perfdoctor/internal/lab/vm"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// Paths in a guest.
const (
	guestScenarios = "/scenarios"
	guestKeep      = "/tmp/keep"
)

const (
	// guestPhase is longer than the five minutes after which every load of a phase ends.
	guestPhase = 6 * time.Minute
	// guestBoot allows two boots on a machine that is busy with other things.
	guestBoot = 2 * time.Minute
)

// addGuest adds the flags that run scenarios in a virtual machine.
func (s *scenarioRun) addGuest(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&s.vm, "vm", false, "run each scenario in a virtual machine of its own (qemu), which is gone "+
		"afterwards; needs no root")
	f.StringVar(&s.kernel, "kernel", "",
		"the virtual machine's `KERNEL`: a file such as /boot/vmlinuz-*, or 6.1 or 6.12, which are Debian's (fetched "+
			"once, with apt); "+
			"if not given, the one that runs here")
	command.CompleteFlag(cmd, "kernel", "6.1", "6.12")
}

// findKernel finds what --vm boots, before anything runs.
func (s *scenarioRun) findKernel(ctx context.Context) (err error) {
	switch {
	case s.kernel == "":
		s.boots, err = vm.RunningKernel()
		if err != nil {
			err = fmt.Errorf("%w: --kernel FILE, or --kernel 6.12", err)
		}
	case regexp.MustCompile(`^[0-9]+\.[0-9]+$`).MatchString(s.kernel):
		s.boots, err = vm.FetchKernel(ctx, s.kernel, runtime.GOARCH)
	default:
		s.boots, err = vm.KernelAt(s.kernel)
		if errors.Is(err, os.ErrNotExist) {
			err = command.UsageErrorf("--kernel %s: there is no such file: give one, or 6.1 or 6.12", s.kernel)
		}
	}
	return err
}

// lacks returns why a scenario cannot run where it should run, or "".
func (s *scenarioRun) lacks(sc *scenario.Scenario) string {
	if s.vm {
		return sc.LacksInGuest()
	}
	return sc.Lacks(s.workloads)
}

// one runs a scenario here or in a guest. run counts from zero. The error is that of ctx.
func (s *scenarioRun) one(ctx context.Context, sc *scenario.Scenario, keep string, run int) (*scenario.Result, error) {
	if !s.vm {
		return sc.Run(ctx, s.options(keep, run))
	}
	if lacks := sc.LacksInGuest(); lacks != "" {
		return sc.NotRun(scenario.Skipped, lacks), nil
	}
	began := time.Now()
	r, err := s.inGuest(ctx, sc, keep, run)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		r = sc.NotRun(scenario.Broken, err.Error())
		r.Seconds = time.Since(began).Seconds()
	}
	return r, nil
}

// inGuest boots a guest, runs the scenario there as this program would run it here, and brings back the result and
// the recordings.
func (s *scenarioRun) inGuest(ctx context.Context, sc *scenario.Scenario, keep string, run int) (*scenario.Result,
	error,
) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	phases, err := s.phasesOf(sc, run)
	if err != nil {
		return nil, err
	}
	o := vm.Options{
		Kernel: s.boots, Binary: program, CPUs: sc.Needs.CPUs, Stderr: s.Streams.Err,
		Args:    []string{"scenario", "run", sc.Name, "-o", "json"},
		Timeout: time.Duration(len(phases))*guestPhase + guestBoot,
	}
	if sc.Story() {
		o.Args = append(o.Args, climbArgs(s.way(run))...)
	} else {
		o.Args = append(o.Args, "--only", strings.Join(phases, ","))
	}
	if s.dir != "" {
		o.Files = map[string]string{path.Join(guestScenarios, sc.Name): filepath.Join(s.dir, sc.Name)}
		o.Args = append(o.Args, "--dir", guestScenarios)
	}
	if keep != "" {
		if err := sc.MayKeep(keep, phases); err != nil {
			return nil, err
		}
		o.Outputs = []string{guestKeep}
		o.Args = append(o.Args, "--keep", guestKeep)
	}
	out, err := vm.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	r, err := guestResult(out)
	if err != nil {
		return nil, err
	}
	return r, keepFiles(out.Files, keep)
}

// climbArgs returns the flags that describe the way through a story.
func climbArgs(c scenario.Climb) []string {
	var args []string
	if c.Order != nil {
		args = append(args, "--order", strings.Join(c.Order, ","))
	}
	if c.Seed != nil {
		args = append(args, "--seed", strconv.FormatUint(*c.Seed, 10))
	}
	if c.Rung != "" {
		args = append(args, "--rung", c.Rung)
	}
	if c.Healthy {
		args = append(args, "--healthy")
	}
	return args
}

// phasesOf returns the phases of a scenario to run, including the first one.
func (s *scenarioRun) phasesOf(sc *scenario.Scenario, run int) ([]string, error) {
	names, err := sc.PhaseNames(s.way(run))
	if err != nil || s.only == nil {
		return names, err
	}
	only := names[:1:1]
	for _, name := range names[1:] {
		if slices.Contains(s.only, name) {
			only = append(only, name)
		}
	}
	return only, nil
}

// guestResult reads what the guest printed: one result, or what went wrong.
func guestResult(out vm.Result) (*scenario.Result, error) {
	var results []*scenario.Result
	if err := json.Unmarshal(out.Stdout, &results); err != nil || len(results) != 1 {
		return nil, fmt.Errorf("in the guest: exit code %d: %s%s", out.ExitCode, bytes.TrimSpace(out.Stderr),
			bytes.TrimSpace(out.Stdout))
	}
	results[0].Guest = fmt.Sprintf("kernel %s, %s", out.Release, out.Accelerator)
	return results[0], nil
}

// keepFiles writes the recordings that a guest sent. It overwrites none.
func keepFiles(files map[string][]byte, keep string) error {
	for name, data := range files {
		f, err := os.OpenFile(filepath.Join(keep, path.Base(name)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("keep the recording: %w", err)
		}
		_, err = f.Write(data)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("keep the recording: %w", err)
		}
	}
	return nil
}

// recorded runs a scenario and returns its last phase's recording. From a guest, the recording comes as a file.
func (s *scenarioRun) recorded(ctx context.Context, sc *scenario.Scenario) (*scenario.Result, error) {
	if !s.vm {
		return s.one(ctx, sc, "", 0)
	}
	dir, err := os.MkdirTemp("", "perfdoctor-record-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r, err := s.one(ctx, sc, dir, 0)
	if err != nil || len(r.Phases) == 0 {
		return r, err
	}
	last := &r.Phases[len(r.Phases)-1]
	last.Recording, err = recording.Open(filepath.Join(dir, scenario.RecordingName(sc.Name, last.Name)))
	return r, err
}
