// Package commands has the commands of scenarios. main adds them to the command line, so that the code that diagnoses
// hosts does not depend on the code that builds sick ones.
package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/cli"
	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/input/spelling"
	"github.com/perfdoctor/perfdoctor/internal/lab/scenario"
	"github.com/perfdoctor/perfdoctor/internal/lab/vm"
	"github.com/perfdoctor/perfdoctor/internal/lab/vm/guest"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/scenarios"
)

// subsetCI is the only named subset: what continuous integration has time for.
const subsetCI = "ci"

// defaultWorkloads is where `make workloads` puts them, seen from the root of the source tree.
const defaultWorkloads = ".cache"

// scenarioRun holds the flags of the scenario commands.
type scenarioRun struct {
	*command.App
	dir, output, keep string
	accuracy          string // the page with the promises of verify
	kept              string // the directory of recordings by which verify judges them
	workloads         string
	all               bool
	subset            string
	only              []string
	climb             scenario.Climb // the way through stories
	seed              uint64         // the seed of climb, if the flag is given
	seeded            bool
	page              string
	runs              int
	check, phase      string
	comment           string
	vm                bool
	kernel            string
	boots             vm.Kernel // what --vm boots
}

// Scenario returns the command scenario with its subcommands.
func Scenario(app *command.App) *cobra.Command {
	s := &scenarioRun{App: app}
	cmd := &cobra.Command{
		Use:   "scenario",
		Short: "Build a fault on purpose, diagnose it, fix it",
		Long: `A scenario builds a sick or a healthy system on this machine, in network
namespaces and cgroups of its own, has it diagnosed as diagnose does, applies
the fix and the well-known placebo, and says whether all of it came out as
expected. Everything is gone afterwards. It needs root and changes nothing
outside. With --vm it runs in a virtual machine and needs no root; a scenario
that changes what is the whole machine's runs only there.

Exit codes: 0 every expectation held, 1 a scenario could not be run, 2 wrong
usage, 3 an expectation failed.`,
		Example: `  perfdoctor scenario list
  perfdoctor scenario explain ports-exhausted
  perfdoctor scenario run ports-exhausted`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&s.dir, "dir", "", "read the scenarios in the directory `PATH` instead of those "+
		"built in")
	cmd.PersistentFlags().StringVar(&s.workloads, "workloads", defaultWorkloads,
		"the directory `PATH` that make workloads filled: JVMs and Java programs")
	for _, sub := range []*cobra.Command{
		s.listCommand(), s.explainCommand(), s.runCommand(), s.verifyCommand(), s.recordCommand(), s.cleanCommand(),
	} {
		run := sub.RunE
		sub.RunE = func(cmd *cobra.Command, args []string) error { return asUsage(run(cmd, args)) }
		cmd.AddCommand(sub)
	}
	return cmd
}

// asUsage turns a mistake in a scenario's file into a usage error.
func asUsage(err error) error {
	if errors.Is(err, scenario.ErrInvalid) {
		return command.UsageErrorf("%v", err)
	}
	return err
}

// files returns the file system with the scenarios.
func (s *scenarioRun) files() (fs.FS, error) {
	if s.dir == "" {
		return scenarios.FS, nil
	}
	if st, err := os.Stat(s.dir); err != nil || !st.IsDir() {
		return nil, command.UsageErrorf("--dir %s: there is no such directory", s.dir)
	}
	return os.DirFS(s.dir), nil
}

// names lists all scenarios, valid or not.
func (s *scenarioRun) names() ([]string, error) {
	files, err := s.files()
	if err != nil {
		return nil, err
	}
	return scenario.Names(files)
}

// read reads the named scenarios, or all.
func (s *scenarioRun) read(names []string) ([]*scenario.Scenario, error) {
	files, err := s.files()
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return scenario.All(files, cli.CheckNames(checks.Suite()))
	}
	there, err := s.names()
	if err != nil {
		return nil, err
	}
	var out []*scenario.Scenario
	for _, name := range names {
		if !slices.Contains(there, name) {
			return nil, unknownScenario(name, there)
		}
		one, err := scenario.Read(files, name, cli.CheckNames(checks.Suite()))
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

func unknownScenario(name string, there []string) error {
	if near := spelling.Nearest(name, there); near != "" {
		return command.UsageErrorf("unknown scenario %q: did you mean %s? `perfdoctor scenario list` names all", name,
			near)
	}
	return command.UsageErrorf("unknown scenario %q: `perfdoctor scenario list` names all", name)
}

func (s *scenarioRun) complete(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	names, err := s.names()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (s *scenarioRun) listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the scenarios: what must be said about each, and what it needs",
		Args:  command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			list, err := s.read(nil)
			if err != nil {
				return err
			}
			for _, sc := range list {
				if _, err := fmt.Fprintf(s.Streams.Out, "%-34s %-26s %s%s\n", sc.Name, says(sc), sc.Title,
					needs(sc)); err != nil {
					return command.OutputError(err)
				}
			}
			return nil
		},
	}
}

