package cli

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/report"
	"github.com/perfdoctor/perfdoctor/internal/report/html"
)

// TestIncidentsOpenWithTheirTrigger has recordings that the daemon made of real faults, each beside a fuzz test that
// came and went. They open with the finding that they were made for, in all formats, in the part with the finding and
// in all of it. The CPU time of the consumers adds up to what was busy. Names of the host are pseudonyms.
func TestIncidentsOpenWithTheirTrigger(t *testing.T) {
	for _, trigger := range []string{"cpu-hog", "accept-queue-overflow", "cpu-throttled"} {
		whole, err := recording.Open(filepath.Join("testdata", "incidents", trigger+".zip"))
		must(t, err)
		for part, rec := range map[string]*recording.Recording{"part": whole.AtIncident(), "whole": whole} {
			t.Run(trigger+" "+part, func(t *testing.T) {
				data := report.Build(rec, check.Run(rec, checks.Suite(), check.Options{Causes: checks.Causes()}))
				opens(t, rec, data, trigger)
				addsUp(t, data)
			})
		}
	}
}

func opens(t *testing.T, rec *recording.Recording, data *report.Data, trigger string) {
	t.Helper()
	var text, js, page bytes.Buffer
	must(t, data.Text(&text, report.TextOptions{}))
	must(t, data.JSON(&js))
	must(t, html.Write(&page, html.Input{Report: data, Recording: rec, Checks: checks.Suite()}))

	_, verdict, _ := strings.Cut(text.String(), "\n\n")
	if head, _, _ := strings.Cut(verdict, "\n\n"); !strings.Contains(head, "  "+trigger+": ") ||
		strings.Contains(text.String(), "NO BOTTLENECK") {
		t.Errorf("the text opens with\n%s", head)
	}
	told := len(rec.Meta.Incident.Timeline) > 0 // earlier releases wrote none
	if told && (!strings.Contains(text.String(), "\nTIMELINE  ") ||
		!strings.Contains(text.String(), "(recorded for this)")) {
		t.Errorf("the text has no timeline:\n%s", text.String())
	}
	var said struct {
		ExitCode int `json:"exit_code"`
		Verdict  struct{ Result, Principal string }
		Findings []struct{ Check, Role string }
		Incident struct{ Timeline []report.Span }
	}
	must(t, json.Unmarshal(js.Bytes(), &said))
	first := said.Findings[0]
	if said.ExitCode != 3 || said.Verdict.Result != "bottleneck" || first.Check != trigger ||
		first.Role != "principal" || !strings.HasPrefix(said.Verdict.Principal, trigger+" ") ||
		told != (len(said.Incident.Timeline) > 0) {
		t.Errorf("the JSON opens with %+v", said)
	}
	_, section, _ := strings.Cut(page.String(), `<section id="verdict"`)
	section, _, _ = strings.Cut(section, "</section>")
	if !strings.Contains(section, trigger) || told != strings.Contains(page.String(), `<section id="timeline"`) {
		t.Errorf("the page opens with\n%s", section)
	}
}

// addsUp compares the consumers with what was busy. The kernel counts processes and CPUs in different places, so they
// differ by a few hundredths of a CPU.
func addsUp(t *testing.T, data *report.Data) {
	t.Helper()
	c := data.Consumers
	sum := c.Interrupts + c.Unaccounted
	for _, x := range c.List {
		sum += x.CPUs
	}
	if apart := sum - c.Busy; apart < -0.05 || apart > 0.05 || c.Unaccounted > 0.1*c.Busy {
		t.Errorf("the consumers have %.3f CPUs, %.3f of them nobody's, and %.3f were busy", sum, c.Unaccounted, c.Busy)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
