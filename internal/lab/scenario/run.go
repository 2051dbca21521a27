package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/collect/vantage"
	"github.com/perfdoctor/perfdoctor/internal/host/clock"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/lab/vm/guest"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// PhaseSick is the name of the first phase, in which nothing is fixed. A healthy scenario has it too.
const PhaseSick = "as-is"

// The kinds of phase.
const (
	KindSick    = "as-is"
	KindCure    = "cure"
	KindPlacebo = "placebo"
	KindRung    = "rung"    // a story's state with a fault
	KindHealthy = "healthy" // a story's state without any fault
)

// Status is the outcome of a run.
type Status string

// The statuses.
const (
	Held    Status = "held"    // every expectation held
	Failed  Status = "failed"  // at least one did not
	Broken  Status = "broken"  // the scenario could not be built, run or diagnosed
	Skipped Status = "skipped" // the machine lacks something
)

// Options holds what a run needs from outside.
type Options struct {
	// Diagnose observes the process pid, or the whole machine when pid is 0, as `perfdoctor diagnose` does.
	Diagnose func(ctx context.Context, pid int, duration, interval time.Duration, deep bool) (*recording.Recording,
		error)
	// Ping measures round trips from the host of the process pid, as `perfdoctor ping` does.
	Ping   func(ctx context.Context, pid int, plan vantage.Plan) (*recording.Recording, error)
	Checks []*check.Check
	Causes check.Causes
	Keep   string                           // directory for the recordings; empty: none
	Only   []string                         // fixes and placebos to run after the first phase; nil: all
	Climb  Climb                            // the way through a story
	Say    func(format string, args ...any) // progress
	// Words returns what the report says about the verdict, for readers of the result. nil: nothing is noted.
	Words func(*recording.Recording, *check.Result) string
	// Compare returns what got worse from one recording to another, as `perfdoctor compare` does, and the text for a
	// reader. requests are the requests a second of each recording. A story with a regression needs it.
	Compare func(before, after *recording.Recording, requests [2]float64) (worse []string, words string)
	// Promised returns what the doctor predicted about the fault before, and what came of it. nil: it is not asked.
	Promised func(before, after *recording.Recording) []Promised
	// Workloads is the directory that `make workloads` filled with the JVMs and Java programs.
	Workloads string
}

// Result is one run of a scenario.
type Result struct {
	Scenario string    `json:"scenario"`
	Title    string    `json:"title"`
	Started  time.Time `json:"started"`
	Seconds  float64   `json:"seconds"`
	Status   Status    `json:"status"`
	Reason   string    `json:"reason,omitempty"` // why broken or skipped
	Phases   []Phase   `json:"phases"`
	Gaps     []GapNote `json:"not_assessed,omitempty"`
	// the virtual machine it ran in, such as "kernel 6.12.94, tcg"; empty: this machine
	Guest   string   `json:"guest,omitempty"`
	Machine *Machine `json:"machine,omitempty"`
	// For a story: the faults that were fixed from the start, and the result of each change.
	LeftOut []string `json:"left_out,omitempty"`
	Steps   []Step   `json:"steps,omitempty"`
}

// GapNote is a finding that is wanted but not possible yet.
type GapNote struct {
	Finding string `json:"finding"`
	Reason  string `json:"reason"`
}

// Phase is what was diagnosed and measured in one phase.
type Phase struct {
	Name       string             `json:"name"`
	Kind       string             `json:"kind"`
	Title      string             `json:"title"`
	Verdict    string             `json:"verdict"` // a check or none
	Subject    string             `json:"subject,omitempty"`
	Severity   string             `json:"severity,omitempty"`
	Summary    string             `json:"summary,omitempty"`
	Arithmetic string             `json:"arithmetic,omitempty"` // the first computation of the verdict's evidence
	Findings   []string           `json:"findings"`             // check, subject and severity of each
	Measured   map[string]float64 `json:"measured"`             // by metric, in units/s, seconds or errors/s
	Assertions []Assertion        `json:"assertions"`
	// share of the machine's CPU time in use before the phase was built
	BusyBefore float64 `json:"busy_before"`
	// how many earlier measurements the hypervisor disturbed by taking the CPUs
	Disturbed int          `json:"disturbed,omitempty"`
	Foretold  []Prediction `json:"foretold,omitempty"`
	Before    string       `json:"compared_with,omitempty"` // the phase that its numbers are compared with
	Words     string       `json:"words,omitempty"`         // what the report says about the verdict
	Compared  *Compared    `json:"compared,omitempty"`      // for the state after a regression's fix
	Promised  []Promised   `json:"promised,omitempty"`      // for a fix: what the doctor predicted

	Recording *recording.Recording `json:"-"`

	stolen bool // the diagnosis accuses the hypervisor
}

