package checks

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// TestTableIsComplete: a row of the built-in table says all that a user needs, a user's own may leave much out.
func TestTableIsComplete(t *testing.T) {
	list := builtIn()
	if len(list) < 25 {
		t.Fatalf("only %d signatures: this test looks at the wrong table", len(list))
	}
	known := Suite()
	for _, s := range list {
		if len(s.About) < 150 || strings.HasPrefix(s.Source, "signatures") || !strings.HasPrefix(s.Source, "https://") {
			t.Errorf("%s: about or source is missing", s.Name)
		}
		if s.Expect == 0 || strings.HasPrefix(s.Risk, "not known") || strings.Contains(s.WrongIf, "other work than the title") {
			t.Errorf("%s: expect, risk or wrong-if is missing", s.Name)
		}
		if (s.Before == "") != (s.After == "") {
			t.Errorf("%s: there is a before without an after, or the other way round", s.Name)
		}
		for _, err := range s.strangers("signatures.yaml", list, known) {
			t.Error(err)
		}
		for _, w := range s.Where {
			if strings.HasPrefix(w.Does, "matches") {
				t.Errorf("%s: does is missing", s.Name)
			}
			unusual := w.Info != usualInfo || w.Warn != usualWarn
			if unusual && strings.HasPrefix(s.Why, "below it a cure") {
				t.Errorf("%s: other thresholds than the usual ones, and no why", s.Name)
			}
		}
	}
}

