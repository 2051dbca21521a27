// Package report turns a diagnosis into something to read: [Build] computes everything once, the renderers only print
// it.
//
// Its input is a recording and the result of the checks. It reads no clock and no host, so that one recording yields
// the same report everywhere, byte for byte.
package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// Schema is the version of the JSON report (docs/report-schema.md). It rises when a field is removed or changes its
// meaning.
const Schema = 1

// The exit codes that a diagnosis can have. A report never returns 1 and 2 (perfdoctor failed, usage).
const (
	exitFine       = 0
	exitFindings   = 3
	exitIncomplete = 4 // most of what was asked for could not be read, or it is not known what fills something
)

// Data is a whole report, ready to print. Its JSON form is the documented schema.
type Data struct {
	Schema      int              `json:"schema"`
	Version     string           `json:"perfdoctor"` // the version that recorded
	ExitStatus  int              `json:"exit_code"`  // as ExitCode returns it
	Target      recording.Target `json:"target"`
	Host        Host             `json:"host"`
	Window      Window           `json:"window"`
	Incident    *Incident        `json:"incident,omitempty"` // of a recording made by a flight recorder
	Verdict     Verdict          `json:"verdict"`
	Findings    []Finding        `json:"findings"`              // in reading order: each cause, then its consequences
	ThreadTime  *ledger.Ledger   `json:"thread_time,omitempty"` // of a target
	CPUTime     *CPUTime         `json:"cpu_time,omitempty"`    // with a CPU profile
	Waits       []Wait           `json:"waits,omitempty"`       // with a wall-clock profile, the most first
	Fine        []Fine           `json:"fine"`
	NotAssessed []Gap            `json:"not_assessed"`
	NoConcern   []Gap            `json:"not_applicable"` // checks about other kinds of target
	Cost        Cost             `json:"cost"`

	Consumers *evidence.Consumption `json:"consumers,omitempty"` // who had the machine; of a target, what was beside it

	Redacted *recording.Redaction `json:"redacted,omitempty"` // names are pseudonyms

	Resources []Resource `json:"-"` // how much of each is used, what waits for it; from the same numbers as the findings

	Numbers   []keynumber.Number    `json:"numbers"`             // key numbers over the window, as far as they are known
	Exchanges []keynumber.Exchanges `json:"exchanges,omitempty"` // of the target over TCP, by endpoint

	unexplained *check.Outcome // the first check without an answer that matters
}

// Host holds the facts about the machine. A fact that was not recorded is empty or zero.
type Host struct {
	Kernel         string `json:"kernel,omitempty"`
	Machine        string `json:"machine,omitempty"`
	CPUModel       string `json:"cpu_model,omitempty"`
	Virtualization string `json:"virtualization,omitempty"`
	CPUs           int    `json:"cpus_online,omitempty"`
}

// Window says when perfdoctor observed, and for how long.
type Window struct {
	Started    time.Time `json:"started"`
	Seconds    float64   `json:"seconds"`
	Asked      float64   `json:"asked_seconds"`
	Interval   float64   `json:"interval_seconds"`
	EndedEarly string    `json:"ended_early,omitempty"` // why it is shorter than asked
}

// Result is the outcome of a report.
type Result string

// The results. "Nothing found" and "nothing looked at" differ: the second says nothing about the host.
const (
	Bottleneck      Result = "bottleneck"
	NoBottleneck    Result = "no bottleneck found"
	NothingAssessed Result = "nothing assessed"
	Incomplete      Result = "incomplete"
)

// Verdict is the one thing to know. Its counts are numbers of checks.
type Verdict struct {
	Result      Result `json:"result"`
	Principal   string `json:"principal,omitempty"` // id of the finding to act on first
	Summary     string `json:"summary"`             // one sentence
	WithFinding int    `json:"checks_with_findings"`
	Fine        int    `json:"checks_fine"`
	NotAssessed int    `json:"checks_not_assessed"`
	NoConcern   int    `json:"checks_not_applicable"`
	Blocked     int    `json:"checks_blocked,omitempty"` // not assessed because a right was missing or something failed
}

// Role is a finding's place in the report.
type Role string

// The roles, in reading order. A consequence stands under its cause, whatever place the cause has.
const (
	Principal   Role = "principal"
	Consequence Role = "consequence"
	Further     Role = "further"
	Beside      Role = "beside" // about others on the host than the target
	Note        Role = "info"
)

// Finding is a check's finding with its place in the report.
type Finding struct {
	ID    string `json:"id"` // check and subject
	Role  Role   `json:"role"`
	Cause string `json:"root_cause,omitempty"` // id of the finding at the end of the explained_by chain
	check.Finding
}