// says returns the verdict that a scenario must get, or how many a story has.
func says(sc *scenario.Scenario) string {
	if sc.Story() {
		return fmt.Sprintf("story of %d rungs", len(sc.Rungs))
	}
	return sc.Expect.Verdict
}

// needs returns in short what a scenario needs besides root. All need root.
func needs(sc *scenario.Scenario) string {
	var all []string
	if sc.VM.Mode == scenario.VMRequired {
		all = append(all, "a virtual machine")
	}
	if sc.Needs.CPUs > 1 {
		all = append(all, fmt.Sprintf("%d CPUs", sc.Needs.CPUs))
	}
	all = append(append(all, sc.Needs.Tools...), sc.Needs.Sysctls...)
	if sc.NeedsJava() {
		all = append(all, "make workloads")
	}
	if len(all) == 0 {
		return ""
	}
	return " [" + strings.Join(all, ", ") + "]"
}

func (s *scenarioRun) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "explain NAME",
		Short:             "Print a scenario's story, truth and fix",
		Args:              command.OneArg("the name of a scenario"),
		ValidArgsFunction: s.complete,
		RunE: func(_ *cobra.Command, args []string) error {
			list, err := s.read(args)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(s.Streams.Out, list[0].Readme)
			return command.OutputError(err)
		},
	}
}

func (s *scenarioRun) runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run NAME...",
		Short: "Run scenarios and compare what is found with what is there",
		Long: `Runs each phase of each scenario: as it is, with each fix, with each placebo.
Prints the verdict and its arithmetic for each, and the numbers before and after
beside those that arithmetic foretold.

A story has several faults at once, its rungs. They are fixed one after the
other, in the order of the file if --order or --seed do not say otherwise, and
the verdict must be about the first one left each time. It ends with a table.

Exit codes: 0 every expectation held, 1 a scenario could not be run, 2 wrong
usage, 3 an expectation failed.`,
		Example: `  perfdoctor scenario run ports-exhausted --keep recordings
  perfdoctor scenario run --all -o junit > scenarios.xml
  perfdoctor scenario run conntrack-full --vm --kernel 6.12
  perfdoctor scenario run patents --keep recordings --page patents.md`,
		ValidArgsFunction: s.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			s.seeded = cmd.Flags().Changed("seed")
			return s.run(cmd.Context(), args)
		},
	}
	s.addChoice(cmd)
	s.addOutput(cmd)
	cmd.Flags().StringVar(&s.keep, "keep", "", "keep the recording of each phase in the directory `PATH`")
	s.addGuest(cmd)
	cmd.Flags().StringSliceVar(&s.only, "only", nil, "of the fixes and placebos, run only these: `NAMES` with commas "+
		"between")
	s.addClimb(cmd)
	cmd.Flags().StringVar(&s.page, "page", "", "write the run of a story as Markdown to `FILE`, over what is there")
	return cmd
}

// scenarioFormats are the output formats of scenario run and verify.
var scenarioFormats = []command.Format{command.Text, command.JSON, command.JUnit}

func (s *scenarioRun) addOutput(cmd *cobra.Command) {
	command.AddOutputFlag(cmd, &s.output, scenarioFormats)
}

func (s *scenarioRun) checkOutput() error {
	_, err := command.ParseFormat(s.output, scenarioFormats)
	return err
}

// addChoice adds the flags that choose several scenarios.
func (s *scenarioRun) addChoice(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&s.all, "all", false, "all scenarios; those this machine lacks something for are skipped")
	cmd.Flags().StringVar(&s.subset, "subset", "", "the scenarios of a `SUBSET`: ci")
	command.CompleteFlag(cmd, "subset", subsetCI)
}

