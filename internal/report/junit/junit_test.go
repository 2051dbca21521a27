package junit

import (
	"encoding/xml"
	"strings"
	"testing"
	"time"
)

// TestWrite reads back what was written. Hostile names stay names, and the counts match the cases.
func TestWrite(t *testing.T) {
	evil := "</testcase><testcase name='x'>]]>&\"'\x1b[2J\xff"
	cases := []Case{
		{Class: "c", Name: evil, Failure: &Message{Text: evil, Type: "critical", Body: evil}},
		{Class: "c", Name: "broken", Error: &Message{Text: "why"}},
		{Class: "c", Name: "left out", Skipped: &Message{Text: "why"}},
		{Class: "c", Name: "fine", Out: evil},
	}
	var b strings.Builder
	started := time.Date(2026, 11, 20, 12, 0, 0, 0, time.FixedZone("", 7200))
	if err := Write(&b, []Suite{{
		Name: evil, Seconds: 1.25, Started: started, Facts: []Fact{{"k", evil}},
		Cases: cases,
	}}); err != nil {
		t.Fatal(err)
	}
	var doc file
	if err := xml.Unmarshal([]byte(b.String()), &doc); err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	s := doc.Suites[0]
	if doc.Tests != 4 || s.Tests != 4 || s.Failures != 1 || s.Errors != 1 || s.Skipped != 1 || len(s.Cases) != 4 {
		t.Errorf("tests %d, %d, failures %d, errors %d, skipped %d, %d cases", doc.Tests, s.Tests, s.Failures, s.Errors,
			s.Skipped, len(s.Cases))
	}
	want := strings.NewReplacer("\x1b", "\uFFFD", "\xff", "\uFFFD").Replace(evil)
	for _, got := range []string{
		s.Name, s.Cases[0].Name, s.Cases[0].Failure.Text, s.Cases[0].Failure.Body,
		s.Cases[3].Out, s.Facts.List[0].Value,
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if s.Timestamp != "2026-11-20T10:00:00" {
		t.Errorf("timestamp %s is not UTC", s.Timestamp)
	}
}
