package report

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
)

// Markdown writes the report for a ticket or a pull request. It uses what GitHub, GitLab and Jira's importers have in
// common: headings, lists, tables, fenced code, and <details> for what need not be read at once. Every string is
// plain text there, whatever it holds: no name becomes a heading, a link, an image, a mention or HTML.
func (d *Data) Markdown(w io.Writer) error {
	m := &markdown{d: d}
	m.verdict()
	m.further()
	m.infos()
	m.who()
	m.threadTime()
	m.cpuTime()
	m.waits()
	m.fine()
	m.notAssessed()
	m.cost()
	if _, err := io.WriteString(w, m.b.String()); err != nil {
		return fmt.Errorf("write the Markdown report: %w", err)
	}
	return nil
}

type markdown struct {
	b strings.Builder
	d *Data
}

// line writes a line of our own markup. Strings from elsewhere must have passed through escape.
func (m *markdown) line(format string, args ...any) { fmt.Fprintf(&m.b, format+"\n", args...) }

func (m *markdown) blank() { m.b.WriteByte('\n') }

// active are the characters that begin markup anywhere in a line. $ begins a formula at GitHub, ~ strikes out.
var active = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "|", `\|`, "~", `\~`, "$", `\$`, "!", `\!`,
	"<", "&lt;", ">", "&gt;", "&", "&amp;",
)

// linked is what GitHub and GitLab turn into links and notifications without any markup: addresses, mentions, numbers
// of issues and of merge requests. An empty comment inside ends it, and neither site shows the comment.
var linked = regexp.MustCompile(`(?i)://|www\.|mailto:|xmpp:|@[a-z0-9]|[#!]\d|\bGH-\d`)

// lineStart is what turns a line into a heading, a list, a quotation, a rule or a table.
var lineStart = regexp.MustCompile(`^(\s*)([-+#=:]|\d+[.)])`)

// lineEnd is what closes a heading and is not shown.
var lineEnd = regexp.MustCompile(`\s(#+)$`)

