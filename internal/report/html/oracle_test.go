package html

import (
	"bytes"
	"html/template"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/report"
	"github.com/perfdoctor/perfdoctor/internal/report/page"
)

// TestLikeHTMLTemplate: package page writes what html/template does, which knows each place of a page, with names that
// try every way out.
func TestLikeHTMLTemplate(t *testing.T) {
	in := input(t, hostile)
	asHTMLTemplate(t, pageTemplate, newView(in))
	in.Report.Findings = nil
	in.Report.Verdict.Result = report.NoBottleneck
	asHTMLTemplate(t, pageTemplate, newView(in))

	for _, name := range comparisons(t) {
		c := comparison(t, name)
		c.Doubts, c.Before.Target.Name = append(c.Doubts, hostile), hostile
		c.Verdict.Worse, c.Verdict.Better = append(c.Verdict.Worse, hostile), append(c.Verdict.Better, hostile)
		v := &compareView{Data: c.Data, Title: c.Title(), Top: hostile, Missing: hostile, Rows: c.Rows()}
		asHTMLTemplate(t, compareTemplate, v)
	}
}

func comparisons(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../../../testdata/report/compare/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".txtar"))
	}
	return names
}

func asHTMLTemplate(t *testing.T, source string, v any) {
	t.Helper()
	funcs := template.FuncMap(maps.Clone(functions))
	funcs["href"] = func(s string) string { return s }
	oracle := template.Must(template.New("page").Funcs(funcs).Parse(source))
	ours := page.Must(page.Parse(source, functions))
	for _, part := range []string{"head", "body"} {
		var want bytes.Buffer
		if err := oracle.ExecuteTemplate(&want, part, v); err != nil {
			t.Fatal(err)
		}
		got, err := ours.Text(part, v)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.String(), got); diff != "" {
			t.Errorf("%s (-html/template +page):\n%s", part, diff)
		}
	}
}
