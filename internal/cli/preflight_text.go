package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// preflightWidth is the report's width, which fits a terminal that nobody has resized.
const preflightWidth = 80

// text prints a table of how much works here, what does not and why, and the command that changes most of it.
func (p *preflight) text(w io.Writer) error {
	t := &preflightPage{}
	t.line("", "What perfdoctor can measure here as "+p.User)
	p.table(t)
	t.capabilities(p.Capabilities)
	t.collectors(p.Collectors, p.Missing)
	t.checks(p)
	if cmd := p.paste(); cmd != "" {
		t.head("TO CHANGE MOST OF THIS, PASTE")
		// On one line, however long: a broken command cannot be copied.
		t.WriteString("  $ " + cmd + "\n")
	}
	_, err := io.WriteString(w, t.String())
	return err
}

// table says how much of each kind works.
func (p *preflight) table(t *preflightPage) {
	rights, work, blind := 0, 0, 0
	for _, c := range p.Capabilities {
		if c.Status == string(host.Available) {
			rights++
		}
	}
	for _, c := range p.Collectors {
		if c.Status == recording.StatusOK {
			work++
		}
	}
	for _, b := range p.Blind {
		blind += len(b.Checks)
	}
	fmt.Fprintf(&t.Builder, "\n  %-26s %7s  %7s\n", "", "works", "does not")
	for _, r := range []struct {
		what        string
		works, lack int
	}{
		{"rights, kernel features", rights, len(p.Capabilities) - rights},
		{"collectors", work, len(p.Collectors) - work},
		{"checks", len(p.Assessable), blind},
	} {
		fmt.Fprintf(&t.Builder, "  %-26s %7d  %7d\n", r.what, r.works, r.lack)
	}
}

// paste returns the command that grants the denied rights, or "" if none is denied.
func (p *preflight) paste() string {
	denied := slices.ContainsFunc(p.Capabilities, func(c capability) bool {
		return isRight(c) && c.Status != string(host.Available)
	})
	if !denied || p.User == "root" { // a container denies them to root, from outside
		return ""
	}
	return "sudo perfdoctor preflight"
}

type preflightPage struct{ strings.Builder }

// line writes text behind an indent and breaks it at spaces.
func (t *preflightPage) line(indent, text string) {
	col := 0
	for _, word := range strings.Fields(printable(text)) {
		n := utf8.RuneCountInString(word)
		switch {
		case col == 0:
			t.WriteString(indent)
			col = utf8.RuneCountInString(indent)
		case col+1+n > preflightWidth:
			t.WriteString("\n" + indent)
			col = utf8.RuneCountInString(indent)
		default:
			t.WriteByte(' ')
			col++
		}
		t.WriteString(word)
		col += n
	}
	t.WriteByte('\n')
}

func (t *preflightPage) head(text string) { t.line("", ""); t.line("", text) }

// problem writes what is wrong, why, and what would change that.
func (t *preflightPage) problem(what, reason, remedy string) {
	t.line("  ", what)
	if reason != "" {
		t.line("      ", reason)
	}
	if remedy != "" {
		t.line("      ", "-> "+remedy)
	}
}

func (t *preflightPage) capabilities(list []capability) {
	var fine []string
	for _, c := range list {
		if c.Status == string(host.Available) {
			fine = append(fine, c.Name)
		}
	}
	t.head(fmt.Sprintf("RIGHTS AND KERNEL FEATURES: %d of %d", len(fine), len(list)))
	if len(fine) > 0 {
		t.line("  ", strings.Join(fine, ", "))
	}
	t.deniedRights(list)
	for _, c := range list {
		if c.Status != string(host.Available) && !isRight(c) {
			t.problem(c.Status+": "+c.Name+" ("+c.For+")", c.Reason, c.Remedy)
		}
	}
}

// isRight tells a right of this user, which root or a file capability grants, from a feature of the kernel.
func isRight(c capability) bool { return c.Name == host.Root.Name || strings.HasPrefix(c.Name, "cap-") }

// deniedRights writes the rights that this user lacks, with one remedy for all.
func (t *preflightPage) deniedRights(list []capability) {
	var caps []string
	for _, c := range list {
		if c.Status == string(host.Available) || !isRight(c) {
			continue
		}
		t.line("  ", c.Status+": "+c.Name+" ("+c.For+")")
		if name, ok := strings.CutPrefix(c.Name, "cap-"); ok {
			caps = append(caps, "cap_"+strings.ReplaceAll(name, "-", "_"))
		}
	}
	if len(caps) > 0 {
		t.line("      ", "-> run as root; or, for those of them that matter here, in a container --cap-add, elsewhere")
		// On one line, however long: a broken command cannot be copied.
		t.WriteString("         $ setcap " + strings.Join(caps, ",") + "+ep perfdoctor\n")
	}
}

func (t *preflightPage) collectors(list []recording.CollectorStatus, missing []recording.Missing) {
	var fine []string
	var slowest recording.CollectorStatus
	for _, c := range list {
		if c.Status == recording.StatusOK {
			fine = append(fine, c.Name)
		}
		if c.Longest >= slowest.Longest {
			slowest = c
		}
	}
	t.head(fmt.Sprintf("COLLECTORS: %d of %d work", len(fine), len(list)))
	if len(fine) > 0 {
		t.line("  ", strings.Join(fine, ", "))
	}
	if len(list) > 0 {
		took := time.Duration(slowest.Longest * float64(time.Second)).Round(10 * time.Microsecond)
		t.line("  ", fmt.Sprintf("slowest sample: %s, %v", slowest.Name, took))
	}
	for _, c := range list {
		if c.Status != recording.StatusOK {
			t.problem(string(c.Status)+": "+c.Name, c.Reason, c.Remedy)
		}
	}
	for _, g := range missingByReason(missing) {
		t.problem(string(g.Status)+": "+g.Metric, g.Reason, g.Remedy)
	}
}

// missingByReason merges metrics that are missing for the same reason into one entry: eight hardware counters lack
// the same PMU.
func missingByReason(list []recording.Missing) []recording.Missing {
	var out []recording.Missing
	at := map[string]int{}
	for _, m := range list {
		key := string(m.Status) + "\x00" + m.Reason
		if i, ok := at[key]; ok {
			out[i].Metric += ", " + m.Metric
			continue
		}
		at[key] = len(out)
		out = append(out, m)
	}
	return out
}

func (t *preflightPage) checks(p *preflight) {
	blind := 0
	for _, b := range p.Blind {
		blind += len(b.Checks)
	}
	t.head(fmt.Sprintf("CHECKS: %d of %d can be assessed", len(p.Assessable), len(p.Assessable)+blind))
	for _, b := range p.Blind {
		t.problem("not: "+strings.Join(b.Checks, ", "), b.Reason, b.Remedy)
	}
}