// Fine is a check that was assessed and found nothing.
type Fine struct {
	Check string           `json:"check"`
	Stage check.Stage      `json:"stage"`
	Read  []quantity.Value `json:"read"` // what it looked at
}

// Gap is one reason why checks could not be assessed.
type Gap struct {
	Reason string   `json:"reason"`
	Remedy string   `json:"remedy,omitempty"`
	Checks []string `json:"checks"`
}

// Cost is what perfdoctor itself used and lost.
type Cost struct {
	recording.Cost
	// CPU time of its programs in the kernel, which is not in CPU
	BPF        float64                     `json:"bpf_seconds,omitempty"`
	Collectors []recording.CollectorStatus `json:"collectors"`
}

// Build computes the report of a recording and the result of its checks.
func Build(rec *recording.Recording, res *check.Result) *Data {
	m := rec.Meta
	res = headline(m.Incident, res)
	d := &Data{
		Schema: Schema, Version: m.Version, Target: m.Target, Host: hostOf(rec),
		Window: Window{m.Started.UTC(), m.Duration, m.Asked, m.Interval, m.EndedEarly}, Incident: incidentOf(m),
		Redacted: m.Redacted,
		Findings: arrange(res), ThreadTime: threadTimeOf(rec), CPUTime: cpuTimeOf(rec), Waits: waitsOf(rec),
		Fine: []Fine{}, NotAssessed: []Gap{}, NoConcern: []Gap{}, Consumers: consumersOf(rec),
		Cost:    Cost{m.Cost, bpfSeconds(rec), append([]recording.CollectorStatus{}, m.Collectors...)},
		Numbers: keynumber.Of(rec), Exchanges: keynumber.ExchangesOf(rec),
	}
	for _, o := range res.Outcomes {
		d.addOutcome(o)
	}
	d.Resources = resourcesOf(rec, d)
	d.Verdict.decide(d)
	d.ExitStatus = d.ExitCode()
	return d
}

// Pseudonyms says what happened to the names in a redacted recording, or "".
func (d *Data) Pseudonyms() string {
	if d.Redacted == nil {
		return ""
	}
	text := fmt.Sprintf("names of hosts, addresses, users, paths and groups are pseudonyms (key %s)", d.Redacted.Key)
	if left := d.Redacted.LeftOut; len(left) > 0 {
		text += "; left out, as nobody looked for names in it: " + strings.Join(left, ", ")
	}
	return text
}

// bpfSeconds adds up the CPU time of perfdoctor's own BPF programs. The kernel measured each in a part of the window;
// bpfSeconds extrapolates to all of it.
func bpfSeconds(rec *recording.Recording) float64 {
	n := 0.0
	for _, s := range rec.Counter(metric.BPFSeconds) {
		spent := s.Points[len(s.Points)-1].Value
		for _, m := range rec.Counter(metric.BPFMeasured, "program", s.Label("program")) {
			if measured := m.Points[len(m.Points)-1].Value; measured > 0 {
				spent *= max(1, rec.Meta.Duration/measured)
			}
		}
		n += spent
	}
	return n
}

// ExitCode returns 3 if a finding is at warning or above, 4 if the report is no clean bill, else 0.
func (d *Data) ExitCode() int {
	for i := range d.Findings {
		if d.Findings[i].Severity >= check.Warning {
			return exitFindings
		}
	}
	if d.Verdict.Result == Incomplete || d.Verdict.incomplete() {
		return exitIncomplete
	}
	return exitFine
}

func hostOf(rec *recording.Recording) Host {
	var h Host
	for _, s := range rec.Info(metric.HostInfo) {
		h = Host{
			Kernel: s.Label("kernel"), Machine: s.Label("machine"),
			CPUModel: s.Label("cpu_model"), Virtualization: s.Label("virtualization"),
		}
	}
	for _, s := range rec.Gauge(metric.CPUsOnline) {
		h.CPUs = int(s.Last())
	}
	return h
}

func (d *Data) addOutcome(o check.Outcome) {
	if o.Matters && d.unexplained == nil {
		d.unexplained = &o
	}
	switch o.State {
	case check.Found:
		d.Verdict.WithFinding++
	case check.Fine:
		d.Verdict.Fine++
		d.Fine = append(d.Fine, Fine{o.Check, o.Stage, append([]quantity.Value{}, o.Read...)})
	case check.Inapplicable:
		d.Verdict.NoConcern++
		d.NoConcern = addGap(d.NoConcern, o)
	default:
		d.Verdict.NotAssessed++
		if o.Blocked {
			d.Verdict.Blocked++
		}
		d.NotAssessed = addGap(d.NotAssessed, o)
	}
}

