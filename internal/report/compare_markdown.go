package report

import (
	"fmt"
	"io"

	"github.com/perfdoctor/perfdoctor/internal/compare"
)

// Markdown writes the comparison for a ticket or a pull request; names are plain text in it, as in [Data.Markdown].
func (c Comparison) Markdown(w io.Writer) error {
	m := &compareMarkdown{d: c.Data}
	if c.One {
		m.line("## perfdoctor compare: %s", verdictWords(compare.Same))
		return m.write(w)
	}
	m.verdict(c.Headline())
	m.promises()
	m.findings()
	m.numbers()
	m.methods()
	m.others()
	return m.write(w)
}

func (m *compareMarkdown) write(w io.Writer) error {
	if _, err := io.WriteString(w, m.b.String()); err != nil {
		return fmt.Errorf("write the comparison: %w", err)
	}
	return nil
}

type compareMarkdown struct {
	markdown
	d *compare.Data
}

func (m *compareMarkdown) verdict(headline string) {
	v := m.d.Verdict
	m.line("## perfdoctor compare: %s\n", verdictWords(v.Result))
	if headline != "" {
		m.line("%s\n", escape(headline))
	}
	if v.Result == compare.Same {
		m.line("%s\n", escape(v.Summary))
	}
	for _, s := range v.Worse {
		m.line("- **worse**: %s", escape(s))
	}
	for _, s := range v.Better {
		m.line("- **better**: %s", escape(s))
	}
	for _, s := range m.d.Doubts {
		m.line("- but %s", escape(s))
	}
	m.line("\n<sub>before: %s; after: %s</sub>", escape(sideText(&m.d.Before)), escape(sideText(&m.d.After)))
}

func (m *compareMarkdown) promises() {
	if len(m.d.Promises) == 0 {
		return
	}
	m.line("\n### Promises\n")
	for i := range m.d.Promises {
		x := &m.d.Promises[i]
		m.line("- **%s**: %s", x.Kept, escape(x.Text()))
	}
}

func (m *compareMarkdown) findings() {
	if len(m.d.Findings) == 0 {
		return
	}
	m.line("\n### Findings\n")
	for i := range m.d.Findings {
		f := &m.d.Findings[i]
		m.line("- %s **%s**: %s", fateText(f), escape(f.ID), escape(f.Either().Summary))
		if f.Doubt != "" {
			m.line("  - not counted: %s", escape(f.Doubt))
		}
	}
}

func (m *compareMarkdown) numbers() {
	if len(m.d.Numbers) == 0 {
		return
	}
	m.line("\n### Numbers\n\n| | before | after | change |\n|---|--:|--:|---|")
	for i := range m.d.Numbers {
		n := &m.d.Numbers[i]
		if n.Change == nil {
			m.line("| %s | | | %s |", escape(n.Label), escape(changeText(n)))
			continue
		}
		before, after := estimateText(n.Before, n.Unit), estimateText(n.After, n.Unit)
		m.line("| %s | %s | %s | %s |", escape(n.Label), before, after, escape(changeText(n)))
	}
}

func (m *compareMarkdown) methods() {
	x := m.d.Methods
	if x == nil {
		return
	}
	m.line("\n### Methods, by CPU time\n")
	if x.Reason != "" {
		m.line("not compared: %s", escape(x.Reason))
		return
	}
	if len(x.Grown)+len(x.Shrunk) > 0 {
		m.line("| method | before | after | of all CPU time | times as much (99 %% sure) |\n|---|--:|--:|--:|---|")
	}
	for _, list := range [][]compare.Method{x.Grown, x.Shrunk} {
		for _, r := range list {
			name := escape(r.Name)
			if r.With {
				name += " with all that it calls"
			}
			m.line("| %s | %s | %s | %s | %.3g (%.3g to %.3g) |",
				name, shareText(r.Before), shareText(r.After), signedShare(r.Extra), r.Factor, r.Low, r.High)
		}
	}
	if len(x.Grown)+len(x.Shrunk) == 0 {
		m.line("none of %d changed by more than chance", x.Tested)
	}
	if len(x.Grown)+len(x.Shrunk) > 0 && x.Against == compare.AgainstShares {
		m.line("\n%s", sharesOnly)
	}
	if x.Uncounted != "" {
		m.line("\n%s", escape(x.Uncounted))
	}
	m.line("\n%s", escape(detectableText(x)))
}

func (m *compareMarkdown) others() {
	if len(m.d.Others) == 0 {
		return
	}
	m.line("\n<details><summary>Further metrics that changed by half or more</summary>\n")
	for i := range m.d.Others {
		o := &m.d.Others[i]
		m.line("- %s", escape(otherText(o)))
	}
	m.line("\n</details>")
}
