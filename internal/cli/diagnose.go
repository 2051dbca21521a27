package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/redact"
	"github.com/perfdoctor/perfdoctor/internal/report"
	"github.com/perfdoctor/perfdoctor/internal/report/html"
)

// Bounds of what can be asked for. Below 100 ms the kernel's own ticks (4 ms at HZ=250) make the shares of CPU time a
// matter of luck. A recording's memory is bounded for an hour at one second.
const (
	minInterval = 100 * time.Millisecond
	// shortestRun is the shortest window of a run that was ended early: the collectors take up to 100 ms of it for
	// the first and the last look.
	shortestRun = 2 * minInterval
	maxDuration = time.Hour
	maxSamples  = int(maxDuration / time.Second)
)

// diagnosis holds the flags of diagnose.
type diagnosis struct {
	*app
	files
	selector           host.Selector
	duration, interval time.Duration
	delay              time.Duration
	output             string
	save, from, html   string
	and                string // the recording of the server that a client waits for
	redact             string
	names              *redact.Names // of redact; nil without redact
	checks, settings   []string
	vantages           []string
	signatures         string
	verbose, deep      bool
	budget             float64
	wide, watch, whole bool
	whatIf             string
	alone              bool      // the process exists for this diagnosis only
	asked              time.Time // when the process was started, if it measures at once
	color              string
	jvm                jvmFlags
	command            []string
	word               string // the name of a process that was given without a flag
}

func (a *app) diagnoseCommand() *cobra.Command {
	d := &diagnosis{app: a}
	cmd := &cobra.Command{
		Use:   "diagnose [flags] [PID | NAME | -- COMMAND ARGS...]",
		Short: "Say what holds this system back and what to change first",
		Long: `Samples the kernel's counters for --duration and prints one verdict: the
bottleneck to fix first, its arithmetic, the fix with its risk, and what would
disprove it. Without a target the whole host is diagnosed.

A number is a process id, any other word the name of a process (like --pid and
--comm). If several processes have that name and none of them started the
others, they are listed and none is diagnosed. The word diagnose may be left out
before a target.

With -- COMMAND the command is started, left alone for --delay (its start-up),
and diagnosed. What it prints goes to the standard error. If it still runs when
the diagnosis is over, it is ended (SIGTERM, after 5 s SIGKILL); its exit status
is in the report.

Ctrl-C ends the observation and prints the report of what was seen so far. On a
terminal, a report longer than the screen goes through $PAGER (default less; cat
or an empty value turns it off).

Exit codes: 0 nothing at warning or above, 1 perfdoctor failed, 2 wrong usage,
3 findings, 4 incomplete: most of what was asked for could not be assessed, or
what fills a thread or the CPUs has no name.`,
		Example: `  perfdoctor nginx                   # the same as perfdoctor diagnose nginx
  perfdoctor -p 4021 -d 30           # one process, for 30 s
  perfdoctor diagnose --container 3f2a --duration 30s
  perfdoctor diagnose --save incident.zip; perfdoctor diagnose --from incident.zip -o json
  perfdoctor diagnose --from incident.zip -o markdown  # for a ticket; -o junit for CI
  perfdoctor diagnose --from incident.zip -o html > report.html
  perfdoctor diagnose --pid 4021 --html report.html
  perfdoctor diagnose --from incident.zip --what-if quota=4
  perfdoctor diagnose --from incident.zip --redact --save public.zip
  perfdoctor diagnose --delay 20s -- java -jar app.jar`,
		ValidArgsFunction: completeTarget,
		RunE:              func(cmd *cobra.Command, args []string) error { return d.run(cmd, args) },
	}
	d.addFlags(cmd)
	return cmd
}

