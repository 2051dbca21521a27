package html

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/compare"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
	"github.com/perfdoctor/perfdoctor/internal/report"
)

// comparison reads a case of the text report's.
func comparison(t *testing.T, name string) report.Comparison {
	t.Helper()
	ar, err := txtar.ParseFile("../../../testdata/report/compare/" + name + ".txtar")
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
	_, attributes, text := elements(t, page)
	if attributes["style"] || attributes["src"] || attributes["onclick"] {
		t.Errorf("attributes %v", attributes)
	}
	for _, want := range []string{"worse", "main.tax grew", "CPU time per request", "32.38 µs ±1.2 %"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if comparisonPage(t, c) != page {
		t.Error("one comparison gives two pages")
	}
	if most := 300 << 10; len(page) > most {
		t.Errorf("the page has %d bytes, want at most %d", len(page), most)
	}
}

// TestComparisonInBrowser uses the differential flame graph as a person does.
func TestComparisonInBrowser(t *testing.T) {
	ctx := started(t)
	p := openPage(ctx, t, comparisonPage(t, comparison(t, "planted")))
	if p.eval(`document.querySelector("#verdict").getBoundingClientRect().bottom < innerHeight`) != "true" {
		t.Error("the verdict cannot be seen without scrolling")
	}
	p.picture("compare")
	p.js(`document.getElementById("flames").scrollIntoView()`)
	p.until(painted + `(document.querySelector(".flame-canvas")) > 3`) // drawn with the next frame of the screen
	p.js(`document.querySelector("button[data-method='main.tax']").click()`)
	p.until(`document.getElementById("flame-found").textContent.startsWith("found: 7.6 % → 10")`)
	p.picture("compare-found")
	p.search("main.tax")
	x, y := p.place(".flame-canvas", 0.05, 0)
	p.run(chromedp.MouseClickXY(x, y+2.5*19))
	p.until(`document.querySelectorAll(".crumbs button").length >= 2`)
	p.run(chromedp.KeyEvent(kb.ArrowDown))
	if told := p.text("flame-now"); !strings.Contains(told, "→") || !strings.Contains(told, "of the samples") {
		t.Errorf("a frame is told as %q", told)
	}
	p.run(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent(kb.Escape))
	p.until(`document.querySelectorAll(".crumbs button").length < 4`)
	p.click("flame-reset")
	p.until(`document.querySelectorAll(".crumbs button").length === 0`)
	p.click("side-before")
	if p.eval(`document.getElementById("side-before").getAttribute("aria-pressed")`) != "true" {
		t.Error("the other side is not shown")
	}
	p.search("no such function")
	p.until(`document.getElementById("flame-found").textContent === "nothing found"`)
	p.click("theme")
	p.until(`getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number).reduce((a, b) => a + b) < 382`)
	p.search("main.tax")
	p.picture("compare-dark")
	p.names()
	call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: 390, Height: 1400,
		DeviceScaleFactor: 1, Mobile: true,
	})
	p.js(`scrollTo(0, 0)`)
	p.picture("compare-phone")
	p.wide()
	p.quiet()
}

// openPage opens a page that is not yet a file.
func openPage(ctx context.Context, t *testing.T, text string) *tab {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return open(ctx, t, path)
}

// TestHostileComparisonInBrowser: names that are markup stay text in everything that the program makes of them.
func TestHostileComparisonInBrowser(t *testing.T) {
	ctx := started(t)
	p := openPage(ctx, t, comparisonPage(t, named(t, hostile)))
	p.js(`document.getElementById("flames").scrollIntoView()`)
	p.js(`document.querySelector("button[data-method]").click()`)
	p.until(`document.getElementById("flame-found").textContent.startsWith("found: ")`)
	p.js(`document.querySelector(".flame-canvas").focus()`)
	p.run(chromedp.KeyEvent(kb.Enter)) // to the widest that was found
	p.until(`document.querySelector(".crumbs").textContent.includes("<img src=x")`)
	p.until(`document.getElementById("flame-now").textContent.includes("<img src=x")`)
	x, y := p.place(".flame-canvas", 0.5, 0)
	p.run(chromedp.MouseEvent("mouseMoved", x, y+1.5*19))
	p.until(`document.querySelector(".hover").textContent.includes("<img src=x")`)
	if n := p.eval(`document.querySelectorAll("img, iframe, [onerror]").length`); n != "0" {
		t.Errorf("%s elements were made of names", n)
	}
	p.quiet()
}

