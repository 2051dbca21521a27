package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testResults are results of an open and of a sealed case.
func testResults(t *testing.T, fault string) *Results {
	t.Helper()
	dir := t.TempDir()
	cases := []*Case{testCase(openName), testCase(sealedName)}
	for _, c := range cases {
		for _, p := range testPhases(fault, "") {
			if err := c.writePhase(dir, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	r, missing, err := newTestScorer(t).results(append(cases, testCase("not-run")), dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"not-run"}, missing); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	return r
}

// TestSealedIsCounted: only counts of a sealed case are kept, both in what is committed and in readable text.
func TestSealedIsCounted(t *testing.T) {
	r := testResults(t, "regex-backtracking")
	data, err := json.Marshal(r.Sealed)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"regex", "semver", `"` + sealedName + `"`} {
		if strings.Contains(string(data), word) {
			t.Errorf("%q stands in %s", word, data)
		}
	}
	if len(r.Cases) != 1 || r.Sealed.All.Cases != 1 || r.total().Marks[Exact] != 2 || r.Sealed.All.Silenced != 1 {
		t.Errorf("%d open, sealed %+v; want one each, exact and silenced", len(r.Cases), r.Sealed.All)
	}
	if got := r.by(func(c *CaseScore) string { return c.Family }, r.Sealed.Families)["advisories"]; got.Cases != 2 {
		t.Errorf("by family %+v, want 2 cases", got)
	}
	dir := t.TempDir()
	c, p := testCase(sealedName), testPhases("regex-backtracking", "")[phaseFault]
	if err := c.writePhase(dir, p); err != nil {
		t.Fatal(err)
	}
	packed, err := os.ReadFile(c.phaseFile(dir, phaseFault))
	if err != nil || strings.Contains(string(packed), "regex") {
		t.Errorf("the result of a sealed case can be read: %v", err)
	}
	back, err := c.readPhase(dir, phaseFault)
	if err != nil || back.Version != "v1" || back.Target != 0.9 {
		t.Errorf("read back: %+v, %v", back, err)
	}
	if none, err := c.readPhase(dir, phaseCure); none != nil || err != nil {
		t.Errorf("a phase that was not run: %+v, %v", none, err)
	}
}

// TestPrint: the mark of a sealed case is not printed, neither by its name nor as the only one that is counted.
func TestPrint(t *testing.T) {
	r := testResults(t, "regex-backtracking")
	for _, c := range []struct {
		all     bool
		missing []string
		want    string
	}{
		{true, nil, "sealed: 1 cases, 1 exact"},
		{false, nil, "sealed: 1 cases, counted once all cases were run\n"},
		{true, []string{"a"}, "sealed: 1 cases, counted once all cases were run\n"},
	} {
		var out strings.Builder
		if err := r.print(&out, c.missing, c.all); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), c.want) || strings.Contains(out.String(), sealedName+"  ") {
			t.Errorf("all %v, missing %v: want %q in\n%s", c.all, c.missing, c.want, &out)
		}
	}
}

// TestFirstStays: the first contact is written once.
func TestFirstStays(t *testing.T) {
	dir := t.TempDir()
	if err := testResults(t, "cpu-throttled").write(dir, firstContact); err != nil {
		t.Fatal(err)
	}
	err := testResults(t, "regex-backtracking").write(dir, firstContact)
	if err == nil || !strings.Contains(err.Error(), "never replaced") {
		t.Errorf("the first contact was replaced: %v", err)
	}
	for range 2 {
		if err := testResults(t, "regex-backtracking").write(dir, "v2"); err != nil {
			t.Fatal(err)
		}
	}
	first, later, peers, err := readResults(dir)
	if err != nil || len(later) != 1 || len(peers) != 0 {
		t.Fatalf("%d later, %d peers, %v", len(later), len(peers), err)
	}
	if first.total().Marks[Wrong] != 2 || later[0].total().Marks[Exact] != 2 {
		t.Errorf("first %+v, later %+v", first.total(), later[0].total())
	}
}

func TestPeer(t *testing.T) {
	s, cases := newTestScorer(t), []*Case{testCase(openName), testCase(sealedName), testCase("other")}
	answers := &PeerAnswers{Peer: "top 1", Date: "2026-11-25", Cases: map[string]PeerAnswer{
		openName:   {Words: []string{"hot-code"}, Text: "semver uses most", Seconds: 3},
		sealedName: {Words: []string{otherWord}, Text: "a secret"},
	}}
	r, err := s.peer(answers, cases)
	if err != nil {
		t.Fatal(err)
	}
	if r.find(openName).Fault.Mark != Partly || r.Sealed.All.Marks[Wrong] != 1 || r.total().Cases != 2 {
		t.Errorf("%+v and %+v, want partly, and wrong", r.find(openName).Fault, r.Sealed.All)
	}
	answers.Cases = map[string]PeerAnswer{openName: {
		Words: []string{"io-wait"}, Text: "the disk", Others: []PeerFinding{
			{Name: "Code", Words: []string{"regex-backtracking"}, Text: "parseRange uses most"},
		},
	}}
	if r, err = s.peer(answers, cases); err != nil {
		t.Fatal(err)
	}
	want := &PhaseScore{
		Mark: Partly, Why: "the right finding is not the first", Says: []string{"io-wait"}, Summary: "the disk",
		Others: []string{"Code"},
	}
	if diff := cmp.Diff(want, r.find(openName).Fault); diff != "" {
		t.Errorf("a second finding (-want +got):\n%s", diff)
	}
	answers.Cases["nowhere"] = PeerAnswer{}
	if _, err := s.peer(answers, cases); err == nil {
		t.Error("an answer to no case was taken")
	}
	answers.Cases = map[string]PeerAnswer{openName: {Words: []string{"magic"}}}
	if _, err := s.peer(answers, cases); err == nil {
		t.Error("a word that is not in the vocabulary was taken")
	}
}