// checkChoice reports choices of scenarios that contradict each other.
func (s *scenarioRun) checkChoice(args []string) error {
	switch {
	case s.kernel != "" && !s.vm:
		return command.UsageErrorf("--kernel is that of a virtual machine: add --vm")
	case s.subset != "" && s.subset != subsetCI:
		return command.UsageErrorf("unknown --subset %q: use %s", s.subset, subsetCI)
	case len(args) > 0 && (s.all || s.subset != ""), s.all && s.subset != "":
		return command.UsageErrorf("give names, --all or --subset, one of them")
	case len(args) == 0 && !s.all && s.subset == "":
		return command.UsageErrorf("give the name of a scenario, or --all: `perfdoctor scenario list` names them")
	}
	return nil
}

// choose reads the scenarios that the call names. A scenario given by name must be able to run.
func (s *scenarioRun) choose(args []string) ([]*scenario.Scenario, error) {
	if err := s.checkChoice(args); err != nil {
		return nil, err
	}
	list, err := s.read(args)
	if err != nil {
		return nil, err
	}
	if s.subset != "" {
		list = slices.DeleteFunc(list, func(sc *scenario.Scenario) bool { return !sc.CI })
	}
	for _, sc := range list {
		// In a guest the answer is a result, for the program outside to read.
		if lacks := s.lacks(sc); len(args) > 0 && lacks != "" && !guest.Inside() {
			return nil, command.UsageErrorf("scenario %s cannot run here: %s", sc.Name, lacks)
		}
	}
	if err := s.checkClimb(list); err != nil {
		return nil, err
	}
	return list, s.checkOnly(list)
}

func (s *scenarioRun) checkOnly(list []*scenario.Scenario) error {
	for _, name := range s.only {
		var there []string
		for _, sc := range list {
			names, err := sc.PhaseNames(scenario.Climb{})
			if err != nil {
				return err
			}
			there = append(there, names...)
		}
		if !slices.Contains(there, name) {
			return command.UsageErrorf("--only %s: there is no such fix or placebo: there is %s", name,
				strings.Join(there, ", "))
		}
	}
	return nil
}

func (s *scenarioRun) run(ctx context.Context, args []string) error {
	if err := s.checkOutput(); err != nil {
		return err
	}
	list, err := s.choose(args)
	if err != nil {
		return err
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	results := []*scenario.Result{}
	for _, sc := range list {
		r, err := s.one(ctx, sc, s.keep, 0)
		if err != nil {
			return interrupted(err)
		}
		r.Forget()
		results = append(results, r)
		s.count(r)
		if r.Status == scenario.Skipped && len(args) > 0 && s.Exit == command.ExitFine {
			s.Exit = command.ExitUsage // it was given by name, and its guest lacks something
		}
	}
	switch s.output {
	case string(command.JUnit):
		err = scenario.JUnit(s.Streams.Out, results)
	case string(command.JSON):
		err = scenario.JSON(s.Streams.Out, results)
	default:
		err = scenario.Text(s.Streams.Out, results)
	}
	if err != nil {
		return command.OutputError(err)
	}
	return s.writePage(results)
}

// interrupted returns this program's message for a run that the user ended.
func interrupted(err error) error {
	if errors.Is(err, context.Canceled) && !errors.Is(err, scenario.ErrLeft) {
		return errors.New("interrupted; everything that was made is removed")
	}
	return err
}

// count sets the exit code: a failure of perfdoctor outweighs what it found.
func (s *scenarioRun) count(r *scenario.Result) {
	switch {
	case r.Status == scenario.Broken:
		s.Exit = command.ExitFailed
	case r.Status == scenario.Failed && s.Exit == command.ExitFine:
		s.Exit = command.ExitFindings
	}
}

func needRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("a scenario needs root, as it makes network namespaces and cgroups of its own; with " +
			"--vm it " +
			"needs none")
	}
	return nil
}

// prepare finds early what would otherwise fail after minutes.
func (s *scenarioRun) prepare(ctx context.Context) error {
	check := needRoot
	if s.vm {
		check = func() error { return s.findKernel(ctx) }
	}
	if err := check(); err != nil || s.keep == "" {
		return err
	}
	// Like a recording, its directory is private: it may hold data that its owner would not show.
	if err := os.MkdirAll(s.keep, 0o700); err != nil {
		return command.UsageErrorf("--keep %s: %v", s.keep, err)
	}
	return nil
}

func (s *scenarioRun) options(keep string, run int) scenario.Options {
	return scenario.Options{
		Diagnose: s.observe, Ping: cli.PingFrom, Checks: checks.Suite(), Causes: checks.Causes(), Keep: keep,
		Only:      s.only,
		Climb:     s.way(run),
		Workloads: s.workloads, Words: words, Compare: compared, Promised: promised,
		Say: func(format string, args ...any) { s.Streams.Say(format+"\n", args...) },
	}
}

