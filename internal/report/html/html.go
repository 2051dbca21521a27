// Package html writes the report as one file that opens from disk in any browser and loads nothing.
//
// All text and tables are in the page as they stand, so that it can be read, printed and searched without its
// program. That program (web/, package bundle) draws charts and flame graphs from data that lies in the page
// compressed.
//
// Names on a host are hostile: whoever can name a thread or a process would like to run a script in an operator's
// browser. Package page escapes names for their place. Unprintable characters are shown as escapes, and names never
// become markup in the program. The page's content security policy allows this program and this style sheet, by their
// hashes, and nothing else.
package html

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
	"github.com/perfdoctor/perfdoctor/internal/report"
	"github.com/perfdoctor/perfdoctor/internal/report/html/bundle"
	"github.com/perfdoctor/perfdoctor/internal/report/page"
)

var (
	//go:embed page.html
	pageTemplate string
	//go:embed page.css
	pageStyle string
)

// Input is what Write needs for a page.
type Input struct {
	Report    *report.Data
	Recording *recording.Recording
	Checks    []*check.Check // that made the report: they know what each finding was read from
}

// Write writes the page. One input yields the same bytes everywhere, with the same build of perfdoctor.
func Write(w io.Writer, in Input) error {
	program, err := bundle.Bundled()
	v := newView(in)
	if err != nil {
		v.Missing = err.Error()
	}
	page, err := v.page(in.Recording, program)
	if err != nil {
		return fmt.Errorf("write the HTML report: %w", err)
	}
	if _, err := w.Write(page); err != nil {
		return fmt.Errorf("write the HTML report: %w", err)
	}
	return nil
}

func (v *view) page(rec *recording.Recording, program bundle.Program) ([]byte, error) {
	style := pageStyle + program.Style
	v.Policy = policy(style, program.Script)
	return assemble(pageTemplate, style, program.Script, v, func(out *bytes.Buffer) error { return v.data(out, rec) })
}

// assemble puts the parts of a page together: the template's output with its names, and parts that are trusted or
// have a harmless alphabet, so that no template needs to escape them: our style, our program, and base64. data writes
// what the program draws.
func assemble(source, style, script string, v any, data func(*bytes.Buffer) error) ([]byte, error) {
	var out bytes.Buffer
	t := page.Must(page.Parse(source, functions))
	head, err := t.Text("head", v)
	if err != nil {
		return nil, err
	}
	body, err := t.Text("body", v)
	if err != nil {
		return nil, err
	}
	out.WriteString(visible(head))
	out.WriteString("<style>" + style + "</style>\n</head>\n")
	out.WriteString(visible(body))
	if script != "" {
		if err := data(&out); err != nil {
			return nil, err
		}
		out.WriteString("<script>" + script + "</script>\n")
	}
	out.WriteString("</body>\n</html>\n")
	return out.Bytes(), nil
}

// policy allows the page's own style and program. It forbids to load or send anything, or to turn it into markup.
func policy(style, script string) string {
	p := "default-src 'none'; style-src " + hash(style) + "; base-uri 'none'; form-action 'none'"
	if script != "" {
		p += "; script-src " + hash(script) + "; require-trusted-types-for 'script'; trusted-types 'none'"
	}
	return p
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// data writes what the program draws: the charts, and each profile separately, so that only the profiles a reader
// opens are unpacked.
func (v *view) data(out *bytes.Buffer, rec *recording.Recording) error {
	charts, err := json.Marshal(v.chartData())
	if err != nil {
		return err
	}
	if err := block(out, "charts", charts); err != nil {
		return err
	}
	for _, e := range stacks.Events() {
		p, ok := rec.Ranked(e)
		if !ok || len(p.Samples) == 0 {
			continue
		}
		var marks []profileMark
		for _, m := range v.marks {
			if m.event == e {
				marks = append(marks, m)
			}
		}
		packed, err := pack(rec, p, marks)
		if err != nil {
			return err
		}
		if err := block(out, "profile-"+string(e), packed); err != nil {
			return err
		}
	}
	return nil
}

func block(out *bytes.Buffer, id string, data []byte) error {
	packed, err := compressed(data)
	if err != nil {
		return err
	}
	out.WriteString(`<script type="application/octet-stream" id="data-` + id + `">`)
	out.WriteString(base64.StdEncoding.EncodeToString(packed))
	out.WriteString("</script>\n")
	return nil
}

// visible makes a string harmless to look at. It shows control characters, marks that turn the direction of text and
// bytes that are not UTF-8 as escapes. It keeps line ends and tabs, which are the page's own.
func visible(s string) string { return report.Escape(s, "\n\t") }