// addFlags adds the flags of diagnose.
func (d *diagnosis) addFlags(cmd *cobra.Command) {
	addTargetFlags(cmd, &d.selector)
	f := cmd.Flags()
	timeVarP(f, &d.duration, "duration", "d", 10*time.Second, "observe for this `time`")
	timeVar(f, &d.interval, "interval", time.Second, "`time` between samples")
	timeVar(f, &d.delay, "delay", 5*time.Second, "`time` a started command is left alone before it is diagnosed")
	command.AddOutputFlag(cmd, &d.output, reportFormats)
	f.StringVar(&d.save, "save", "", "keep the recording in the directory `PATH`, or in a zip file when it ends "+
		"in .zip")
	f.StringVar(&d.from, "from", "", "diagnose the recording at `PATH` instead of this host")
	f.StringVar(&d.and, "and", "", "follow the waits of a client's recording into the one at `PATH`, made of its "+
		"PostgreSQL server at the same time, on this host or another")
	f.StringVar(&d.whatIf, "what-if", "", "with a recording, print only the effect of a `CHANGE`: METHOD=0.5, "+
		"quota=4 or pool=20")
	d.addReadingFlags(cmd)
	f.StringArrayVar(&d.vantages, "vantage", nil,
		"add the round trips that perfdoctor ping saved to `FILE` at the same time, on a neighbour or outside; "+
			"may be repeated")
	f.BoolVar(&d.deep, "deep", false, "allow probes that cost the host more: ends of accepted connections, waits of "+
		"each thread")
	addBudgetFlag(cmd, &d.budget)
	f.BoolVar(&d.watch, "watch", false, "diagnose window after window of --duration (5s), on one screen, until "+
		"Ctrl-C; profiles no JVM")
	d.jvm.add(cmd)
}

// addReadingFlags adds the flags about what to do with a recording.
func (d *diagnosis) addReadingFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.html, "html", "", "also write the report as a web page, with charts and flame graphs, to `FILE`")
	d.addForceFlag(cmd)
	f.StringSliceVar(&d.checks, "check", nil, "run only these checks: comma-separated `NAMES`")
	f.StringArrayVar(&d.settings, "set", nil, "change a threshold: `X` is CHECK.PARAMETER=VALUE")
	f.StringVar(&d.signatures, "signatures", "", "look in the profiles for the bottlenecks of `FILE` too "+
		"(docs/signatures.md)")
	f.BoolVarP(&d.verbose, "verbose", "v", false, "print every number the checks read")
	f.BoolVar(&d.wide, "wide", false, "use the terminal's whole width, also past 160 columns")
	f.BoolVar(&d.whole, "whole", false, "look at all of a flight recorder's recording, not only at the "+
		"incident")
	d.addRedactFlag(cmd)
	addColorFlag(cmd, &d.color)
	command.CompleteFlagBy(cmd, "check", completeCheckList)
	command.CompleteFlagBy(cmd, "set", completeSettings)
}

// heapFloor is memory that is never touched, and so never resident. Go's garbage collector counts it all the same: it
// begins a cycle at twice the sum of the memory in use and this. The memory in use is 3 to 4 MiB: without heapFloor
// there would be some more cycles; with four times as much the peak is 8 MiB higher (docs/performance.md).
const heapFloor = 2 << 20

func (d *diagnosis) run(cmd *cobra.Command, args []string) error {
	floor := make([]byte, heapFloor)
	defer runtime.KeepAlive(floor)
	if err := d.addressed(cmd, args); err != nil {
		return err
	}
	f, list, opts, err := d.validate(cmd)
	if err != nil {
		return err
	}
	if d.watch {
		return d.runWatch(cmd.Context(), list, opts)
	}
	if d.alone = true; len(d.command) == 0 {
		d.asked = collect.ProcessStart()
	}
	rec, err := d.recording(cmd.Context(), list)
	if err != nil {
		return err
	}
	if d.whatIf != "" {
		return d.tellWhatIf(rec, f)
	}
	rec, unseen := d.withVantages(rec) // before the report and the file: it must not cost either of them
	if rec, err = d.redacted(rec); err != nil {
		return err
	}
	err = errors.Join(d.report(rec, list, opts, f), unseen)
	if d.save != "" { // after the report, even if nobody read that: neither may cost the other
		err = errors.Join(err, rec.SaveAs(d.save, d.how()))
	}
	return err
}