// escape makes a string plain text at any place in a line and in a table's cell.
func escape(s string) string {
	s = unlink(active.Replace(clean(strings.TrimSpace(s))))
	s = lineEnd.ReplaceAllString(s, ` \$1`)
	return lineStart.ReplaceAllStringFunc(s, func(match string) string {
		return match[:len(match)-1] + `\` + match[len(match)-1:]
	})
}

// inHTML makes a string plain text between tags, where backslashes do not escape.
func inHTML(s string) string { return unlink(tags.Replace(clean(strings.TrimSpace(s)))) }

// tags has no entity with a number in it, which would read as an issue's number.
var tags = strings.NewReplacer("<", "&lt;", ">", "&gt;", "&", "&amp;")

func unlink(s string) string {
	return linked.ReplaceAllStringFunc(s, func(match string) string {
		_, n := utf8.DecodeRuneInString(match)
		return match[:n] + "<!-- -->" + match[n:]
	})
}

// fence writes lines as code, between more backquotes than any line has.
func (m *markdown) fence(indent, kind string, lines ...string) {
	ticks := "```"
	for _, l := range lines {
		for strings.Contains(l, ticks) {
			ticks += "`"
		}
	}
	m.line("%s%s%s", indent, ticks, kind)
	for _, l := range lines {
		m.line("%s%s", indent, clean(l))
	}
	m.line("%s%s", indent, ticks)
}

func (m *markdown) verdict() {
	v := m.d.Verdict
	t := &text{page: newPage(TextOptions{}), d: m.d}
	if v.Result != Bottleneck {
		m.line("## perfdoctor: %s\n\n%s\n", m.d.Heading(), escape(v.Summary))
		m.line("<sub>%s; %s</sub>", escape(t.target()), escape(t.when()))
		m.notes()
		return
	}
	f := &m.d.Findings[0]
	m.line("## perfdoctor: %s: %s\n\n**%s**\n", f.Severity, escape(f.ID), escape(f.Summary))
	m.line("<sub>%s; %s</sub>\n", escape(t.target()), escape(t.when()))
	m.notes()
	m.full(f)
	m.consequences(f)
}

// notes says why the recording covers this part of time, and what limits it.
func (m *markdown) notes() {
	if i := m.d.Incident; i != nil {
		m.line("\n%s\n", escape(i.Text()))
	}
	if doubt := m.d.Doubt(); doubt != "" {
		m.line("\n**Incomplete:** %s\n", escape(doubt))
	}
	if halted := m.d.Target.Halted; halted != "" {
		m.line("\n**Halted:** %s\n", escape(halted))
	}
	if names := m.d.Pseudonyms(); names != "" {
		m.line("\n**Redacted:** %s\n", escape(names))
	}
	if early := m.d.Window.EndedEarly; early != "" {
		w := m.d.Window
		m.line("\n**Ended early:** %s (%s of %s asked for)\n", escape(early), secondsText(w.Seconds),
			secondsText(w.Asked))
	}
}

// full writes all of a finding except its first line.
func (m *markdown) full(f *Finding) {
	for _, e := range f.Evidence {
		m.line("- %s", escape(e.String()))
	}
	for _, n := range f.Notes {
		m.line("- %s", escape(n))
	}
	if len(f.FixFirst) > 0 {
		m.line("\n**First** fix %s: the profile changes with it", escape(strings.Join(f.FixFirst, ", ")))
	}
	for i, r := range f.Remedies {
		m.remedy(i, r)
	}
	m.blank()
	for _, p := range f.Placebos {
		m.line("- **Won't help:** %s", escape(p))
	}
	if f.Disproof != "" {
		m.line("- **Disproved if** %s", escape(f.Disproof))
	}
	m.line("- **Confidence:** %s", escape(sure(f)))
	m.line("- **Next:** `perfdoctor checks explain %s`", f.Check)
}

func (m *markdown) remedy(i int, r check.Remedy) {
	head := "Or"
	if i == 0 {
		head = "Fix"
	}
	m.line("\n**%s:** %s\n", head, escape(r.Action))
	if r.Command != "" {
		m.fence("", "sh", string(r.Command))
	}
	for _, part := range []struct{ what, code string }{{"before", r.Before}, {"after", r.After}} {
		if part.code != "" {
			m.line("%s:", part.what)
			m.fence("", "", strings.Split(strings.TrimSpace(part.code), "\n")...)
		}
	}
	if r.Effect != "" {
		m.line("- expected effect: %s", escape(r.Effect))
	}
	if r.Risk != "" {
		m.line("- risk: %s", escape(r.Risk))
	}
}

func (m *markdown) each(r Role, cause string, show func(*Finding)) {
	for i := range m.d.Findings {
		if f := &m.d.Findings[i]; f.Role == r && f.Cause == cause {
			show(f)
		}
	}
}

// has reports whether the report has a finding with that place.
func (m *markdown) has(r Role, cause string) (found bool) {
	m.each(r, cause, func(*Finding) { found = true })
	return found
}

func (m *markdown) consequences(cause *Finding) {
	if !m.has(Consequence, cause.ID) {
		return
	}
	m.line("\n**Leads to** (consequences; look again after the fix)\n")
	m.each(Consequence, cause.ID, func(f *Finding) {
		m.line("- %s **%s**: %s", f.Severity, escape(f.ID),
			escape(f.Summary))
	})
}

func (m *markdown) further() {
	m.list("Also found, largest first", Further)
	m.list("Other processes on this host", Beside)
}

func (m *markdown) list(title string, role Role) {
	if !m.has(role, "") {
		return
	}
	m.line("\n### %s", title)
	m.each(role, "", func(f *Finding) {
		m.line("\n<details><summary>%s <b>%s</b>: %s</summary>\n", f.Severity, inHTML(f.ID), inHTML(f.Summary))
		m.full(f)
		m.line("\n</details>")
		m.consequences(f)
	})
}

func (m *markdown) infos() {
	if !m.has(Note, "") {
		return
	}
	m.line("\n### FYI\n")
	m.each(Note, "", func(f *Finding) {
		m.line("- **%s**: %s", escape(f.ID), escape(f.Summary))
		m.each(Consequence, f.ID, func(f *Finding) {
			m.line("  - %s **%s**: %s", f.Severity, escape(f.ID),
				escape(f.Summary))
		})
	})
}

func (m *markdown) cpuTime() {
	c := m.d.CPUTime
	if c == nil {
		return
	}
	m.line("\n### Where the CPU time goes\n\n%s of CPU time in %s; %s (%s)\n", secondsText(c.Seconds),
		secondsText(c.Window),
		plural(int(c.Samples), "sample"), escape(c.Engine))
	m.line("| part | CPU time | share |\n|---|--:|--:|")
	for _, p := range c.Parts {
		m.line("| %s | %s | %s |", p.Part, secondsText(p.Seconds), shareText(p.Share))
	}
	if len(c.Methods) > 0 {
		m.line("\n| self | inclusive | method | most in | called by |\n|--:|--:|---|---|---|")
	}
	for _, x := range c.Methods {
		m.line("| %s | %s | %s | %s | %s |", shareText(x.Own), shareText(x.Inclusive),
			escape(hotcode.At(x.Name, x.Line)), escape(x.Calls), escape(strings.Join(x.Callers, " ← ")))
	}
	for _, n := range c.Notes {
		m.line("\n%s", escape(n))
	}
}

func (m *markdown) waits() {
	if len(m.d.Waits) == 0 {
		return
	}
	who := waiters(m.d.Waits)
	m.line("\n### Where %s wait\n\n| %s on average | wait |\n|--:|---|", who, who)
	for i := range m.d.Waits {
		w := &m.d.Waits[i]
		text := w.text()
		for _, k := range w.Wakers {
			text += fmt.Sprintf("; %s ended at %s, most by thread %s", shareText(k.Share), orNowhere(k.At), k.Thread)
		}
		m.line("| %.2f | %s |", w.Threads, escape(text))
	}
}

func (m *markdown) fine() {
	if len(m.d.Fine) == 0 {
		return
	}
	m.line("\n<details><summary>Passed: %s</summary>\n", plural(len(m.d.Fine), "check"))
	for _, f := range m.d.Fine {
		m.line("- %s", f.Check)
		for _, v := range f.Read {
			m.line("  - %s", escape(v.String()))
		}
	}
	m.line("\n</details>")
}

func (m *markdown) notAssessed() {
	if len(m.d.NotAssessed) > 0 {
		m.line("\n<details><summary>Could not run: %s</summary>\n",
			plural(m.d.Verdict.NotAssessed, "check"))
		m.gaps(m.d.NotAssessed)
		m.line("\n</details>")
	}
	if len(m.d.NoConcern) > 0 {
		m.line("\n<details><summary>Does not apply: %s</summary>\n", plural(m.d.Verdict.NoConcern, "check"))
		m.gaps(m.d.NoConcern)
		m.line("\n</details>")
	}
}

func (m *markdown) gaps(gaps []Gap) {
	for _, g := range gaps {
		text := escape(g.Reason)
		if g.Remedy != "" {
			text += " → " + escape(g.Remedy)
		}
		m.line("- %s: %s", strings.Join(g.Checks, ", "), text)
	}
}

func (m *markdown) cost() {
	c := m.d.Cost
	m.line("\n<sub>perfdoctor %s, itself: %s wall, %s CPU; %s, %d late, %d lost. Exit code %d.</sub>",
		escape(m.d.Version),
		secondsText(c.Wall), secondsText(c.CPU), plural(c.Samples, "sample"), c.Late, c.Lost, m.d.ExitStatus)
	for _, g := range c.GivenUp {
		m.line("\n<sub>Given up: %s.</sub>", escape(g.Text()))
	}
}
