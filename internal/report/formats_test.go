package report

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	renderer "github.com/yuin/goldmark/renderer/html"

	"github.com/perfdoctor/perfdoctor/internal/check"
)

// said is what a format says of a report's findings: those at warning or above by their ids, in the order of the
// report.
type said struct {
	Result   string
	Findings []string
	Exit     int
}

// TestFormatsAgree: readers of any format learn of the same findings, and a CI server fails when the shell would.
func TestFormatsAgree(t *testing.T) {
	for name := range suites() {
		t.Run(name, func(t *testing.T) {
			d := load(t, name)
			want := said{Result: string(d.Verdict.Result), Exit: d.ExitCode()}
			for _, f := range d.Findings {
				if f.Severity >= check.Warning {
					want.Findings = append(want.Findings, f.Severity.String()+" "+clean(f.ID))
				}
			}
			for format, got := range map[string]said{
				"json": fromJSON(t, d), "junit": fromJUnit(t, d),
				"markdown": fromMarkdown(t, d),
			} {
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: -want +got:\n%s", format, diff)
				}
			}
			text := strings.Join(strings.Fields(textOf(t, d, TextOptions{Verbose: true})), " ")
			for _, f := range d.Findings {
				if summary := strings.Join(strings.Fields(clean(f.Summary)), " "); !strings.Contains(text, summary) {
					t.Errorf("text: %s is missing", f.ID)
				}
			}
		})
	}
}

func fromJSON(t *testing.T, d *Data) said {
	t.Helper()
	var raw struct {
		Exit     int                     `json:"exit_code"`
		Verdict  struct{ Result string } `json:"verdict"`
		Findings []struct{ ID, Severity string }
	}
	if err := json.Unmarshal([]byte(jsonOf(t, d)), &raw); err != nil {
		t.Fatal(err)
	}
	out := said{Result: raw.Verdict.Result, Exit: raw.Exit}
	for _, f := range raw.Findings {
		if f.Severity != "info" {
			// JSON has no place for a byte that is not UTF-8 (a recording has none): U+FFFD stands for the \xff of the
			// hostile case.
			out.Findings = append(out.Findings, f.Severity+" "+strings.ReplaceAll(clean(f.ID), "\ufffd", `\xff`))
		}
	}
	return out
}

func fromJUnit(t *testing.T, d *Data) said {
	t.Helper()
	var raw struct {
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Suites   []struct {
			Facts []struct {
				Name  string `xml:"name,attr"`
				Value string `xml:"value,attr"`
			} `xml:"properties>property"`
			Cases []struct {
				Name    string `xml:"name,attr"`
				Failure *struct {
					Type string `xml:"type,attr"`
				} `xml:"failure"`
				Error *struct {
					Type string `xml:"type,attr"`
				} `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(rendered(t, d.JUnit)), &raw); err != nil {
		t.Fatal(err)
	}
	var out said
	var errored []string
	for _, f := range raw.Suites[0].Facts {
		if f.Name == "result" {
			out.Result = f.Value
		}
	}
	for _, c := range raw.Suites[0].Cases {
		if c.Failure != nil {
			out.Findings = append(out.Findings, c.Failure.Type+" "+c.Name)
		}
		if c.Error != nil {
			errored = append(errored, c.Error.Type+" "+c.Name)
		}
	}
	if raw.Failures != len(out.Findings) {
		t.Errorf("the document counts %d failures and has %d", raw.Failures, len(out.Findings))
	}
	if raw.Errors != len(errored) {
		t.Errorf("the document counts %d errors and has %d", raw.Errors, len(errored))
	}
	switch {
	case raw.Failures > 0:
		out.Exit = exitFindings
	case cmp.Equal(errored, []string{"incomplete verdict"}):
		out.Exit = exitIncomplete
	}
	return out
}

// fromMarkdown reads the lines of findings in their order.
func fromMarkdown(t *testing.T, d *Data) said {
	t.Helper()
	text := html.UnescapeString(unescape(strings.ReplaceAll(rendered(t, d.Markdown), "<!-- -->", "")))
	out := said{Result: string(Bottleneck)}
	results := regexp.MustCompile(`(?m)^## perfdoctor: (no bottleneck found|nothing assessed|incomplete)$`)
	if m := results.FindStringSubmatch(text); m != nil {
		out.Result = m[1]
	}
	line := regexp.MustCompile(
		`(?m)^(?:## perfdoctor: |<details><summary>|- )(warning|critical)(?:: | \*\*| <b>)(.*?)(?:\*\*: .*|</b>: .*)?$`)
	for _, m := range line.FindAllStringSubmatch(text, -1) {
		out.Findings = append(out.Findings, m[1]+" "+m[2])
	}
	if _, err := fmt.Sscanf(text[strings.LastIndex(text, "Exit code"):], "Exit code %d", &out.Exit); err != nil {
		t.Fatal(err)
	}
	return out
}

func unescape(s string) string {
	return regexp.MustCompile("\\\\([\\\\`*_\\[\\]|~$!#=+:.)-])").ReplaceAllString(s, "$1")
}

// FuzzEscape renders a name in a line, a table and a heading: what comes out is that name as text, and no element of
// its own.
func FuzzEscape(f *testing.F) {
	for _, s := range []string{
		"java", "# heading", "1. list", "- item", "> quoted", "a|b", "`code`", "```", "[x](http://evil)",
		"![i](//evil)", "<img src=x onerror=y>",
		"</details><script>", "**bold** _it_ ~~gone~~", "@everyone #12 !7", "https://evil.example www.evil.example",
		"\\`x", "&lt;b&gt; &#60;", "$x^2$",
		"a\n\n# b", "    code", "<!-- -->", "===", ": x", "<https://evil>", "a  \nb", "[^1]", "x\\", "http\u202e://",
		"a@b.example", "! #", "a ##",
	} {
		f.Add(s)
	}
	tag := regexp.MustCompile(`</?(p|h2|table|thead|tbody|tr|th|td|strong)>|<(th|td)( align="right")?>|<!-- -->|\n`)
	// As GitHub does: tables, links without markup, and HTML as it stands, so that an element of the name's own would
	// be seen.
	github := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithRendererOptions(renderer.WithUnsafe()))
	render := func(t *testing.T, md string) string {
		var b strings.Builder
		if err := github.Convert([]byte(md), &b); err != nil {
			t.Fatal(err)
		}
		return tag.ReplaceAllString(b.String(), "")
	}
	f.Fuzz(func(t *testing.T, s string) {
		want := clean(strings.TrimSpace(s))
		if want == "" {
			return
		}
		for _, md := range []string{escape(s), "## " + escape(s), "x\n\n|a|\n|---|\n| " + escape(s) + " |\n"} {
			got := render(t, md)
			if strings.HasPrefix(md, "x\n") {
				got = strings.TrimPrefix(got, "xa") // the line before the table, and its head
			}
			if strings.ContainsAny(got, "<>") || html.UnescapeString(got) != want {
				t.Fatalf("%q becomes markup: %q gives %q, want the text %q", s, md, got, want)
			}
		}
		if inHTML(s) != tags.Replace(want) && strings.ReplaceAll(inHTML(s), "<!-- -->", "") != tags.Replace(want) {
			t.Fatalf("%q between tags is %q", s, inHTML(s))
		}
	})
}
