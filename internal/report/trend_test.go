package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/compare"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// trend repeats the first of a case's two recordings three times and then the second three times, a day apart. Equal
// recordings have no spread, so a test's figures are those of the file.
func trend(t *testing.T) Trend {
	t.Helper()
	var list []compare.Source
	for i, r := range []int{0, 0, 0, 1, 1, 1} {
		rec := recordings(t, "../../testdata/report/compare/planted.txtar")[r]
		rec.Meta.Started = time.Date(2026, 11, 1+i, 2, 0, 0, 0, time.UTC)
		list = append(list, compare.Source{
			Name: fmt.Sprintf("night-%d.zip", i), Started: rec.Meta.Started, Open: func() (*recording.Recording,
				error,
			) {
				return rec, nil
			},
		})
	}
	return Trend{compare.MakeTrend(list, []*check.Check{throttling()}, check.Options{})}
}

func TestTrendText(t *testing.T) {
	tr := trend(t)
	var b bytes.Buffer
	if err := tr.Text(&b, TextOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"6 recordings  from 2026-11-01 02:00 to 2026-11-06 02:00 UTC\n", "LASTING CHANGES\n",
		"from night-3.zip (2026-11-04 02:00 UTC) on:", "main.tax",
		"CPU time per request", "▅▅▅███", "\n  2026-11-04 02:00  33.65 µs", "night-5.zip: none\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("there is no %q in\n%s", want, b.String())
		}
	}
	md := rendered(t, tr.Markdown)
	for _, want := range []string{"- **worse** from night-3.zip", "\n| 2026-11-04 02:00 | 33.65 µs |", "main.tax"} {
		if !strings.Contains(md, want) {
			t.Errorf("there is no %q in\n%s", want, md)
		}
	}
}

// TestTrendLayout: lines fit, and names do nothing to the terminal.
func TestTrendLayout(t *testing.T) {
	tr := trend(t)
	evil := "x\x1b[2J\n| evil | **\u202e"
	tr.Runs[3].Name, tr.Runs[2].Verdict, tr.Marks = evil, evil,
		[]compare.Mark{{Check: "c", Seen: []compare.Seen{compare.SeenCritical}}}
	for _, width := range []int{40, 80, 160} {
		var b bytes.Buffer
		if err := tr.Text(&b, TextOptions{Width: width}); err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(b.String(), "\n  UTC  ") // the table is as wide as it is
		for _, l := range strings.Split(head, "\n") {
			if utf8.RuneCountInString(l) > width {
				t.Errorf("at %d columns: %q", width, l)
			}
		}
		for _, r := range b.String() {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("text holds %U", r)
			}
		}
	}
	if md := rendered(t, tr.Markdown); strings.Contains(md, "| evil |") || strings.Contains(md, "\x1b") {
		t.Error("a name became markup")
	}
}

func TestTrendSchemaIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/report-schema.md")
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal([]byte(rendered(t, trend(t).JSON)), &v); err != nil {
		t.Fatal(err)
	}
	for _, k := range keys(v) {
		if !bytes.Contains(doc, []byte("`"+k+"`")) {
			t.Errorf("field %q is not in docs/report-schema.md", k)
		}
	}
}