// Compared is what a comparison said about a regression. It compares the state after the fix, which stands for the
// version before, with the state that has the regression.
type Compared struct {
	Worse []string `json:"worse"`
	Words string   `json:"words,omitempty"`
}

// Assertion is one expectation and its outcome.
type Assertion struct {
	What string `json:"what"`
	// verdict, severity, subject, evidence, required, forbidden, gone, still, moves, foretold, regression
	Kind string `json:"kind"`
	Held bool   `json:"held"`
	Got  string `json:"got,omitempty"`
}

// Prediction is an arithmetic prediction and what was measured. It predicts a value, or the bounds of a [Move].
type Prediction struct {
	Metric   string   `json:"metric"`
	Because  string   `json:"because"`
	Foretold *float64 `json:"foretold,omitempty"`
	Bounds   string   `json:"bounds,omitempty"` // "x 10 or more"
	Measured *float64 `json:"measured"`         // null when nothing was measured
}

// ErrLeft says that a part of a phase could not be removed.
var ErrLeft = errors.New("something was left behind: run `perfdoctor scenario clean`")

// Lacks returns why the scenario cannot run on this machine, or "". workloads is the directory from [Options].
func (s *Scenario) Lacks(workloads string) string {
	switch inside := guest.Inside(); {
	case s.VM.Mode == VMRequired && !inside:
		return "it runs in a virtual machine only, with --vm: " + s.VM.Reason
	case s.VM.Mode == VMNever && inside:
		return notInGuest + s.VM.Reason
	}
	if n := runtime.NumCPU(); n < s.Needs.CPUs {
		return fmt.Sprintf("it needs %d CPUs, and perfdoctor may use %d", s.Needs.CPUs, n)
	}
	for _, key := range s.Needs.Sysctls {
		if _, err := os.Stat("/proc/sys/" + strings.ReplaceAll(key, ".", "/")); err != nil {
			return "this kernel has no sysctl " + key
		}
	}
	var missing []string
	for _, tool := range s.Needs.Tools {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, tool)
		}
	}
	if len(missing) > 0 {
		return "not installed: " + strings.Join(missing, ", ")
	}
	return s.lacksJava(workloads)
}

const notInGuest = "it does not run in a virtual machine: "

// LacksInGuest returns why the scenario cannot run in a guest (package vm), or "". The run in the guest finds out
// what its kernel lacks.
func (s *Scenario) LacksInGuest() string {
	if s.VM.Mode == VMNever {
		return notInGuest + s.VM.Reason
	}
	if len(s.Needs.Tools) > 0 {
		return "a virtual machine has perfdoctor in it, and not " + strings.Join(s.Needs.Tools, ", ")
	}
	if s.NeedsJava() {
		return "a virtual machine has perfdoctor in it, and no JVM"
	}
	return ""
}

// PhaseNames returns the names of the scenario's phases on the way c, in order. The error says what is wrong with the
// way.
func (s *Scenario) PhaseNames(c Climb) ([]string, error) {
	list, err := s.phases(Options{Climb: c})
	return names(list), err
}

func names(list []phaseSpec) (names []string) {
	for i := range list {
		names = append(names, list[i].name)
	}
	return names
}

// Run runs the phases one after the other, each in its own hosts. The result holds what goes wrong. The error is only
// that of ctx, joined with [ErrLeft] when the interrupted phase could not be removed.
func (s *Scenario) Run(ctx context.Context, o Options) (*Result, error) {
	if lacks := s.Lacks(o.Workloads); lacks != "" {
		return s.NotRun(Skipped, lacks), nil
	}
	list, err := s.phases(o)
	if err == nil && o.Keep != "" { // check this before minutes are spent
		err = s.MayKeep(o.Keep, names(list))
	}
	if err != nil {
		return s.NotRun(Broken, err.Error()), nil
	}
	res := s.NotRun(Held, "")
	defer func(began time.Time) { res.Seconds = time.Since(began).Seconds() }(time.Now())
	if s.Story() {
		res.LeftOut = s.leftOut(o.Climb.Seed)
	}
	for i := range list {
		o.say("%s: %d of %d: %s: %s", s.Name, i+1, len(list), list[i].name, list[i].title)
		compared := slices.ContainsFunc(list[i+1:], func(later phaseSpec) bool { return later.from == i })
		if err := s.next(ctx, res, list[i], compared, o); err != nil {
			return res, err
		}
		if res.Status == Broken {
			break
		}
		o.say("%s: %s", s.Name, res.Phases[i].said())
	}
	if s.Story() {
		res.Steps = steps(list, res.Phases)
	}
	return res, nil
}