func TestReadPeer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "peer.json")
	text := `{"peer": "melisai 1.2", "date": "2026-11-25", "cases": {"a": {"words": ["lock-contention"],
		"text": "said", "seconds": 12.3, "broken": ""}}}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readPeer(file)
	want := &PeerAnswers{Peer: "melisai 1.2", Date: "2026-11-25", Cases: map[string]PeerAnswer{
		"a": {Words: []string{"lock-contention"}, Text: "said", Seconds: 12.3},
	}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestPage: the page has the first score beside the newest, quotes what was missed, and is the same each time.
func TestPage(t *testing.T) {
	first, later := testResults(t, "cpu-throttled"), testResults(t, "regex-backtracking")
	later.Who = "perfdoctor v2"
	render := func(p *page) string {
		p.cases = map[string]*Case{openName: testCase(openName)}
		text, err := p.render()
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	text := render(&page{first: first})
	for _, want := range []string{
		"First contact (2026-11-25, 2 cases that others wrote): 0 % exact, 0 % partly, 0 % abstained, 0 % missed, " +
			"100 % wrong;",
		"### semver-range: wrong\n",
		"WARNING  cpu-throttled: pid 7 (high confidence)\n  in 0123/semver.js\n\n    share: 80 %\n",
		"| advisories | 2 | 0 | 0 | 0 | 0 | 2 (100 %) | 0 | 0 of 2 | 2 of 2 | 10.5 s |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q:\n%s", want, text)
		}
	}
	both := render(&page{first: first, later: []*Results{later}})
	for _, want := range []string{
		"| first contact: perfdoctor v1 | 2 | 0 | 0 | 0 | 0 | 2 (100 %) | 0 |", "| perfdoctor v2 | 2 | 2 (100 %) |",
		"| regex-backtracking | wrong | exact | regex-backtracking | no | yes |",
	} {
		if !strings.Contains(both, want) {
			t.Errorf("the page has no %q:\n%s", want, both)
		}
	}
	if again := render(&page{first: first, later: []*Results{later}}); again != both {
		t.Error("the page is another one each time")
	}
	if none := render(&page{}); !strings.Contains(none, "not been taken yet") {
		t.Errorf("without results: %s", none)
	}
}

// TestPagePeers: a peer is listed below the first contact on the same cases, with what it said of each.
func TestPagePeers(t *testing.T) {
	first := testResults(t, "cpu-throttled")
	s, cases := newTestScorer(t), []*Case{testCase(openName), testCase(sealedName)}
	peer := func(who string, answers map[string]PeerAnswer) *Results {
		r, err := s.peer(&PeerAnswers{Peer: who, Date: "2026-11-26", Cases: answers}, cases)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	all := peer("top 1", map[string]PeerAnswer{
		openName: {Words: []string{"cpu-full"}, Text: "the CPUs are full", Seconds: 4}, sealedName: {Seconds: 2},
	})
	one := peer("vmstat 2", map[string]PeerAnswer{openName: {Broken: "it ends"}})
	p := &page{first: first, peers: []*Results{one, all}, cases: map[string]*Case{openName: testCase(openName)}}
	text, err := p.render()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| first contact, on these: perfdoctor v1 | 2026-11-25 | 2 | 0 | 0 | 0 | 0 | 2 (100 %) | 0 | 10.5 s |\n" +
			"| top 1 | 2026-11-26 | 2 | 0 | 0 | 0 | 2 (100 %) | 0 | 0 | 3.0 s |\n" +
			"| first contact, on these: perfdoctor v1 | 2026-11-25 | 1 | 0 | 0 | 0 | 0 | 1 (100 %) | 0 | 10.5 s |\n" +
			"| vmstat 2 | 2026-11-26 | 1 | 0 | 0 | 0 | 0 | 0 | 1 (100 %) | – |\n",
		"| semver-range | regex-backtracking | wrong | broken | missed: cpu-full |\n",
		"\nvmstat 2 has no answer to semver-range: it ends\n", "\nvmstat 2 has not been put to 1 more cases yet.\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page has no %q:\n%s", want, text)
		}
	}
}

func TestReplaceLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "README.md")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a\n" + lineBegin + "old\n" + lineEnd + "b\n")
	if err := replaceLine(file, "new"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if want := "a\n" + lineBegin + "new\n" + lineEnd + "b\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if got := wrapped(strings.Repeat("word ", 30)); got != strings.TrimSpace(strings.Repeat("word ", 24))+"\n"+
		strings.Repeat("word ", 6) {
		t.Errorf("wrapped: %q", got)
	}
	write("no marks\n")
	if err := replaceLine(file, "new"); err == nil {
		t.Error("a README without the marks was changed")
	}
}
