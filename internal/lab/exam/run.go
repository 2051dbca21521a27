package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/lab/scenario"
)

// doctorName is the name of perfdoctor's process.
const doctorName = "perfdoctor"

// runner runs cases with perfdoctor.
type runner struct {
	*exam
	results, doctor              string
	phaseLongest, doctorLongest  time.Duration
	quietLongest                 time.Duration
	again                        bool
	version, kernel              string
	scorer                       *scorer
	phasesRun, phasesBroken, had int
}

// runCases is the command run.
func (e *exam) runCases(ctx context.Context, args []string) error {
	r := &runner{exam: e}
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.StringVar(&r.results, "results", e.defaultResults(), "`directory` for the results")
	flags.StringVar(&r.doctor, "doctor", filepath.Join("bin", doctorName), "`path` of the program that is examined")
	flags.DurationVar(&r.phaseLongest, "phase-timeout", 2*time.Minute, "how `long` a phase may take")
	flags.DurationVar(&r.doctorLongest, "doctor-timeout", time.Minute, "how `long` perfdoctor may take")
	flags.DurationVar(&r.quietLongest, "quiet", time.Minute, "how `long` to wait for a quiet machine")
	flags.BoolVar(&r.again, "broken-again", false, "run again what could not be built")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("root is needed to build the systems: run it as root")
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	cases, err := e.read(flags.Args())
	errs := []error{err}
	for _, c := range cases {
		errs = append(errs, r.runCase(ctx, c))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	fmt.Printf("%d cases: %d phases were run, of which %d could not be built; %d had a result already\n",
		len(cases), r.phasesRun, r.phasesBroken, r.had)
	return errors.Join(errs...)
}

// prepare reads what all cases need.
func (r *runner) prepare(ctx context.Context) error {
	var err error
	if r.results, err = filepath.Abs(r.results); err != nil {
		return err
	}
	if r.doctor, err = filepath.Abs(r.doctor); err != nil {
		return err
	}
	if r.scorer, err = r.newScorer(); err != nil {
		return err
	}
	out, err := command(ctx, "", nil, r.doctor, "version")
	if err != nil {
		return err
	}
	r.version = versionOf(out)
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	r.kernel = strings.TrimSpace(string(kernel))
	return err
}

// versionOf returns the second word of "perfdoctor v1.2.3 (go1.26, linux/amd64)".
func versionOf(out string) string {
	if words := strings.Fields(out); len(words) > 1 {
		return words[1]
	}
	return out
}

// runCase runs the phases that have no result yet. A phase that cannot be built is a result, not an error.
func (r *runner) runCase(ctx context.Context, c *Case) error {
	missing, err := r.missing(c)
	if err != nil || len(missing) == 0 {
		return err
	}
	paths, fetchErr := c.fetchAll(ctx, r.cache, r.say)
	for _, phase := range missing {
		p := &PhaseResult{Case: c.Name, Phase: phase, Version: r.version, Kernel: r.kernel, Date: time.Now().UTC()}
		p.Packages = c.aptVersions(ctx)
		err := fetchErr
		if err == nil {
			err = r.phase(ctx, c, p, paths)
		}
		if ctx.Err() != nil {
			return ctx.Err() // interrupted: no result of this phase
		}
		if err != nil {
			p.Broken, p.Doctor = shortened(r.tidy(err.Error())), DoctorResult{}
		}
		if err := c.writePhase(r.results, p); err != nil {
			return err
		}
		r.phasesRun++
		if p.Broken != "" {
			r.phasesBroken++
		}
		fmt.Printf("%s %s: %s\n", c.Name, p.Phase, r.progress(c, p))
	}
	return nil
}

// shortened returns a text in one line and keeps its beginning and end: package clients print a lot, and end with
// what was wrong.
func shortened(text string) string {
	const most = 150 // characters on either side
	text = strings.Join(strings.Fields(text), " ")
	if letters := []rune(text); len(letters) > 2*most {
		return string(letters[:most]) + " ... " + string(letters[len(letters)-most:])
	}
	return text
}

// missing returns the phases to run.
func (r *runner) missing(c *Case) ([]string, error) {
	var list []string
	for _, phase := range c.phaseNames() {
		p, err := c.readPhase(r.results, phase)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", c.phaseFile(r.results, phase), err)
		case p == nil:
			list = append(list, phase)
		case p.Broken != "" && r.again:
			list = append(list, phase)
			if err := os.Remove(c.phaseFile(r.results, phase)); err != nil {
				return nil, err
			}
		default:
			r.had++
		}
	}
	return list, nil
}