// addGap puts checks with the same reason and remedy together: one missing right stops many.
func addGap(list []Gap, o check.Outcome) []Gap {
	i := slices.IndexFunc(list, func(g Gap) bool { return g.Reason == o.Reason && g.Remedy == o.Remedy })
	if i < 0 {
		return append(list, Gap{o.Reason, o.Remedy, []string{o.Check}})
	}
	list[i].Checks = append(list[i].Checks, o.Check)
	return list
}

func (v *Verdict) decide(d *Data) {
	if len(d.Findings) > 0 && d.Findings[0].Role == Principal {
		v.Result, v.Principal, v.Summary = Bottleneck, d.Findings[0].ID, d.Findings[0].Summary
		return
	}
	if o := d.unexplained; o != nil {
		v.Result = Incomplete
		v.Summary = fmt.Sprintf("Nothing was found at warning or above, but %s. %s would say more. To change that: %s.",
			o.Reason, o.Check, o.Remedy)
		return
	}
	assessed := v.WithFinding + v.Fine
	window := quantity.Of("", d.Window.Seconds, quantity.Seconds).Text()
	if assessed > 0 && v.incomplete() {
		v.Result = Incomplete
		v.Summary = fmt.Sprintf("In %s, only %s %s assessed, and what %s to know could not be read: "+
			"this is no clean bill of health. To change that: %s.", window, plural(assessed, "check"), were(assessed),
			needs(v.Blocked), d.wayOut())
		return
	}
	if assessed == 0 {
		v.Result = NothingAssessed
		v.Summary = fmt.Sprintf("None of the %s could run in %s: the state of the host is unknown.",
			plural(v.NotAssessed, "check"), window)
		if v.incomplete() {
			v.Summary += " To change that: " + d.wayOut() + "."
		}
		return
	}
	v.Result = NoBottleneck
	_, lead := d.lead()
	v.Summary = lead + fmt.Sprintf("%s ran for %s and found no fault", plural(assessed, "check"), window)
	if v.NotAssessed > 0 {
		v.Summary += fmt.Sprintf("; %d could not run", v.NotAssessed)
	}
	v.Summary += "."
}

// fullOf is the share of a host's CPUs from which on only scraps of time are left for more work.
const fullOf = 0.95

// queueAtCPUs reports whether threads queue for the CPUs all the time, as cpu-saturated has it: then the CPUs are full
// even if now and then one of them has a pause.
func (d *Data) queueAtCPUs() bool {
	return slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Check == "cpu-saturated" })
}

// fullCPUs says that the CPUs of the host are full, and who has most of them. It is "" if they are not full.
func (d *Data) fullCPUs() string {
	c := d.Consumers
	if c == nil || len(c.List) == 0 || c.Busy < fullOf*c.CPUs && !d.queueAtCPUs() {
		return ""
	}
	sum, names, verb := 0.0, []string{}, "has"
	for i, x := range c.List[:min(len(c.List), namedConsumers)] { // the first is the largest
		if i > 0 && x.CPUs < leastOf*c.CPUs {
			break
		}
		sum += x.CPUs
		if names = append(names, evidence.ConsumerName(x)); len(names) > 1 {
			verb = "have"
		}
		if sum >= mostOf*c.Busy {
			break
		}
	}
	rest := ""
	if c.Unaccounted > sum {
		rest = fmt.Sprintf(", and processes that started and ended meanwhile have %s", cpusNumber(c.Unaccounted))
	}
	return fmt.Sprintf("The CPUs are full: %s %s %s of %s%s", strings.Join(names, " and "), verb, cpusNumber(sum),
		cpusText(c.CPUs), rest)
}

// lead returns the beginning of the answer if no finding is a warning: the heading, and a sentence that says why.
// Both are "" if nothing is so remarkable.
func (d *Data) lead() (heading, text string) {
	full, f := d.fullCPUs(), d.leading()
	switch {
	case full != "" && f != nil && f.Lead.Heading == busy:
		return busy, full + "; " + f.Lead.Why + ". "
	case full != "":
		return busy, full + ". "
	case f != nil:
		return f.Lead.Heading, strings.ToUpper(f.Lead.State[:1]) + f.Lead.State[1:] + ": " + f.Lead.Why + ". "
	}
	return "", ""
}