// report checks a recording and writes the findings in every form that was asked for.
func (d *diagnosis) report(rec *recording.Recording, list []*check.Check, opts check.Options, f command.Format) error {
	if !d.whole {
		rec = rec.AtIncident()
	}
	data := report.Build(rec, check.Run(rec, list, opts))
	d.Exit = data.ExitCode()
	page := html.Input{Report: data, Recording: rec, Checks: list}
	err := d.print(page, f)
	if d.html != "" {
		err = errors.Join(err, d.writePage(page))
	}
	return err
}

func (d *diagnosis) validate(cmd *cobra.Command) (command.Format, []*check.Check, check.Options, error) {
	f, err := command.ParseFormat(d.output, reportFormats)
	if err == nil {
		err = cmp.Or(d.validateWatch(cmd), d.validateTimes(), validateBudget(d.budget),
			checkTargetFlags(cmd, d.selector),
			d.jvm.validate(cmd), d.validateSource(cmd), d.validateSave(cmd, &d.save))
	}
	if err != nil {
		return "", nil, check.Options{}, err
	}
	list, opts, err := d.validateReading(cmd)
	return f, list, opts, err
}

// validateReading checks the flags of addReadingFlags and returns the checks to run.
func (d *diagnosis) validateReading(cmd *cobra.Command) ([]*check.Check, check.Options, error) {
	if err := cmp.Or(validateColor(d.color), d.validatePage(cmd), d.validateRedact(cmd)); err != nil {
		return nil, check.Options{}, err
	}
	if cmd.Flags().Changed("signatures") && d.signatures == "" {
		return nil, check.Options{}, command.UsageErrorf("--signatures is empty: give the path of a file")
	}
	suite, causes, err := suiteWith(d.signatures)
	if err != nil {
		return nil, check.Options{}, err
	}
	list, err := chosen(suite, d.checks)
	if err != nil {
		return nil, check.Options{}, err
	}
	params, err := parseParams(d.settings, suite, list)
	return list, check.Options{Params: params, Causes: causes}, err
}

func (d *diagnosis) validateTimes() error {
	switch {
	case d.interval < minInterval:
		return command.UsageErrorf("--interval %v is too short: give at least %v", d.interval, minInterval)
	case d.duration <= 0:
		return command.UsageErrorf("--duration %v: give a positive time such as 10s", d.duration)
	case d.duration < d.interval:
		return command.UsageErrorf("--duration %v is shorter than --interval %v: a rate needs two samples", d.duration,
			d.interval)
	case d.duration > maxDuration:
		return command.UsageErrorf("--duration %v is longer than %v: run several diagnoses, for instance from a timer",
			d.duration, maxDuration)
	case d.duration/d.interval > time.Duration(maxSamples):
		return command.UsageErrorf("--duration %v at --interval %v are more than %d samples: give a longer --interval",
			d.duration, d.interval, maxSamples)
	case d.delay < 0 || d.delay > maxDuration:
		return command.UsageErrorf("--delay %v: give a time between 0 and %v", d.delay, maxDuration)
	}
	return nil
}