// next runs one more phase. compared says whether later phases are compared with it. What goes wrong is in res; the
// error is that of ctx.
func (s *Scenario) next(ctx context.Context, res *Result, spec phaseSpec, compared bool, o Options) error {
	run := func() (*Phase, error) { return s.phase(ctx, spec, o, res.Phases) }
	done, err := undisturbed(run, compared, func() {
		o.say("%s: the hypervisor took CPUs from this machine meanwhile: %s once more", s.Name, spec.name)
		_ = clock.Sleep(ctx, respite) // the next attempt finds that ctx is done
	})
	if ctx.Err() != nil && !errors.Is(err, ErrLeft) {
		return ctx.Err()
	}
	if ctx.Err() != nil {
		return err
	}
	if err == nil {
		err = o.keep(s.Name, done)
	}
	if err != nil {
		res.Status, res.Reason = Broken, fmt.Sprintf("%s: %v", spec.name, err)
		return nil
	}
	if !done.held() && res.Status == Held {
		res.Status = Failed
	}
	if res.Machine == nil {
		res.Machine = machineOf(done.Recording, s.jvms(o.Workloads))
	}
	res.Phases = append(res.Phases, *done)
	return nil
}

// NotRun returns the result of a scenario that ran no phase, with the reason.
func (s *Scenario) NotRun(status Status, reason string) *Result {
	res := &Result{
		Scenario: s.Name, Title: s.Title, Started: time.Now().UTC().Truncate(time.Second), Status: status,
		Reason: reason,
		Phases: []Phase{},
	}
	for _, gap := range s.Expect.NotAssessed {
		res.Gaps = append(res.Gaps, GapNote{gap.Name, gap.Reason})
	}
	return res
}

func (o *Options) say(format string, args ...any) {
	if o.Say != nil {
		o.Say(format, args...)
	}
}

func (p *Phase) held() bool {
	return !slices.ContainsFunc(p.Assertions, func(a Assertion) bool { return !a.Held })
}

// said returns a phase's verdict in one line.
func (p *Phase) said() string {
	line := "the verdict is " + p.Verdict
	if p.Arithmetic != "" {
		line += ": " + p.Arithmetic
	}
	if !p.held() {
		line += " (not as expected)"
	}
	return line
}

// phaseSpec is a phase before it is run.
type phaseSpec struct {
	name, kind, title string
	site              *Site
	expect            *Expect // for the diagnosis; nil: see trial
	trial             *Trial  // what a fix or placebo removes or leaves; nil: see expect
	foretold          []Foretold
	from              int // index of the phase that moves start from
	moves             []Move

	// For a story.
	cured []string // the faults that are fixed
	rung  *Rung    // its change led here; nil: the first state
	loose bool     // moves are reported, not asserted: another fault was the first
}

// cures reports whether this phase can test what the doctor predicted in the phase before.
func (p *phaseSpec) cures() bool { return p.kind == KindCure || p.rung != nil && !p.rung.Placebo }

// phases returns the phases to run.
func (s *Scenario) phases(o Options) ([]phaseSpec, error) {
	if s.Story() {
		return s.climb(o.Climb)
	}
	list := []phaseSpec{{
		name: PhaseSick, kind: KindSick, title: s.Title, site: &s.Site, expect: &s.Expect,
		foretold: s.Foretold,
	}}
	add := func(kind string, trials []Trial) {
		for i := range trials {
			t := &trials[i]
			if o.Only == nil || slices.Contains(o.Only, t.Name) {
				list = append(list, phaseSpec{
					name: t.Name, kind: kind, title: t.Title, site: &t.Site, trial: t, moves: t.Moves,
					foretold: t.Foretold,
				})
			}
		}
	}
	add(KindCure, s.Cures)
	add(KindPlacebo, s.Placebos)
	return list, nil
}

// labName returns the scenario's name as package lab wants it: at most 32 characters of a-z, 0-9 and _.
func labName(scenario string) string {
	const longest = 32
	name := strings.ReplaceAll(scenario, "-", "_")
	return name[:min(len(name), longest)]
}

// The check that finds that the hypervisor gave the machine's CPUs to others, and how often a phase is then measured.
// A scenario cannot make its neighbours quiet, but a second attempt within a minute usually finds them quiet.
const (
	thief    = "cpu-steal"
	attempts = 3
	respite  = 20 * time.Second // busy neighbours came and went within half a minute to some minutes
)