// phase builds the system and runs perfdoctor beside it, as a user would.
func (r *runner) phase(ctx context.Context, c *Case, p *PhaseResult, paths map[string]string) error {
	site, err := c.site(p.Phase, paths)
	if err != nil {
		return err
	}
	if p.Waited, err = waitQuiet(ctx, r.quietLongest); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.phaseLongest)
	defer cancel()
	w, err := site.Watch(ctx, labName, func(ctx context.Context, running scenario.Running) error {
		before, began := statsNow(), time.Now()
		recording := filepath.Join(r.results, "recording.zip") // not the case's name, which says what is wrong
		d, err := r.diagnose(ctx, running.PID, recording)
		p.Doctor = d
		p.Target, p.Processes = usedBetween(before, statsNow(), running.PID, time.Since(began))
		return errors.Join(err, r.keep(recording, c, p.Phase))
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("not done in %v: %w", r.phaseLongest, err)
	case err != nil:
		return err
	}
	p.Measured, p.BusyBefore = w.Measured, w.BusyBefore
	return nil
}

// keep moves the recording, if perfdoctor made one, to the case's results.
func (r *runner) keep(recording string, c *Case, phase string) error {
	path := filepath.Join(r.results, c.Name, phase+".zip")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.Rename(recording, path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// diagnose runs perfdoctor with default flags. A failure is a result, too.
func (r *runner) diagnose(ctx context.Context, pid int, recording string) (DoctorResult, error) {
	if err := os.MkdirAll(filepath.Dir(recording), 0o700); err != nil {
		return DoctorResult{}, err
	}
	if err := os.RemoveAll(recording); err != nil { // left by an interrupted run
		return DoctorResult{}, err
	}
	args := []string{"diagnose", "-o", "json", "--save", recording}
	if pid != 0 {
		args = append(args, "--pid", strconv.Itoa(pid))
	}
	limited, cancel := context.WithTimeout(ctx, r.doctorLongest)
	defer cancel()
	cmd := exec.CommandContext(limited, r.doctor, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &errs, time.Second
	began := time.Now()
	err := cmd.Run()
	d := DoctorResult{Command: append([]string{doctorName}, args...), Seconds: time.Since(began).Seconds()}
	d.Stderr, d.Exit = errs.String(), cmd.ProcessState.ExitCode()
	if ctx.Err() != nil {
		return d, ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && limited.Err() == nil {
		return d, err // it could not be started
	}
	if _, parseErr := parseReport(out.Bytes()); limited.Err() != nil {
		d.Failed = fmt.Sprintf("no answer in %v", r.doctorLongest)
	} else if parseErr != nil {
		d.Failed = fmt.Sprintf("exit code %d, and no report", d.Exit)
	} else {
		d.Report = out.Bytes()
	}
	return d, nil
}

// aptVersions returns the versions of the machine's packages that the case uses.
func (c *Case) aptVersions(ctx context.Context) map[string]string {
	versions := map[string]string{}
	for i := range c.Fetch {
		for _, p := range c.Fetch[i].Apt {
			versions[p] = aptVersion(ctx, p)
		}
	}
	return versions
}

// progress returns the outcome of a phase. For a sealed case it only says that the phase was run.
func (r *runner) progress(c *Case, p *PhaseResult) string {
	said := "sealed: done"
	switch {
	case p.Broken != "":
		said = "broken: " + p.Broken
	case !c.Sealed():
		said = r.verdict(c, p)
	}
	if p.Broken == "" && p.BusyBefore > quietEnough {
		said += fmt.Sprintf(" (the machine was %.0f %% busy before)", 100*p.BusyBefore)
	}
	return said
}

// verdict returns what perfdoctor said about an open case, with the mark for the fault.
func (r *runner) verdict(c *Case, p *PhaseResult) string {
	s, err := r.scorer.phase(c, p)
	if err != nil {
		return err.Error()
	}
	said := s.oneLine()
	if p.Phase == phaseFault {
		said = string(s.Mark) + ": " + said
	}
	return said
}