// TestOneVoice runs the whole suite over each case that fires: what one signature explains no other may warn of again.
func TestOneVoice(t *testing.T) {
	for _, c := range fromTable() {
		files, err := filepath.Glob(filepath.Join("testdata", c.Name, "firing*.txtar"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: %d cases, %v", c.Name, len(files), err)
		}
		for _, f := range files {
			res := check.Run(openCase(t, f), Suite(), check.Options{})
			for _, x := range res.Findings {
				if x.Check != c.Name && x.Severity >= check.Warning {
					t.Errorf("%s: also a %s of %s: %s", f, x.Severity, x.Check, x.Summary)
				}
			}
		}
	}
}

const ownSignature = `signatures:
  legacy-codec:
    title: The legacy codec is in use
    where:
      - event: cpu
        does: goes into the legacy codec
        frames: [com.example.shop.Tickets.*]
        warn: 30 %
    cure: Use the new codec.
`

func TestOwnSignature(t *testing.T) {
	list, err := ParseSignatures("own.yaml", []byte(ownSignature))
	if err != nil {
		t.Fatal(err)
	}
	res := check.Run(openCase(t, "testdata/exception-storm/firing.txtar"), list, check.Options{})
	if len(res.Findings) != 1 || res.Findings[0].Check != "legacy-codec" || res.Findings[0].Severity != check.Warning ||
		!strings.HasPrefix(res.Findings[0].Summary, "40 % of the CPU time goes into the legacy codec, for com.example.shop.") {
		t.Errorf("findings: %+v", res.Findings)
	}
	if err := check.Validate(slices.Concat(Suite(), list)); err != nil {
		t.Error(err)
	}
}

func TestBadSignatures(t *testing.T) {
	change := func(old, with string) string { return strings.Replace(ownSignature, old, with, 1) }
	for name, tc := range map[string]struct{ text, want string }{
		"misspelt field":    {change("frames:", "farmes:"), `own.yaml:7: unknown field "farmes" in signatures.legacy-codec.where[0]: did you mean frames?`},
		"misspelt event":    {change("event: cpu", "event: cpus"), `own.yaml:5: signatures.legacy-codec.where[0].event: there is no event "cpus": did you mean cpu?`},
		"share":             {change("30 %", "30"), `own.yaml:8: signatures.legacy-codec.where[0].warn: "30" is not a share between 0 % and 100 %, such as 5 %`},
		"no frames":         {change("[com.example.shop.Tickets.*]", "[]"), "own.yaml:2: legacy-codec: where[0] has no frames and no classes: it would match everything"},
		"matches all":       {change("com.example.shop.Tickets.*", "'*'"), "own.yaml:2: legacy-codec: where[0].frames[0] matches everything"},
		"no cure":           {change("cure: Use the new codec.", "risk: none"), "own.yaml:2: legacy-codec: cure is missing: what to change, in one sentence"},
		"thresholds":        {change("warn: 30 %", "warn: 3 %\n        info: 4 %"), "own.yaml:2: legacy-codec: where[0]: info is above warn"},
		"name of a check":   {change("legacy-codec", "cpu-steal"), "own.yaml: cpu-steal: there is a check of that name: choose another"},
		"name":              {change("legacy-codec", "Legacy_Codec"), "own.yaml:2: Legacy_Codec: the name is not words of small letters and digits with dashes between"},
		"stage":             {change("title:", "stage: path\n    title:"), `own.yaml:3: signatures.legacy-codec.stage: the stage is "path": it is code or runtime`},
		"yields to nobody":  {change("cure:", "yields-to: [exeption-storm]\n    cure:"), `own.yaml: legacy-codec: yields-to: there is no "exeption-storm": did you mean exception-storm?`},
		"explains nothing":  {change("cure:", "explains: [gc]\n    cure:"), `own.yaml: legacy-codec: explains: there is no "gc"`},
		"nothing in it":     {"signatures:\n", "own.yaml:1: signatures: there is none"},
		"two of one event":  {change("    cure:", "      - {event: cpu, frames: [x.y]}\n    cure:"), "own.yaml:2: legacy-codec: where[1]: there is one of event cpu already"},
		"runs":              {change("title:", "runs: go\n    title:"), `own.yaml:2: legacy-codec: runs is "go": it is java or native`},
		"two documents":     {ownSignature + "---\na: 1\n", "own.yaml: want one document, and no --- after it"},
		"explains a circle": {change("cure:", "explains: [legacy-codec]\n    cure:"), "explains itself"},
	} {
		_, err := ParseSignatures("own.yaml", []byte(tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v\nwant %s", name, err, tc.want)
		}
	}
}

func FuzzParseSignatures(f *testing.F) {
	f.Add([]byte(ownSignature))
	f.Add(signatureTable[:2000])
	f.Fuzz(func(_ *testing.T, data []byte) {
		list, err := readSignatures("own.yaml", data)
		if err != nil {
			return
		}
		p := &stacks.Profile{Event: stacks.CPU, Frames: []stacks.Frame{{Name: "a.b"}, {Name: "c"}}, Samples: []stacks.Sample{{Stack: []int{0, 1}, Thread: -1, Count: 1}}}
		for _, s := range list {
			for _, w := range s.Where {
				matcherOf(p, w, nil).hits()
			}
		}
	})
}

// TestMendFirst: a finding about code names the earlier one that distorts what the profile shows.
func TestMendFirst(t *testing.T) {
	rec, err := recording.Open("testdata/causes/throttled-exceptions.txtar")
	if err != nil {
		t.Fatal(err)
	}
	res := check.Run(rec, Suite(), check.Options{})
	p := res.Principal()
	if p == nil || p.Check != "cpu-throttled" {
		t.Fatalf("the principal finding is %+v", p)
	}
	i := slices.IndexFunc(res.Findings, func(f check.Finding) bool { return f.Check == "exception-storm" })
	if i < 0 || !slices.Equal(res.Findings[i].MendFirst, []string{p.ID()}) {
		t.Errorf("exception-storm does not say what comes first: %+v", res.Findings)
	}
}

// TestFindingsByWeight: of findings of one stage that are equally bad and sure, the one about most time stands first.
func TestFindingsByWeight(t *testing.T) {
	rec := openCase(t, "testdata/causes/two-hot-paths.txtar")
	res := check.Run(rec, Suite(), check.Options{})
	var names []string
	for _, f := range res.Findings {
		names = append(names, f.Check)
	}
	if want := []string{"regex-compile", "exception-storm"}; !slices.Equal(names, want) {
		t.Errorf("findings %v, want %v", names, want)
	}
}