// undisturbed runs a phase, and runs it again while the hypervisor takes the CPUs. Stolen CPU time is not the
// scenario's fault: the diagnosis rightly names it, and neither the verdict nor the numbers show the planted fault. A
// phase that held all the same needs no second run, unless later phases are compared with its numbers.
func undisturbed(run func() (*Phase, error), compared bool, again func()) (*Phase, error) {
	for disturbed := 0; ; disturbed++ {
		p, err := run()
		if err != nil {
			return nil, err
		}
		p.Disturbed = disturbed
		if !p.stolen || p.held() && !compared || disturbed == attempts-1 {
			return p, nil
		}
		again()
	}
}

// phase builds, diagnoses and judges one phase, and removes everything it made.
func (s *Scenario) phase(ctx context.Context, spec phaseSpec, o Options, before []Phase) (*Phase, error) {
	p := &Phase{Name: spec.name, Kind: spec.kind, Title: spec.title}
	j := judge{phase: p}
	var err error
	p.BusyBefore, err = spec.site.inLab(ctx, labName(s.Name), o.Workloads, func(b *built) error {
		j.replace = b.pids()
		return b.observe(ctx, p, o)
	})
	if err != nil {
		return nil, err
	}
	j.result = check.Run(p.Recording, o.Checks, check.Options{Causes: o.Causes})
	j.describe()
	p.stolen = j.found(thief) // it disturbs the numbers of a load even if the target wants little CPU
	if o.Words != nil {
		p.Words = o.Words(p.Recording, j.result)
	}
	j.phaseOf(&s.Expect, spec, before)
	j.regression(spec, before, o)
	if spec.cures() && o.Promised != nil {
		p.Promised = o.Promised(before[spec.from].Recording, p.Recording)
	}
	return p, nil
}

// inLab builds the site in a lab of that name, calls watch with it, and removes everything it made. It returns the
// share of the machine's CPU time that was in use before.
func (s *Site) inLab(ctx context.Context, name, workloads string, watch func(*built) error) (busy float64, err error) {
	if busy, err = settle(ctx); err != nil {
		return 0, err
	}
	l, err := lab.New(name)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", l.Name()+"-")
	if err != nil {
		return 0, errors.Join(err, l.Close())
	}
	// The directory goes last: until then programs may write to it.
	defer func() {
		if left := errors.Join(l.Close(), os.RemoveAll(dir)); left != nil {
			err = errors.Join(err, fmt.Errorf("%w: %w", ErrLeft, left))
		}
	}()
	b, err := build(ctx, l, dir, workloads, s)
	if err != nil {
		return busy, err
	}
	return busy, watch(b)
}

// pids returns a replacer for ${pid NAME} in expectations.
func (b *built) pids() *strings.Replacer {
	var pairs []string
	for name, pid := range b.pidsByName() {
		pairs = append(pairs, "${pid "+name+"}", strconv.Itoa(pid))
	}
	return strings.NewReplacer(pairs...)
}

func (b *built) pidsByName() map[string]int {
	pids := map[string]int{}
	for name, p := range b.processes {
		pids[name] = p.pid()
	}
	return pids
}

const (
	// defaultDuration is longer than 5 s: in shorter windows, checks lower their confidence.
	defaultDuration = 6 * time.Second
	defaultInterval = time.Second
)

func (d *Diagnose) duration() time.Duration {
	if d.Duration == 0 {
		return defaultDuration
	}
	return d.Duration
}

func (d *Diagnose) interval() time.Duration {
	if d.Interval == 0 {
		return defaultInterval
	}
	return d.Interval
}

// warmUp waits until the site can be observed. It returns the process to diagnose, 0 for the machine, and the load
// that counts.
func (b *built) warmUp(ctx context.Context) (pid int, load *process, err error) {
	d := &b.site.Diagnose
	if err := clock.Sleep(ctx, d.Warmup); err != nil {
		return 0, nil, err
	}
	if err := b.alive(); err != nil { // the error has its last words, which a diagnosis would not have
		return 0, nil, err
	}
	if d.Target != TargetHost {
		pid = b.processes[d.Target].pid()
	}
	if load = b.processes[b.site.Measure]; load == nil {
		load = &process{Process: &Process{}}
	}
	return pid, load, nil
}