// leading returns the finding of a target that is no fault but that a reader wants to know first, or nil.
func (d *Data) leading() *Finding {
	full := d.fullCPUs() != ""
	i := slices.IndexFunc(d.Findings, func(f Finding) bool {
		return f.Role == Note && f.Lead.Heading != "" && (full || f.Lead.State != "")
	})
	if i < 0 || d.wholeHost() {
		return nil
	}
	return &d.Findings[i]
}

const busy = "busy"

// Bounds of the sentence about who fills the CPUs. It names as many as have most of the time, but no more than a
// sentence holds, and nobody who has only a crumb of it.
const (
	mostOf         = 0.8
	leastOf        = 0.1
	namedConsumers = 3
)

// Heading is the answer in a few words, as a reader sees it.
func (d *Data) Heading() string {
	result := string(d.Verdict.Result)
	if d.Verdict.Result != NoBottleneck {
		return result
	}
	if heading, _ := d.lead(); heading != "" {
		return heading + ", " + result
	}
	return result
}

// incomplete reports whether more checks lacked their numbers than were assessed. Checks that do not apply here do
// not count.
func (v *Verdict) incomplete() bool { return v.Blocked > v.WithFinding+v.Fine }

func needs(n int) string {
	if n == 1 {
		return "1 further check needs"
	}
	return fmt.Sprintf("%d further checks need", n)
}

// Doubt says that a report with a finding covers the smaller part of what was asked for, or "".
func (d *Data) Doubt() string {
	if d.Verdict.Result != Bottleneck || !d.Verdict.incomplete() {
		return ""
	}
	return fmt.Sprintf("what %s to know could not be read; to change that: %s", needs(d.Verdict.Blocked), d.wayOut())
}

// wayOut returns what would let most of the blocked checks see. If nothing was denied, no right is missing. It does
// not name sudo then: root is not told to become root.
func (d *Data) wayOut() string {
	denied := false
	for _, c := range d.Cost.Collectors {
		if outOfFiles(c.Reason) {
			return "ulimit -n 1024" // the usual soft limit, at which all collectors can open their files
		}
		if c.Status == recording.StatusUnsupported && c.Name == "cpu" {
			return "run perfdoctor where /proc is mounted, in a container with --pid=host"
		}
		denied = denied || c.Status == recording.StatusDenied
	}
	if !denied {
		return "see the reasons of what was not assessed"
	}
	if d.Target.PID != 0 {
		return fmt.Sprintf("sudo perfdoctor diagnose --pid %d", d.Target.PID)
	}
	return "sudo perfdoctor diagnose"
}

// arrange puts the findings in reading order: the principal one and its consequences, the further causes by stage,
// each with its own consequences, and the FYI.
func arrange(res *check.Result) []Finding {
	all := make([]Finding, len(res.Findings))
	times := map[string]int{}
	for i := range res.Findings {
		f := res.Findings[i]
		f.Evidence = append([]quantity.Value{}, f.Evidence...)
		all[i] = Finding{ID: f.ID(), Cause: rootCause(res.Findings, &f), Finding: f}
		if times[f.ID()]++; times[f.ID()] > 1 { // a check that says two things about one subject
			all[i].ID = fmt.Sprintf("%s #%d", f.ID(), times[f.ID()])
		}
		all[i].Role = role(&all[i], i == 0 && res.Principal() != nil)
	}
	out := []Finding{}
	for _, c := range causes(all) {
		out = append(out, c)
		for _, f := range all {
			if f.Role == Consequence && f.Cause == c.ID {
				out = append(out, f)
			}
		}
	}
	return out
}

func role(f *Finding, principal bool) Role {
	switch {
	case f.Cause != "":
		return Consequence
	case principal:
		return Principal
	case f.Beside && f.Severity >= check.Warning:
		return Beside
	case f.Severity >= check.Warning:
		return Further
	}
	return Note
}

// rootCause follows explained_by to its end. It is empty if the finding has no cause, or none that the report could
// show (a ring).
func rootCause(findings []check.Finding, f *check.Finding) string {
	root := ""
	for range len(findings) + 1 {
		i := slices.IndexFunc(findings, func(c check.Finding) bool { return c.ID() == f.ExplainedBy })
		if f.ExplainedBy == "" || i < 0 {
			return root
		}
		f = &findings[i]
		root = f.ID()
	}
	return ""
}

func causes(all []Finding) []Finding {
	place := map[Role]int{Principal: 0, Further: 1, Beside: 2, Note: 3}
	var out []Finding
	for _, f := range all {
		if f.Role != Consequence {
			out = append(out, f)
		}
	}
	slices.SortStableFunc(out, func(a, b Finding) int {
		return cmp.Compare(place[a.Role], place[b.Role])
	})
	return out
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func were(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}
