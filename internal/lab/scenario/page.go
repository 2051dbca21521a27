package scenario

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// Machine describes where a scenario ran, as far as the numbers depend on it.
type Machine struct {
	Version  string   `json:"perfdoctor,omitempty"`
	Kernel   string   `json:"kernel,omitempty"`
	CPUs     int      `json:"cpus_online,omitempty"`
	CPUModel string   `json:"cpu_model,omitempty"`
	Memory   float64  `json:"memory_bytes,omitempty"`
	JVMs     []string `json:"jvms,omitempty"` // the exact versions of the JVMs that run the scenario's programs
}

func machineOf(rec *recording.Recording, jvms []string) *Machine {
	m := &Machine{Version: rec.Meta.Version, JVMs: jvms}
	for _, s := range rec.Info(metric.HostInfo) {
		m.Kernel, m.CPUModel = s.Label("kernel"), s.Label("cpu_model")
	}
	for _, s := range rec.Gauge(metric.CPUsOnline) {
		m.CPUs = int(s.Last())
	}
	for _, s := range rec.Gauge(metric.MemoryTotal) {
		m.Memory = s.Last()
	}
	return m
}

// jvms returns the exact versions of the scenario's JVMs. Each JVM has a file with its version (JEP 220). What cannot
// be read is left out.
func (s *Scenario) jvms(workloads string) []string {
	var all []string
	for _, j := range s.java() {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(j.runtime(workloads))), "release"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if version, ok := strings.CutPrefix(strings.TrimSpace(line), "JAVA_VERSION="); ok {
				all = append(all, strings.Trim(version, `"`))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Page writes the run of a story in Markdown: the table, and for each rung what was said, changed and moved.
// Occurrences of private, such as the names of a host and of directories, are left out.
func (r *Result) Page(w io.Writer, private ...string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s: %s\n\n", r.Scenario, r.Title)
	fmt.Fprintf(&b, "`perfdoctor scenario run %s` of %s, %s. What the system is, and why its faults are there: "+
		"[its scenario](../../scenarios/%s).\n\n", r.Scenario, r.Started.Format("2 January 2006"), r.on(), r.Scenario)
	if len(r.Phases) > 0 {
		r.pageTable(&b)
	}
	for i := range r.Phases {
		r.pagePhase(&b, i)
	}
	held, all := r.count()
	fmt.Fprintf(&b, "## The run\n\n%d of %d expectations held; it took %.0f s.", held, all, r.Seconds)
	if r.Reason != "" {
		fmt.Fprintf(&b, " It is %s: %s.", r.Status, r.Reason)
	}
	b.WriteString("\n")
	r.pageNotes(&b)
	_, err := io.WriteString(w, without(b.String(), private))
	return err
}

func without(text string, private []string) string {
	for _, p := range private {
		if p != "" {
			text = strings.ReplaceAll(text, p, "…")
		}
	}
	return text
}

// on says where the scenario ran.
func (r *Result) on() string {
	m := r.Machine
	if m == nil {
		return "on a machine of which nothing was recorded"
	}
	kernel, _, _ := strings.Cut(m.Kernel, "-") // the part behind it says who built it
	facts := []string{"on Linux " + kernel}
	if m.CPUs > 0 {
		facts = append(facts, fmt.Sprintf("%d CPUs (%s)", m.CPUs, m.CPUModel))
	}
	if m.Memory > 0 {
		facts = append(facts, quantity.Of("", m.Memory, quantity.Bytes).Text()+" of memory")
	}
	for _, v := range m.JVMs {
		facts = append(facts, "JDK "+v)
	}
	if m.Version != "" {
		facts = append(facts, "perfdoctor "+m.Version)
	}
	return strings.Join(facts, ", ") + inGuest(r.Guest)
}

// cell escapes text for a table cell.
var cell = strings.NewReplacer("|", `\|`, "\n", " ")

func (r *Result) pageTable(b *strings.Builder) {
	for i, cells := range r.table() {
		for _, c := range cells {
			if i == 0 {
				c = strings.ToLower(c)
			}
			b.WriteString("| " + cell.Replace(c) + " ")
		}
		b.WriteString("|\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(cells)) + "|\n")
		}
	}
	b.WriteString("\n")
}

func (r *Result) pagePhase(b *strings.Builder, i int) {
	p := &r.Phases[i]
	fmt.Fprintf(b, "## %s: %s\n\n", p.Name, p.Title)
	if p.Before != "" {
		r.pageStep(b, p)
	}
	if p.Words != "" && p.Kind != KindPlacebo { // the verdict on a placebo is there already
		fmt.Fprintf(b, "The doctor said:\n\n```text\n%s\n```\n\n", strings.TrimRight(p.Words, "\n"))
	}
	if p.Compared != nil && p.Compared.Words != "" {
		fmt.Fprintf(b, "The comparison of this state, as the version before, with %s said:\n\n```text\n%s\n```\n\n",
			p.Before,
			strings.TrimRight(p.Compared.Words, "\n"))
	}
	if len(p.Findings) > 1 {
		fmt.Fprintf(b, "All findings: %s.\n\n", strings.Join(p.Findings, "; "))
	}
	for _, a := range p.Assertions {
		if !a.Held {
			fmt.Fprintf(b, "Not as expected: %s; it was: %s.\n\n", a.What, a.Got)
		}
	}
}

// pageStep writes which change led to a phase, and what it moved.
func (r *Result) pageStep(b *strings.Builder, p *Phase) {
	i := slices.IndexFunc(r.Steps, func(st Step) bool { return st.After == p.Name })
	if i < 0 {
		return
	}
	st := &r.Steps[i]
	if st.Placebo {
		fmt.Fprintf(b, "Tried on %s, and taken back. The verdict is %s.\n\n", st.Before, p.Verdict)
	} else {
		fmt.Fprintf(b, "Changed in %s: %s.\n\n", st.Before, st.Cure)
	}
	if len(st.Moved) == 0 {
		return
	}
	b.WriteString("| metric | foretold | before | after | factor |\n|---|---|---|---|---|\n")
	for _, m := range st.Moved {
		c := m.cells()
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", c[0], cell.Replace(p.foretoldText(m.Metric)), c[1], c[2], c[3])
	}
	b.WriteString("\n")
	if remark := st.remark(); remark != "" {
		fmt.Fprintf(b, "%s.\n\n", strings.ToUpper(remark[:1])+remark[1:])
	}
}

func (r *Result) pageNotes(b *strings.Builder) {
	if len(r.LeftOut) > 0 {
		fmt.Fprintf(b, "\nLeft out, as fixed from the start: %s.\n", strings.Join(r.LeftOut, ", "))
	}
	for i := range r.Phases {
		p := &r.Phases[i]
		if p.Disturbed > 0 {
			fmt.Fprintf(b, "\n%s.\n", p.disturbance())
		}
		if p.noisy() {
			fmt.Fprintf(b, "\nThe machine was %.0f %% busy before %s: what is said of the host may be about something "+
				"else.\n",
				p.BusyBefore*100, p.Name)
		}
	}
}
