package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// TextOptions adjust the text report.
type TextOptions struct {
	Color   bool // write terminal colours
	Width   int  // columns; 80 when zero
	Verbose bool // every finding in full, and every value that was read
}

// sameCheck is how many findings of one check are shown in a row before the rest is counted: a check that accuses forty
// destinations must not push everything else off the screen.
const sameCheck = 3

// highest is how many of the fine checks show their number: enough to see what comes next, few enough to read.
const highest = 4

// Text writes the report for a person.
func (d *Data) Text(w io.Writer, opts TextOptions) error {
	t := &text{page: newPage(opts), d: d, verbose: opts.Verbose}
	t.header()
	t.verdict()
	t.further()
	t.infos()
	t.overTime()
	t.who()
	t.threadTime()
	t.cpuTime()
	t.waits()
	t.fine()
	t.notAssessed()
	t.noConcern()
	t.cost()
	if _, err := io.WriteString(w, t.b.String()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// VerdictText writes the part of the report about the verdict: the finding to act on first, in full, with its
// consequences.
func (d *Data) VerdictText(w io.Writer, opts TextOptions) error {
	t := &text{page: newPage(opts), d: d}
	t.verdict()
	if _, err := io.WriteString(w, t.b.String()); err != nil {
		return fmt.Errorf("write the verdict: %w", err)
	}
	return nil
}

type text struct {
	*page
	d       *Data
	verbose bool
}

func (t *text) header() {
	v := t.d.Version
	if v == "" {
		v = "(unknown version)"
	}
	t.line(bold, "perfdoctor ", "  ", v+": "+t.target())
	t.line(plain, "", "  ", t.when())
	if i := t.d.Incident; i != nil {
		t.line(plain, "", "  ", i.Text())
	}
	if t.d.Window.EndedEarly != "" {
		asked := quantity.Of("", t.d.Window.Asked, quantity.Seconds).Text()
		t.line(yellow, "Ended early: ", "  ", fmt.Sprintf("%s (%s of %s asked for)", t.d.Window.EndedEarly, t.seconds(),
			asked))
	}
	if t.d.Target.Halted != "" {
		t.line(yellow, "Halted: ", "  ", t.d.Target.Halted)
	}
	if doubt := t.d.Doubt(); doubt != "" {
		t.line(yellow, "Incomplete: ", "  ", doubt)
	}
	if names := t.d.Pseudonyms(); names != "" {
		t.line(plain, "Redacted: ", "  ", names)
	}
	t.blank()
}

// Text says which part of a flight recorder's recording the report is about, and why it was kept.
func (i *Incident) Text() string {
	recorded := quantity.Of("", i.Recorded, quantity.Seconds).Text()
	if i.Whole {
		return fmt.Sprintf("all of the %s that a flight recorder kept because of %s: %s, which began at %s", recorded,
			i.Check, i.Subject,
			i.Began.Format("15:04:05 UTC"))
	}
	return fmt.Sprintf("of %s that a flight recorder kept, the part with %s: %s; --whole is about all of it", recorded,
		i.Check, i.Subject)
}

func (t *text) seconds() string { return quantity.Of("", t.d.Window.Seconds, quantity.Seconds).Text() }

func (t *text) target() string {
	tg := t.d.Target
	if tg.Kind == "host" || tg.Kind == "" {
		return "the whole host"
	}
	parts := []string{targetName(tg)}
	if tg.Runtime != "" {
		parts = append(parts, tg.Runtime)
	}
	if tg.Container != "" && tg.Kind != "container" {
		parts = append(parts, "container "+shortID(tg.Container))
	}
	if tg.Cgroup != "" && tg.Cgroup != "/" && (tg.PID != 0 || t.verbose) {
		parts = append(parts, "cgroup "+tg.Cgroup)
	}
	if t.verbose && len(tg.Cmdline) > 0 {
		parts = append(parts, "command "+strings.Join(tg.Cmdline, " "))
	}
	return strings.Join(parts, ", ")
}

// targetName gives "process 4021 (java)" or "cgroup /app.slice".
func targetName(tg recording.Target) string {
	what := tg.Kind
	if tg.PID != 0 {
		what += fmt.Sprintf(" %d", tg.PID)
	}
	switch {
	case tg.Name != "" && tg.PID != 0:
		what += " (" + tg.Name + ")"
	case tg.Name != "":
		what += " " + tg.Name
	}
	return what
}

// shortID cuts a container id to the 12 digits that docker ps and crictl ps show.
func shortID(id string) string {
	if rs := []rune(id); len(rs) > 12 {
		return string(rs[:12])
	}
	return id
}

func (t *text) when() string {
	h := t.d.Host
	s := fmt.Sprintf("%s from %s", t.seconds(), t.d.Window.Started.Format("2006-01-02 15:04:05 UTC"))
	var facts []string
	if h.Kernel != "" {
		facts = append(facts, "kernel "+h.Kernel)
	}
	if h.CPUs > 0 {
		facts = append(facts, plural(h.CPUs, "CPU"))
	}
	if h.Virtualization != "" {
		facts = append(facts, h.Virtualization)
	}
	if t.verbose && h.CPUModel != "" {
		facts = append(facts, h.CPUModel)
	}
	if len(facts) > 0 {
		s += "; " + strings.Join(facts, ", ")
	}
	return s
}

func (t *text) verdict() {
	if t.d.Verdict.Result == Bottleneck {
		f := &t.d.Findings[0]
		t.full(f)
		t.consequences(f)
		return
	}
	st := green
	if r := t.d.Verdict.Result; r == NothingAssessed || r == Incomplete {
		st = yellow
	}
	t.line(st, strings.ToUpper(string(t.d.Verdict.Result)), "", "")
	t.line(plain, "  ", "  ", t.d.Verdict.Summary)
}

// full prints a finding with all that is needed to act on it and to doubt it.
func (t *text) full(f *Finding) {
	t.line(severityStyle(f.Severity), strings.ToUpper(f.Severity.String())+"  ", "  ", f.Check+": "+f.Subject.String())
	t.line(plain, "  ", "  ", f.Summary)
	t.blank()
	for _, e := range f.Evidence {
		t.line(plain, "    ", "      ", e.String())
	}
	for _, n := range f.Notes {
		t.line(plain, "    ", "      ", n)
	}
	if len(f.FixFirst) > 0 {
		t.line(yellow, "  First     ", "            ", "fix "+strings.Join(f.FixFirst, ", ")+": what a profile "+
			"shows changes with it")
	}
	for i, r := range f.Remedies {
		t.remedy(i, r)
	}
	for _, p := range f.Placebos {
		t.line(bold, "  No help   ", "            ", p)
	}
	if f.Disproof != "" {
		t.line(bold, "  Wrong if  ", "            ", f.Disproof)
	}
	t.line(bold, "  Sure?     ", "            ", sure(f))
	t.line(bold, "  More      ", "            ", "perfdoctor checks explain "+f.Check)
}

// remedy prints the first cure in full and the others with what they risk: nobody may pick one without having seen
// that.
func (t *text) remedy(i int, r check.Remedy) {
	head, indent := "  Or        ", "            "
	if i == 0 {
		t.blank()
		head = "  Cure      "
	}
	t.line(bold, head, indent, r.Action)
	if r.Command != "" {
		t.command(indent, string(r.Command))
	}
	if i == 0 || t.verbose {
		t.code(indent, "before: ", r.Before)
		t.code(indent, "after:  ", r.After)
	}
	if r.Effect != "" && (i == 0 || t.verbose) {
		t.line(plain, indent+"moves: ", indent+"  ", r.Effect)
	}
	if r.Risk != "" {
		t.line(plain, indent+"risk: ", indent+"  ", r.Risk)
	}
}

// code prints lines of a program whole, like commands: broken ones read as others.
func (t *text) code(indent, head, lines string) {
	for _, l := range strings.Split(strings.TrimSpace(lines), "\n") {
		if l != "" {
			t.b.WriteString(indent + head + clean(l) + "\n")
		}
		head = strings.Repeat(" ", len(head))
	}
}

func sure(f *Finding) string {
	s := f.Confidence.String() + " confidence"
	if len(f.Doubts) > 0 {
		s += ": " + strings.Join(f.Doubts, "; ")
	}
	return s
}

func severityStyle(s check.Severity) style {
	switch s {
	case check.Critical:
		return red
	case check.Warning:
		return yellow
	}
	return cyan
}

// consequences prints one line each for what the finding explains.
func (t *text) consequences(cause *Finding) {
	list := t.withRole(Consequence, cause.ID)
	if len(list) == 0 {
		return
	}
	t.line(bold, "  Leads to  ", "            ", "(consequences: look again after the cure)")
	t.each(list, func(f *Finding) {
		t.line(severityStyle(f.Severity), "    "+f.Severity.String()+"  ", "      ", f.Check+": "+f.Summary)
	}, "      ")
}

func (t *text) withRole(r Role, cause string) []*Finding {
	var out []*Finding
	for i := range t.d.Findings {
		if f := &t.d.Findings[i]; f.Role == r && f.Cause == cause {
			out = append(out, f)
		}
	}
	return out
}

// each shows the first few findings of every check and counts the others.
func (t *text) each(list []*Finding, show func(*Finding), indent string) {
	shown, left := map[string]int{}, map[string]int{}
	var names []string
	for _, f := range list {
		if shown[f.Check] < sameCheck || t.verbose {
			shown[f.Check]++
			show(f)
			continue
		}
		if left[f.Check]++; left[f.Check] == 1 {
			names = append(names, f.Check)
		}
	}
	for _, n := range names {
		t.line(faint, indent, indent, fmt.Sprintf("and %d more of %s (-v shows them)", left[n], n))
	}
}

func (t *text) further() {
	t.list("ALSO FOUND, the largest first", t.withRole(Further, ""))
	t.list("BESIDE THE TARGET, about other processes of this host", t.withRole(Beside, ""))
}

func (t *text) list(title string, list []*Finding) {
	if len(list) == 0 {
		return
	}
	t.blank()
	t.line(bold, title, "", "")
	var last *Finding
	t.each(list, func(f *Finding) {
		if t.verbose {
			t.blank()
			t.full(f)
		} else {
			t.compact(f, last)
		}
		last = f
		t.consequences(f)
	}, "  ")
}

// compact prints a finding in a few lines; one of the same check as the last only says about whom it is and what
// differs.
func (t *text) compact(f, last *Finding) {
	if last != nil && last.Check == f.Check {
		also := f.Subject.String()
		if f.Summary != last.Summary {
			also += ": " + f.Summary
		}
		t.line(severityStyle(f.Severity), "  and "+f.Severity.String()+"  ", "    ", also)
		return
	}
	t.line(severityStyle(f.Severity), f.Severity.String()+"  ", "  ", f.Check+": "+f.Subject.String())
	t.line(plain, "  ", "  ", f.Summary)
	if len(f.Evidence) > 0 {
		t.line(plain, "    ", "      ", f.Evidence[0].String())
	}
	if len(f.FixFirst) > 0 {
		t.line(yellow, "  First     ", "            ", "fix "+strings.Join(f.FixFirst, ", ")+": what a profile "+
			"shows changes with it")
	}
	more := "perfdoctor checks explain " + f.Check
	if len(f.Remedies) > 0 {
		more = strings.TrimSuffix(f.Remedies[0].Action, ".") + ". Risk and more: " + more
	}
	t.line(bold, "  Cure      ", "            ", more)
}

func (t *text) infos() {
	list := t.withRole(Note, "")
	if len(list) == 0 {
		return
	}
	t.blank()
	t.line(bold, "WORTH KNOWING, no fault by itself", "", "")
	t.each(list, func(f *Finding) {
		if t.verbose {
			t.full(f)
			return
		}
		t.line(cyan, "  "+f.Check+": ", "    ", f.Summary)
	}, "    ")
}

// fine says in one line what was looked at and is well; the shares show which check comes closest to speaking.
func (t *text) fine() {
	if len(t.d.Fine) == 0 {
		return
	}
	t.blank()
	if t.verbose {
		t.line(bold, "FINE  ", "", plural(len(t.d.Fine), "check")+" assessed, nothing found")
		t.allRead()
		return
	}
	text := plural(len(t.d.Fine), "check") + " assessed, nothing found (-v lists them)"
	if top := t.highestShares(); len(top) > 0 {
		text += "; highest shares: " + strings.Join(top, ", ")
	}
	t.line(bold, "FINE  ", "  ", text)
}

func (t *text) allRead() {
	for _, f := range t.d.Fine {
		t.line(plain, "  ", "    ", f.Check)
		for _, v := range f.Read {
			t.line(plain, "    ", "      ", v.String())
		}
	}
}

// highestShares gives the fine checks whose first value is the largest share of something: what will be noticed next.
func (t *text) highestShares() []string {
	var list []Fine
	for _, f := range t.d.Fine {
		if len(f.Read) > 0 && f.Read[0].Unit() == quantity.Ratio && f.Read[0].Number() > 0 {
			list = append(list, f)
		}
	}
	slices.SortStableFunc(list, func(a, b Fine) int { return cmp.Compare(b.Read[0].Number(), a.Read[0].Number()) })
	var out []string
	for _, f := range list[:min(len(list), highest)] {
		out = append(out, f.Check+" "+f.Read[0].Text())
	}
	return out
}

func (t *text) notAssessed() {
	if len(t.d.NotAssessed) == 0 {
		return
	}
	t.blank()
	t.line(bold, "NOT ASSESSED  ", "  ", plural(t.d.Verdict.NotAssessed, "check")+": nothing is known about these")
	for _, g := range t.d.NotAssessed {
		t.line(plain, "  ", "    ", strings.Join(g.Checks, ", ")+": "+g.Reason)
		if g.Remedy != "" {
			t.line(plain, "    -> ", "       ", g.Remedy)
		}
	}
}

// noConcern says in a line what was not looked at because the target is of another kind.
func (t *text) noConcern() {
	for _, g := range t.d.NoConcern {
		text := plural(len(g.Checks), "check") + ": " + g.Reason
		if t.verbose {
			text += " (" + strings.Join(g.Checks, ", ") + ")"
		}
		t.blank()
		t.line(bold, "DOES NOT APPLY  ", "  ", text)
	}
}

func (t *text) cost() {
	c := t.d.Cost
	sec := func(n float64) string { return quantity.Of("", n, quantity.Seconds).Text() }
	t.blank()
	programs := ""
	if c.BPF > 0 {
		programs = " and " + sec(c.BPF) + " in BPF programs"
	}
	t.line(bold, "PERFDOCTOR ITSELF  ", "  ", fmt.Sprintf("%s wall, %s CPU%s, %s; %s, %d late, %d lost", sec(c.Wall),
		sec(c.CPU), programs,
		quantity.Of("", float64(c.MaxRSS), quantity.Bytes).Text(), plural(c.Samples, "sample"), c.Late, c.Lost))
	for _, g := range c.GivenUp {
		t.line(yellow, "Given up: ", "    ", g.Text())
	}
	for _, col := range c.Collectors {
		for _, l := range col.Lost {
			t.line(plain, "  ", "    ", fmt.Sprintf("%s lost %d: %s", col.Name, l.Count, l.What))
		}
		if t.verbose {
			t.line(plain, "  ", "    ", fmt.Sprintf("%s: %s, %s, %d late, %s in all, slowest %s", col.Name, col.Status,
				plural(col.Samples, "sample"), col.Late, sec(col.Busy), sec(col.Longest)))
		}
	}
	if t.d.Target.ExitStatus != "" {
		t.line(plain, "The command ended: ", "  ", t.d.Target.ExitStatus)
	}
	if t.d.Target.NetNSDenied != "" {
		t.line(plain, "", "  ", "The target's network namespace could not be entered: "+t.d.Target.NetNSDenied)
	}
}