// validateSource finds sources and selections that are empty or contradict each other.
func (d *diagnosis) validateSource(cmd *cobra.Command) error {
	targeted, given := d.selector != (host.Selector{}), cmd.Flags().Changed
	if d.from != "" {
		return cmp.Or(d.validateFrom(targeted, given), d.validateWhatIf(given("what-if")))
	}
	switch {
	case given("and"):
		return command.UsageErrorf("--and is about a recording: it goes with --from")
	case d.whatIf != "":
		return command.UsageErrorf("--what-if is about a recording: it goes with --from")
	case d.whole:
		return command.UsageErrorf("--whole is about a recording of a flight recorder: it goes with --from")
	case given("check") && len(d.checks) == 0:
		return command.UsageErrorf("--check is empty: give names of checks, as `perfdoctor checks list` shows them")
	case given("from") && d.from == "":
		return command.UsageErrorf("--from is empty: give the path of a recording")
	case len(d.command) > 0 && targeted:
		return command.UsageErrorf("give a command after -- or a target, not both")
	case len(d.command) == 0 && given("delay"):
		return command.UsageErrorf("--delay goes with a command after --")
	}
	return nil
}

// validateFrom finds flags that do not go with a recording.
func (d *diagnosis) validateFrom(targeted bool, given func(flag string) bool) error {
	switch {
	case targeted || len(d.command) > 0:
		return command.UsageErrorf("--from reads a recording: it goes with no target or command")
	case given("save") && !given("redact"):
		return command.UsageErrorf("--from reads a recording: it goes with --save only to keep a redacted one " +
			"(--redact)")
	case given("duration") || given("interval") || given("delay") || given("deep") || given("budget"):
		return command.UsageErrorf("--from reads a recording: its --duration, --interval, --delay, --deep and " +
			"--budget are what they were")
	case given("jvm-events") || given("jvm-interval") || given("async-profiler") || given("no-jvm"):
		return command.UsageErrorf("--from reads a recording: what was profiled of a JVM is in it, or is not")
	}
	return nil
}

func (d *diagnosis) recording(ctx context.Context, list []*check.Check) (*recording.Recording, error) {
	switch {
	case d.from != "":
		return d.opened()
	case len(d.command) > 0:
		return d.recordCommand(ctx, list)
	}
	h := host.Local()
	t, described, err := d.resolve(ctx, h, d.selector)
	if err != nil {
		return nil, err
	}
	return d.collect(ctx, h, t, described, list, func() string { return endedReason(h, t) })
}

// opened reads the recording, and joins the recording of a database server if one is given with it.
func (d *diagnosis) opened() (*recording.Recording, error) {
	rec, err := recording.Open(d.from)
	if err != nil || d.and == "" {
		return rec, fromError(err)
	}
	server, err := recording.Open(d.and)
	if err != nil {
		return nil, fromError(err)
	}
	if rec, err = evidence.JoinServer(rec, server); err != nil {
		return nil, command.UsageErrorf("--and %s: %v", d.and, err)
	}
	return rec, nil
}

// An Observation says what to record, and how.
type Observation struct {
	PID                int // 0 is the whole host
	Duration, Interval time.Duration
	Deep               bool
}

// Observe records as the command diagnose does, for all checks.
func Observe(ctx context.Context, a *command.App, o Observation) (*recording.Recording, error) {
	d := &diagnosis{
		app: &app{a}, selector: host.Selector{PID: o.PID}, duration: o.Duration, interval: o.Interval, deep: o.Deep,
	}
	return d.recording(ctx, checks.Suite())
}

// fromError makes a missing or forbidden recording the caller's mistake, like a damaged one.
func fromError(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return command.UsageErrorf("%v", err)
	}
	return err
}