// observe has the site diagnosed and measures its load meanwhile.
func (b *built) observe(ctx context.Context, p *Phase, o Options) error {
	d := &b.site.Diagnose
	pid, load, err := b.warmUp(ctx)
	if err != nil {
		return err
	}
	before, err := load.read(pid)
	if err != nil {
		return err
	}
	began := time.Now()
	views, endPings := b.pings(ctx, o)
	defer endPings()
	follower := load.follow(d.interval())
	defer follower.stop()
	if p.Recording, err = o.Diagnose(ctx, pid, d.duration(), d.interval(), d.Deep); err != nil {
		return fmt.Errorf("diagnose %s: %w", d.Target, err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if early := p.Recording.Meta.EndedEarly; early != "" {
		return fmt.Errorf("diagnose %s: %s", d.Target, early)
	}
	window := time.Since(began).Seconds()
	after, err := load.read(pid)
	if err != nil {
		return err
	}
	if p.Recording, err = views(p.Recording); err != nil {
		return err
	}
	m := measure(before, after, window)
	if load.other != nil {
		if err := load.summary(ctx, m); err != nil {
			return err
		}
		m.perUnit(before, after, window)
	}
	p.Recording = follower.into(p.Recording, m)
	m.ofTarget(p.Recording)
	m.ofProcesses(p.Recording, b.pidsByName())
	p.Measured = m
	return b.alive()
}

// pings measures the round trips from the vantages during the diagnosis. add waits for them and adds them to the
// recording. end stops those that still run, for a phase that has failed.
func (b *built) pings(ctx context.Context, o Options) (add func(*recording.Recording) (*recording.Recording, error),
	end func(),
) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	d := &b.site.Diagnose
	type view struct {
		rec *recording.Recording
		err error
	}
	views := make(chan view, len(d.Vantages))
	for name, process := range d.Vantages {
		plan := vantage.Plan{Name: name, Duration: d.duration(), Interval: pingInterval}
		plan.Destination, _ = netip.ParseAddrPort(d.Ping) // checked when the file was read
		running.Go(func() {
			rec, err := o.Ping(ctx, b.processes[process].pid(), plan)
			views <- view{rec, err}
		})
	}
	add = func(rec *recording.Recording) (*recording.Recording, error) {
		for range d.Vantages {
			v := <-views
			if v.err != nil {
				return nil, v.err
			}
			var err error
			if rec, err = vantage.Add(rec, v.rec); err != nil {
				return nil, err
			}
		}
		return rec, nil
	}
	return add, func() {
		cancel()
		running.Wait()
	}
}

// pingInterval makes thirty round trips in the usual six seconds.
const pingInterval = 200 * time.Millisecond

// alive returns an error for processes that ended too early: a dead load would look like a fix.
func (b *built) alive() error {
	for i := range b.site.Processes {
		p := b.processes[b.site.Processes[i].Name]
		if p.ended() && !p.finite() {
			return fmt.Errorf("process %s ended during the phase: %s%s", p.Name, p.progress(), p.lastWords())
		}
	}
	return nil
}

// finite reports whether the process may end before the phase.
func (p *Process) finite() bool {
	switch {
	case p.For > 0 || p.Await.End:
		return true
	case p.Connect != nil:
		return p.Connect.Count > 0
	case p.Load != nil:
		return p.Load.Count > 0 || p.Load.Duration > 0 || len(p.Load.Steps) > 0
	case p.Run != nil:
		return p.Run.Throughput+p.Run.P99 != ""
	}
	return false
}

// Forget drops the recordings of a run's phases. The recordings of many runs would fill perfdoctor's memory limit,
// and its garbage collector would take CPU time from the next measurement.
func (r *Result) Forget() {
	for i := range r.Phases {
		r.Phases[i].Recording = nil
	}
}

// RecordingName returns the name of the file for a phase's recording.
func RecordingName(scenario, phase string) string { return scenario + "-" + phase + ".zip" }

// MayKeep returns an error if a recording of an earlier run is in the way: none is overwritten.
func (s *Scenario) MayKeep(dir string, phases []string) error {
	for _, phase := range phases {
		at := filepath.Join(dir, RecordingName(s.Name, phase))
		if _, err := os.Lstat(at); err == nil {
			return fmt.Errorf("keep the recording: %s exists: choose another directory", at)
		}
	}
	return nil
}

func (o *Options) keep(name string, p *Phase) error {
	if o.Keep == "" {
		return nil
	}
	path := filepath.Join(o.Keep, RecordingName(name, p.Name))
	if err := p.Recording.Save(path); err != nil {
		return fmt.Errorf("keep the recording: %w", err)
	}
	return nil
}
