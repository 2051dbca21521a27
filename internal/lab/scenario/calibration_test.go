package scenario

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
)

// TestCalibration: a fix that cannot be judged counts neither way, and one that is better than promised is outside the
// interval.
func TestCalibration(t *testing.T) {
	at := func(measured float64, result string) Promised {
		return Promised{
			Finding: "hot-code pid 1", Metric: "requests", Label: "throughput", From: 10, Expect: 20,
			To: check.Bounds{18, 22}, Measured: &measured, Result: result, Text: "told",
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
		"4 promises, 3 judged: 1 inside the interval, 1 better; " +
			"median error of the gain 33 %, of what is left 20 %",
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
	for _, want := range []string{"# How right\n<!--", "4 promises, 3 judged", "broken: told", "-->\nthe rest\n"} {
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

// TestNothingLeft: a time that is measured as zero is known, and is what was expected of it.
func TestNothingLeft(t *testing.T) {
	nothing := 0.0
	p := Promised{Metric: "request_time", Label: "time of a request", From: 0.04, Result: promiseKept}
	unknown := p
	p.Measured, p.To = &nothing, check.Bounds{0, 0.01}
	c := Calibration{{Scenario: "s", Promised: p}, {Scenario: "s", Promised: unknown}}
	const want = "2 promises, 1 judged: 1 inside the interval, 0 " +
		"better; median error of the gain 0 %, of what is left 0 %"
	if got := c.summary(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	short := p
	short.Expect = 0.001
	if g, v := short.off(); !math.IsInf(v, 1) || g != 0.025 {
		t.Errorf("a millisecond was expected of 40: off by %v, by %v of the gain", v, g)
	}
}
