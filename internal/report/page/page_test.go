package page

import (
	"bytes"
	"fmt"
	"html/template"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// shape has the parts of the template language that the templates of reports and of the exporter use.
const shape = `{{define "row"}}<tr id="row-{{.ID}}"><td>{{.Name}}</td></tr>{{end}}<title>{{.Title}}</title>
{{$first := index .Rows 0}}{{- with .Note}}<p title="{{.}}">{{.}}{{else}}none{{end}}
{{if eq .Title "x"}}x{{else if or .Note .Count}}{{.Count}} of {{len .Rows}}{{else}}nothing{{end}}
{{range $i, $r := .Rows}}{{if $i}}, {{end}}{{$r.Name}} {{$.Title}} {{upper $r.Name}}
{{- template "row" $r}}{{else}}empty{{end}}
{{range .Names}}<li>{{.}}</li>{{end}}{{if not .Inner}}no inner{{end}}
{{with .Inner}}{{.Name}} {{(index $.Rows 0).Name}}{{end}}
{{- with $first}}<a href="{{href .Link}}">{{printf "%.2f" .Share}}</a>{{end}}
{{if eq .Count 1}}one{{end}}{{.Level}}`

type level int

func (l level) String() string { return fmt.Sprintf("<level %d>", int(l)) }

type row struct {
	ID    int
	Name  string
	Link  string
	Share float64
}

type data struct {
	Title string
	Note  string
	Count int
	Rows  []*row
	Names []string
	Inner *row
	Level level
}

func funcs() Funcs { return Funcs{"upper": strings.ToUpper} }

func oracle(t *testing.T, text string, v any) string {
	t.Helper()
	all := template.FuncMap(maps.Clone(funcs()))
	all["href"] = func(s string) string { return s }
	var b bytes.Buffer
	if err := template.Must(template.New("page").Funcs(all).Parse(text)).Execute(&b, v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func dataOf(name, note string, count int) data {
	r := &row{ID: 3, Name: name, Link: "/recordings/a", Share: 0.125}
	return data{
		Title: name, Note: note, Count: count, Rows: []*row{r, r}, Names: []string{name, note}, Level: level(count),
	}
}

func FuzzLikeHTMLTemplate(f *testing.F) {
	f.Add("x", "", 0)
	f.Add("</title><script>\"'`+&amp;\x00{{.}}", "<!-- \xff", 1)
	ours := Must(Parse(shape, funcs()))
	f.Fuzz(func(t *testing.T, name, note string, count int) {
		for _, v := range []data{dataOf(name, note, count), {Rows: []*row{{Link: "#x"}}, Inner: &row{Name: name}}} {
			got, err := ours.Text("page", v)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(oracle(t, shape, v), got); diff != "" {
				t.Errorf("(-html/template +page):\n%s", diff)
			}
		}
	})
}

func TestHref(t *testing.T) {
	for address, want := range map[string]string{
		"#finding-1": "#finding-1", "/metrics": "/metrics", "//evil.example/": "#", "javascript:alert(1)": "#",
		"https://evil.example/": "#", "": "#",
	} {
		if got := href(address); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}

func TestWrongTemplates(t *testing.T) {
	for text, want := range map[string]string{
		`{{.Absent}}`:              "no exported field",
		`{{.Title.Length}}`:        "there is no structure",
		`{{upper .Count}}`:         "argument 1 is no string",
		`{{upper}}`:                "0 arguments",
		`{{.Title | upper}}`:       "is all that is known here",
		`{{range .Count}}x{{end}}`: "a range over int",
		`{{define "a"}}{{template "a" .}}{{end}}{{template "a" .}}`: "uses itself",
		`{{template "b"}}`:    "not defined",
		`{{.Level.String 1}}`: "no method is called here",
	} {
		tmpl, err := Parse(text, funcs())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tmpl.Text("page", data{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestTrusted(t *testing.T) {
	got, err := Must(Parse(`{{.}}`, nil)).Text("page", Trusted("<b>"))
	if err != nil || got != "<b>" {
		t.Errorf("%q, %v", got, err)
	}
}
