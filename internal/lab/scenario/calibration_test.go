package scenario

import (
	"strings"
	"testing"
	"time"
)

// TestCalibration: what cannot be judged counts neither way, and what is better than promised is outside the interval.
func TestCalibration(t *testing.T) {
	at := func(measured float64, result string) Promised {
		return Promised{
			Finding: "hot-code pid 1", Metric: "requests", Label: "throughput", From: 10, Expect: 20,
			To: [2]float64{18, 22}, Measured: measured, Result: result, Text: "told",
		}
	}
	v := NewVerification("v1", 1, time.Now())
	v.Add([]*Result{{
		Scenario: "s", Status: Held, Phases: []Phase{
			{Name: PhaseSick, Kind: KindSick},
			{Name: "cure", Kind: KindCure, Promised: []Promised{
				at(19, promiseKept), at(25, promiseBetter), at(12, promiseBroken), at(10, "not the same load"),
			}},
		},
	}})
	var b, svg strings.Builder
	if err := v.Text(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"4 promises, of which 3 could be judged: 1 of 3 measured values are inside the interval, 1 are better; " +
			"median error of the expected value 20 %",
		"s, cure: broken: told",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if _, err := v.Page("# A page without the marks\n"); err == nil {
		t.Error("a page without marks is written to")
	}
	page := "# How right\n" + pageBegins + "stale\n" + pageEnds + "the rest\n"
	for range 2 { // over what it wrote itself
		var err error
		if page, err = v.Page(page); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"# How right\n<!--", "4 promises, of which 3", "broken: told", "-->\nthe rest\n"} {
		if strings.Count(page, want) != 1 {
			t.Errorf("no %q, or several, in\n%s", want, page)
		}
	}
	if strings.Contains(page, "stale") {
		t.Errorf("what was there is left:\n%s", page)
	}
	if err := v.Calibration.SVG(&svg); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(svg.String(), "<circle"); got != 3 {
		t.Errorf("the picture has %d dots, want 3", got)
	}
}
