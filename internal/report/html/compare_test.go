package html

import (
	"bytes"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/compare"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/report"
)

// comparison reads a case of the text report's.
func comparison(t *testing.T, name string) report.Comparison {
	t.Helper()
	ar, err := txtar.ParseFile("../testdata/compare/" + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	fsys, err := txtar.FS(ar)
	if err != nil {
		t.Fatal(err)
	}
	var recs [2]*recording.Recording
	for i, dir := range []string{"before", "after"} {
		sub, err := fs.Sub(fsys, dir)
		if err != nil {
			t.Fatal(err)
		}
		if recs[i], err = recording.Read(sub); err != nil {
			t.Fatal(err)
		}
	}
	return report.Comparison{Data: compare.Compare(recs[0], recs[1], compare.Options{})}
}

func comparisonPage(t *testing.T, c report.Comparison) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteComparison(&b, c); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestComparison(t *testing.T) {
	c := comparison(t, "planted")
	page := comparisonPage(t, c)
	count, attributes, text := elements(t, page)
	if count["script"] > 0 || attributes["style"] || count["svg"] != 2 {
		t.Errorf("%d scripts, %d graphs, attributes %v", count["script"], count["svg"], attributes)
	}
	for _, want := range []string{"worse", "main.tax grew", "CPU time per request", "32.38 µs ±1.2 %", "main.tax: 7.6 % → 10 % of the samples"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if !strings.Contains(page, `class="grew`) || !strings.Contains(page, `class="same"`) {
		t.Error("the graph has no colours")
	}
	if comparisonPage(t, c) != page {
		t.Error("one comparison gives two pages")
	}
	if most := 300 << 10; len(page) > most {
		t.Errorf("the page has %d bytes, want at most %d", len(page), most)
	}
}

// TestComparisonOfHostileNames: names are text in the page of a comparison too, its graphs included.
func TestComparisonOfHostileNames(t *testing.T) {
	plain, _, _ := elements(t, comparisonPage(t, named(t, "harmless")))
	evil := `</title></svg><script>alert(1)</script><img src=x onerror=y>"'` + "\x1b[2J\u202e"
	page := comparisonPage(t, named(t, evil))
	count, attributes, _ := elements(t, page)
	for name, n := range count {
		if plain[name] != n {
			t.Errorf("%d elements <%s>, with a harmless name %d", n, name, plain[name])
		}
	}
	if attributes["onerror"] || attributes["src"] || strings.ContainsAny(page, "\x1b\u202e") {
		t.Error("a name acts")
	}
}

// named gives all that has a name in a comparison this one.
func named(t *testing.T, name string) report.Comparison {
	t.Helper()
	c := comparison(t, "planted")
	c.Before.Target.Name, c.Doubts, c.Verdict.Worse = name, []string{name}, []string{name}
	c.Methods.Grown[0].Name, c.Numbers[0].Label = name, name
	for n := c.Stacks.Root; len(n.Calls) > 0; n = n.Calls[0] {
		n.Calls[0].Frame.Name = name
	}
	c.Findings = append(c.Findings, compare.Finding{
		ID: name, Fate: compare.New, Doubt: name, After: &check.Finding{Check: "c", Severity: check.Warning, Summary: name},
	})
	return c
}

// TestComparisonWithoutProfiles has no graph and is a page all the same.
func TestComparisonWithoutProfiles(t *testing.T) {
	c := comparison(t, "quota")
	c.Stacks, c.Methods = nil, nil
	if count, _, text := elements(t, comparisonPage(t, c)); count["svg"] != 0 || !strings.Contains(text, "throttled periods") {
		t.Errorf("%d graphs: %s", count["svg"], text)
	}
}