// TestDiffIsWhole: the packed data has the samples of the tree. Only calls too small to see are left out.
func TestDiffIsWhole(t *testing.T) {
	root := &stacks.Node{Before: 100_000, After: 50_000, Calls: []*stacks.Node{
		{Frame: stacks.Frame{Name: "a"}, Before: 99_999, After: 49_999, Calls: []*stacks.Node{
			{Frame: stacks.Frame{Name: "b"}, Before: 1},
			{Frame: stacks.Frame{Name: "c"}, Before: 2},
			{Frame: stacks.Frame{Name: "d"}, Before: 3, After: 2},
		}},
		{Frame: stacks.Frame{Name: "b"}, Before: 1, After: 2},
	}}
	c := comparison(t, "planted")
	c.Stacks.Root = root
	packed, err := packDiff(c.Stacks)
	must(t, err)
	length := binary.LittleEndian.Uint32(packed)
	var h diffHeader
	must(t, json.Unmarshal(packed[4:4+length], &h))
	// callees, frames, before, after; of the root, a, d and the outer b.
	want := []uint64{2, 1, 0, 0, 0, 1, 2, 3, 100_000, 99_999, 3, 1, 50_000, 49_999, 2, 2}
	for i, rest := 0, packed[4+length:]; i < len(want); i++ {
		n, size := binary.Uvarint(rest)
		if rest = rest[size:]; n != want[i] {
			t.Fatalf("number %d is %d, want %d", i, n, want[i])
		}
	}
	if strings.Join(h.Names, "") != "adb" || h.Nodes != 4 {
		t.Errorf("%d nodes of %v", h.Nodes, h.Names)
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

// named gives this name to everything that has a name in a comparison.
func named(t *testing.T, name string) report.Comparison {
	t.Helper()
	c := comparison(t, "planted")
	c.Before.Target.Name, c.Doubts, c.Verdict.Worse = name, []string{name}, []string{name}
	c.Methods.Grown[0].Name, c.Numbers[0].Label = name, name
	for n := c.Stacks.Root; len(n.Calls) > 0; n = n.Calls[0] {
		n.Calls[0].Frame.Name = name
	}
	c.Findings = append(c.Findings, compare.Finding{
		ID: name, Fate: compare.New, Doubt: name, After: &check.Finding{
			Check: "c", Severity: check.Warning,
			Summary: name,
		},
	})
	return c
}

// TestComparisonWithoutProfiles has no graph, but is still a page.
func TestComparisonWithoutProfiles(t *testing.T) {
	c := comparison(t, "quota")
	c.Stacks, c.Methods = nil, nil
	page := comparisonPage(t, c)
	if _, _, text := elements(t, page); strings.Contains(page, `id="diff"`) ||
		!strings.Contains(text, "throttled periods") {
		t.Errorf("with a graph, or without the numbers: %s", text)
	}
}

// TestTrend: the page of many recordings has their lasting changes, a curve for each number, and no name as markup.
func TestTrend(t *testing.T) {
	page := trendPage(t)
	count, attributes, text := elements(t, page)
	if attributes["style"] || attributes["src"] || attributes["onerror"] || count["script"] > 0 || count["img"] > 0 {
		t.Errorf("attributes %v, elements %v", attributes, count)
	}
	for _, want := range []string{
		"4 recordings from ", "worse", "from <img src=x onerror=alert(1)>", "100 µs → 400 µs", "cpu-throttled",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q:\n%s", want, text)
		}
	}
	if marks := strings.Count(page, `<span class="warning">`); count["path"] != 1 || marks != 2 {
		t.Errorf("%d curves, %d warnings", count["path"], marks)
	}
}

func trendPage(t *testing.T) string {
	t.Helper()
	cost := func(v float64) *keynumber.Estimate { return &keynumber.Estimate{Mean: v} }
	trend := &compare.Trend{
		Rows: []compare.Row{{
			Name: "cpu_per_request", Label: "CPU time per request", Unit: "s",
			Values: []*keynumber.Estimate{cost(1e-4), nil, cost(4e-4), cost(4e-4)},
		}},
		Marks: []compare.Mark{{Check: "cpu-throttled", Seen: []compare.Seen{
			compare.SeenWarning, compare.SeenWarning, compare.SeenFine, compare.SeenFine,
		}}},
		Steps: []compare.Step{{At: 2, Name: "cpu_per_request", Result: compare.Worse, Summary: "four times as much"}},
	}
	for _, name := range []string{"night-1.zip", "night-2.zip", "<img src=x onerror=alert(1)>", "night-4.zip"} {
		trend.Runs = append(trend.Runs, compare.Run{Name: name})
	}
	var b bytes.Buffer
	must(t, WriteTrend(&b, report.Trend{Trend: trend}))
	return b.String()
}