// observe does what diagnose does between its flags and its checks.
func (s *scenarioRun) observe(ctx context.Context, pid int, duration, interval time.Duration,
	deep bool,
) (*recording.Recording, error) {
	return cli.Observe(ctx, s.App, cli.Observation{PID: pid, Duration: duration, Interval: interval, Deep: deep})
}

func (s *scenarioRun) verifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify NAME...",
		Short: "Run scenarios several times and count right and wrong findings",
		Long: `Runs each scenario --runs times and prints, for each and in total, how often
the verdict was right, the required findings were there, and forbidden ones were
raised: perfdoctor's accuracy.

Exit codes: 0 everything was right in every run, 1 a scenario could not be run,
2 wrong usage, 3 something was not right.`,
		Example:           `  perfdoctor scenario verify --all --runs 3`,
		ValidArgsFunction: s.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			s.seeded = cmd.Flags().Changed("seed")
			return s.verify(cmd.Context(), args)
		},
	}
	s.addClimb(cmd)
	s.addChoice(cmd)
	s.addGuest(cmd)
	s.addOutput(cmd)
	cmd.Flags().StringVar(&s.keep, "keep", "", "keep the recording of each phase in the directory `PATH`, under "+
		"run-1, run-2 and so on")
	cmd.Flags().IntVar(&s.runs, "runs", 3, "run each scenario `N` times")
	cmd.Flags().StringVar(&s.accuracy, "accuracy", "", "write what was promised of the fixes, and what was measured, "+
		"between the marks of the Markdown `FILE`, and the picture "+scenario.PictureName+" beside it")
	cmd.Flags().StringVar(&s.kept, "from", "", "run nothing: make the promises anew of the recordings that --keep "+
		"wrote to the directory `PATH`, and judge them")
	return cmd
}

// maxRuns keeps a typing error from running for days.
const maxRuns = 1000