func (d *diagnosis) collect(ctx context.Context, h *host.Host, t host.Target, described recording.Target,
	list []*check.Check,
	ended func() string,
) (*recording.Recording, error) {
	budget, err := budgetOf(h, d.budget)
	if err != nil {
		return nil, err
	}
	progress, done := d.progress(firstPhase(described))
	defer done()
	halted := h.Halted(t)
	rec, err := collect.Run(ctx, collect.Options{
		Env:        collect.Env{Host: h, Target: t, Deep: d.deep},
		Collectors: collect.Wanted(collectors.All(collectors.Options{JVM: d.jvm.options()}), d.wantedMetrics(list)),
		Interval:   d.interval,
		Duration:   d.duration,
		Meta:       recording.Meta{Version: d.Version, Target: described},
		Tick:       progress,
		Ended:      ended,
		Budget:     budget,
		Alone:      d.alone,
		Asked:      d.asked,
	})
	if err == nil && rec.Meta.EndedEarly != "" && rec.Meta.Duration < shortestRun.Seconds() {
		return nil, fmt.Errorf("%s: too short to say anything about the host", rec.Meta.EndedEarly)
	}
	if halted = cmp.Or(h.Halted(t), halted); err == nil && halted != "" {
		m := rec.Meta
		m.Target.Halted = halted
		rec = rec.WithMeta(m)
	}
	return rec, err
}

// wantedMetrics returns the metrics that the checks read and the report's head shows. Profiles and the times of
// exchanges are also recorded for their own sake, unless the user asks for some checks only.
func (d *diagnosis) wantedMetrics(list []*check.Check) map[string]bool {
	want := map[string]bool{}
	for _, m := range []metric.Metric{metric.HostInfo, metric.CPUsOnline, metric.TargetInfo} {
		want[m.Describe().Name] = true
	}
	if len(d.checks) == 0 {
		want[metric.CPUProfileSamples.Describe().Name] = true
		want[metric.ExchangeDurations.Describe().Name] = true
	}
	for _, c := range list {
		for _, m := range c.Needs {
			want[m.Describe().Name] = true
		}
		for _, m := range c.Uses {
			want[m.Describe().Name] = true
		}
	}
	return want
}

// progress returns a function that shows the passing time on a terminal, and one that removes the line again.
func (d *diagnosis) progress(first string) (tick func(done, total time.Duration), wipe func()) {
	if !isTerminal(d.Streams.Err) {
		return nil, func() {}
	}
	columns, _, ok := sizeOf(d.Streams.Err)
	if !ok { // a terminal that does not report its size
		columns = leastColumns
	}
	show := func(done, total time.Duration) {
		phase := first
		switch {
		case done >= total && total > 0:
			phase = "reading what was recorded"
		case done > 0:
			phase = fmt.Sprintf("%.0f of %.0f s", done.Seconds(), total.Seconds())
		}
		d.Streams.Say("\r\x1b[K%s", progressLine(phase, done, total, columns))
	}
	show(0, d.duration)
	return show, func() { d.Streams.Say("\r\x1b[K") }
}

// leastColumns is the width of the narrowest terminal for which a report is laid out.
const leastColumns = 60

// progressCells are the cells of the bar of a whole diagnosis.
const progressCells = 20

// progressLine is a bar with its phase, in one line of a terminal with that many columns. The last column stays free,
// because some terminals go to the next line after it.
func progressLine(phase string, done, total time.Duration, columns int) string {
	full := 0
	if total > 0 {
		full = int(min(max(progressCells*done/total, 0), progressCells))
	}
	line := []rune(strings.Repeat("█", full) + strings.Repeat("░", progressCells-full) + "  " + phase +
		"  (Ctrl-C: report of what was seen so far)")
	return string(line[:min(len(line), max(columns-1, 0))])
}

// firstPhase names what is done before the first second is over.
func firstPhase(t recording.Target) string {
	if t.Runtime == string(host.RuntimeJVM) {
		return "attaching to the JVM"
	}
	return "starting the collectors"
}

func (d *diagnosis) print(page html.Input, f command.Format) error {
	data := page.Report
	switch f {
	case command.HTML:
		return command.OutputError(html.Write(d.Streams.Out, page))
	case command.JSON:
		return command.OutputError(data.JSON(d.Streams.Out))
	case command.Markdown:
		return command.OutputError(data.Markdown(d.Streams.Out))
	case command.JUnit:
		return command.OutputError(data.JUnit(d.Streams.Out))
	}
	return d.shown(data)
}
