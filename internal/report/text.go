package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// TextOptions adjust the text report.
type TextOptions struct {
	Color   bool // use terminal colours
	Width   int  // columns; 80 when zero
	Verbose bool // every finding in full, and every value that was read
}

// sameCheck is how many findings of one check are shown in a row before the rest are counted: a check that accuses
// forty destinations must not push everything else off the screen.
const sameCheck = 3

// shownInfos is how many facts that are no fault are shown without -v.
const shownInfos = 3

// Text writes the report for a person: the answer first, then the machine's resources, what else was found, who has
// the machine, where the time goes, and in one line what passed and what could not run.
func (d *Data) Text(w io.Writer, opts TextOptions) error {
	t := &text{page: newPage(opts), d: d, verbose: opts.Verbose}
	t.header()
	f, shown := t.verdict()
	t.strip()
	t.timeline()
	t.details(f, shown)
	t.further()
	t.infos()
	t.who()
	t.threadTime()
	t.cpuTime()
	t.waits()
	t.overTime()
	t.coverage()
	t.passed()
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
	t := &text{page: newPage(opts), d: d, verbose: opts.Verbose}
	t.details(t.verdict())
	if _, err := io.WriteString(w, t.b.String()); err != nil {
		return fmt.Errorf("write the verdict: %w", err)
	}
	return nil
}

type text struct {
	*page
	d       *Data
	verbose bool
	bySize  bool // consumers by memory
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

// targetName returns "process 4021 (java)" or "cgroup /app.slice".
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

func severityStyle(s check.Severity) style {
	switch s {
	case check.Critical:
		return red
	case check.Warning:
		return yellow
	}
	return cyan
}

// consequences prints one line for each finding that the cause explains.
func (t *text) consequences(cause *Finding) {
	list := t.withRole(Consequence, cause.ID)
	if len(list) == 0 {
		return
	}
	t.label("Leads to", "look again after the fix:")
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
	t.list("ALSO FOUND, largest first", t.withRole(Further, ""))
	t.list("OTHER PROCESSES ON THIS HOST", t.withRole(Beside, ""))
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

// compact prints a finding in a few lines. If the last finding was of the same check, it prints only whom this one is
// about and what differs.
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
	t.fixFirst(f)
	more := explain(f)
	if len(f.Remedies) > 0 {
		more = strings.TrimSuffix(f.Remedies[0].Action, ".") + ". Risk and more: " + more
	}
	t.label("Fix", more)
}

func (t *text) infos() {
	list := t.withRole(Note, "")
	if len(list) == 0 {
		return
	}
	t.blank()
	t.line(bold, "FYI", "", "")
	if t.verbose {
		for _, f := range list {
			t.full(f)
		}
		return
	}
	for _, f := range list[:min(len(list), shownInfos)] {
		t.line(cyan, "  "+f.Check+": ", "    ", f.Summary)
	}
	if left := len(list) - shownInfos; left > 0 {
		t.line(faint, "  ", "  ", fmt.Sprintf("and %d more (-v shows them)", left))
	}
}

// cost says what perfdoctor itself used, and always what is missing because of that.
func (t *text) cost() {
	c := t.d.Cost
	t.blank()
	t.itself(&c)
	for _, g := range c.GivenUp {
		t.line(yellow, "Given up: ", "    ", g.Text())
	}
	for _, col := range c.Collectors {
		for _, l := range col.Lost {
			t.line(plain, "  ", "    ", fmt.Sprintf("%s lost %d: %s", col.Name, l.Count, l.What))
		}
		if t.verbose {
			t.line(plain, "  ", "    ", fmt.Sprintf("%s: %s, %s, %d late, %s in all, slowest %s", col.Name, col.Status,
				plural(col.Samples, "sample"), col.Late, secondsText(col.Busy), secondsText(col.Longest)))
		}
	}
	if t.d.Target.ExitStatus != "" {
		t.line(plain, "The command ended: ", "  ", t.d.Target.ExitStatus)
	}
	if t.d.Target.NetNSDenied != "" {
		t.line(plain, "", "  ", "The target's network namespace could not be entered: "+t.d.Target.NetNSDenied)
	}
}

func (t *text) itself(c *Cost) {
	text := fmt.Sprintf("%s CPU, %s, %d samples lost", secondsText(c.CPU+c.BPF),
		quantity.Of("", float64(c.MaxRSS), quantity.Bytes).Text(), c.Lost)
	if t.verbose {
		text = fmt.Sprintf("%s wall, %s CPU and %s in BPF programs, %s; %s, %d late, %d lost", secondsText(c.Wall),
			secondsText(c.CPU), secondsText(c.BPF), quantity.Of("", float64(c.MaxRSS), quantity.Bytes).Text(),
			plural(c.Samples, "sample"), c.Late, c.Lost)
	}
	t.line(bold, "PERFDOCTOR ITSELF  ", "  ", text)
}