func (s *scenarioRun) verify(ctx context.Context, args []string) error {
	if err := s.checkOutput(); err != nil {
		return err
	}
	if s.runs < 1 || s.runs > maxRuns {
		return command.UsageErrorf("--runs %d: give a number from 1 to %d", s.runs, maxRuns)
	}
	list, err := s.choose(args)
	if err != nil {
		return err
	}
	v, all := scenario.NewVerification(s.Version, s.runs, time.Now()), []*scenario.Result{}
	if _, err := s.accuracyPage(v); err != nil { // fail before hours of runs
		return command.UsageErrorf("--accuracy %s: %v", s.accuracy, err)
	}
	if s.kept != "" {
		return s.verifyKept(list, v)
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	for _, sc := range list {
		var runs []*scenario.Result
		runs, err = s.repeat(ctx, sc)
		v.Add(runs)
		all = append(all, runs...)
		if err != nil {
			break // print what was counted so far
		}
	}
	var printed error
	switch s.output {
	case string(command.JUnit):
		printed = scenario.JUnit(s.Streams.Out, all)
	case string(command.JSON):
		printed = scenario.JSON(s.Streams.Out, v)
	default:
		printed = v.Text(s.Streams.Out)
	}
	return errors.Join(err, command.OutputError(printed), s.writeAccuracy(v))
}

// verifyKept judges the promises from kept recordings.
func (s *scenarioRun) verifyKept(list []*scenario.Scenario, v *scenario.Verification) error {
	v.Kept = true
	dirs, err := scenario.KeptRuns(s.kept)
	if err != nil {
		return command.UsageErrorf("--from %s: %v", s.kept, err)
	}
	for _, sc := range list {
		var runs []*scenario.Result
		for n, dir := range dirs {
			r, err := sc.Kept(dir, s.options("", n))
			if err != nil {
				return err
			}
			if r != nil {
				runs = append(runs, r)
			}
		}
		v.Add(runs)
	}
	write := v.Text
	if s.output == string(command.JSON) {
		write = func(w io.Writer) error { return scenario.JSON(w, v) }
	}
	printed := write(s.Streams.Out)
	return errors.Join(command.OutputError(printed), s.writeAccuracy(v))
}

// accuracyPage returns the page of --accuracy with the promises so far, or "" without the flag.
func (s *scenarioRun) accuracyPage(v *scenario.Verification) (string, error) {
	if s.accuracy == "" {
		return "", nil
	}
	page, err := os.ReadFile(s.accuracy)
	if err != nil {
		return "", err
	}
	return v.Page(string(page))
}

// writeAccuracy writes the page of --accuracy and its picture.
func (s *scenarioRun) writeAccuracy(v *scenario.Verification) error {
	page, err := s.accuracyPage(v)
	if err != nil || page == "" {
		return err
	}
	if err := os.WriteFile(s.accuracy, []byte(page), 0o644); err != nil { //nolint:gosec // a page for everybody
		return fmt.Errorf("--accuracy: %w", err)
	}
	f, err := os.Create(filepath.Join(filepath.Dir(s.accuracy), scenario.PictureName))
	if err != nil {
		return fmt.Errorf("--accuracy: %w", err)
	}
	return errors.Join(v.Calibration.SVG(f), f.Close())
}

// repeat returns the runs of one scenario that came to an end.
func (s *scenarioRun) repeat(ctx context.Context, sc *scenario.Scenario) (runs []*scenario.Result, err error) {
	for n := range s.runs {
		keep := s.keep
		if keep != "" {
			keep = filepath.Join(keep, fmt.Sprintf("run-%d", n+1))
			if err := os.MkdirAll(keep, 0o700); err != nil {
				return runs, fmt.Errorf("keep the recordings: %w", err)
			}
		}
		r, err := s.one(ctx, sc, keep, n)
		if err != nil {
			return runs, interrupted(err)
		}
		s.count(r)
		s.Streams.Say("%s: %s\n", sc.Name, r.Status)
		r.Forget()
		runs = append(runs, r)
	}
	return runs, nil
}

func (s *scenarioRun) recordCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "record NAME --check CHECK",
		Short: "Run a scenario and print a rule's test case of it",
		Long: `Runs one phase of a scenario, as it is or with a fix, and prints the txtar file
that "perfdoctor checks case" would make of its recording. A phase that does not
hold its expectations gives no case.`,
		Example: `  perfdoctor scenario record quota-bursty --check cpu-throttled-burst > firing.txtar
  perfdoctor scenario record quota-bursty --phase no-quota --check cpu-throttled-burst > quiet.txtar`,
		Args:              command.OneArg("the name of a scenario"),
		ValidArgsFunction: s.complete,
		RunE:              func(cmd *cobra.Command, args []string) error { return s.record(cmd.Context(), args) },
	}
	s.addGuest(cmd)
	f := cmd.Flags()
	f.StringVar(&s.check, "check", "", "the rule that the case is for")
	f.StringVar(&s.phase, "phase", scenario.PhaseSick,
		"the phase: `NAME` of a fix or placebo, or of a story's rung, or "+scenario.PhaseSick)
	f.StringVar(&s.comment, "comment", "", "where the recording came from; the scenario, phase and kernel if not given")
	command.CompleteFlag(cmd, "check", cli.CheckNames(checks.Suite())...)
	return cmd
}

func (s *scenarioRun) record(ctx context.Context, args []string) error {
	if s.check == "" {
		return command.UsageErrorf("give --check with the rule that the case is for")
	}
	c, err := cli.FindCheck(checks.Suite(), s.check)
	if err != nil {
		return err
	}
	list, err := s.toRecord(args)
	if err != nil {
		return err
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	r, err := s.recorded(ctx, list[0])
	if err != nil {
		return interrupted(err)
	}
	return s.printCase(c, r)
}

func (s *scenarioRun) printCase(c *check.Check, r *scenario.Result) error {
	if r.Status != scenario.Held {
		text := &strings.Builder{}
		err := scenario.Text(text, []*scenario.Result{r})
		s.Streams.Say("%s", text)
		return errors.Join(errors.New("the run did not come out as expected: no case is made of it"), err)
	}
	p := &r.Phases[len(r.Phases)-1]
	if s.comment == "" {
		s.comment = fmt.Sprintf("Scenario %s, phase %s: %s.", r.Scenario, p.Name, p.Title)
	}
	return command.OutputError(cli.WriteCase(s.Streams.Out, []*check.Check{c}, p.Recording, s.comment))
}

func (s *scenarioRun) cleanCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "clean",
		Short: "Remove what a killed scenario left",
		Long: `Removes the cgroups, processes and directories of runs that were killed (SIGKILL)
before they could do it themselves, and prints what it removed. Namespaces, with
their devices and rules, are gone with the run. Runs that still live are left
alone.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needRoot(); err != nil {
				return err
			}
			removed, err := scenario.Clean(cmd.Context())
			for _, what := range removed {
				if _, werr := fmt.Fprintln(s.Streams.Out, "removed", what); werr != nil {
					return errors.Join(err, command.OutputError(werr))
				}
			}
			return err
		},
	}
}
