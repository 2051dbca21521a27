package checks

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
	"github.com/perfdoctor/perfdoctor/internal/checks/signature"
)

// TestOneVoice runs the whole suite over each case that fires. No other rule may warn of what one signature finds,
// except as its consequence.
func TestOneVoice(t *testing.T) {
	for _, c := range append(signature.Checks(check.Runtime), signature.Checks(check.Code)...) {
		files, err := filepath.Glob(filepath.Join("*", "testdata", c.Name, "firing*.txtar"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: %d cases, %v", c.Name, len(files), err)
		}
		for _, f := range files {
			res := check.Run(checktest.OpenFile(t, f), Suite(), check.Options{Causes: Causes()})
			for _, x := range res.Findings {
				if x.Check != c.Name && x.Severity >= check.Warning && !strings.HasPrefix(x.ExplainedBy, c.Name+" ") {
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
	list, causes, err := ParseSignatures("own.yaml", []byte(ownSignature))
	if err != nil {
		t.Fatal(err)
	}
	res := check.Run(checktest.Open(t, "exception-storm/firing"), list, check.Options{})
	if len(res.Findings) != 1 || res.Findings[0].Check != "legacy-codec" || res.Findings[0].Severity != check.Warning ||
		!strings.HasPrefix(res.Findings[0].Summary,
			"40 % of the CPU time goes into the legacy codec, for com.example.shop.") {
		t.Errorf("findings: %+v", res.Findings)
	}
	if err := causes.Validate(slices.Concat(Suite(), list)); err != nil || len(causes.Of("legacy-codec")) != 5 {
		t.Errorf("%v, %v", causes.Of("legacy-codec"), err)
	}
}

func TestBadSignatures(t *testing.T) {
	change := func(old, with string) string { return strings.Replace(ownSignature, old, with, 1) }
	for name, tc := range map[string]struct{ text, want string }{
		"misspelt field": {
			change("frames:", "farmes:"),
			`own.yaml:7: unknown field "farmes" in signatures.legacy-codec.where[0]: did you mean frames?`,
		},
		"misspelt event": {
			change("event: cpu", "event: cpus"),
			`own.yaml:5: signatures.legacy-codec.where[0].event: there is no event "cpus": did you mean cpu?`,
		},
		"share": {
			change("30 %", "30"),
			`own.yaml:8: signatures.legacy-codec.where[0].warn: "30" is not a share between 0 % and 100 %, such as 5 %`,
		},
		"no frames": {
			change("[com.example.shop.Tickets.*]", "[]"),
			"own.yaml:2: legacy-codec: where[0] has no frames and no classes: it would match everything",
		},
		"matches all": {
			change("com.example.shop.Tickets.*", "'*'"),
			"own.yaml:2: legacy-codec: where[0].frames[0] matches everything",
		},
		"no cure": {
			change("cure: Use the new codec.", "risk: none"),
			"own.yaml:2: legacy-codec: cure is missing: what to change, in one sentence",
		},
		"thresholds": {
			change("warn: 30 %", "warn: 3 %\n        info: 4 %"),
			"own.yaml:2: legacy-codec: where[0]: info is above warn",
		},
		"name of a check": {
			change("legacy-codec", "cpu-steal"),
			"own.yaml: cpu-steal: there is a check of that name: choose another",
		},
		"name": {
			change("legacy-codec", "Legacy_Codec"),
			"own.yaml:2: Legacy_Codec: the name is not words of small letters and digits with dashes between",
		},
		"stage": {
			change("title:", "stage: path\n    title:"),
			`own.yaml:3: signatures.legacy-codec.stage: the stage is "path": it is code or runtime`,
		},
		"yields to nobody": {
			change("cure:", "yields-to: [exeption-storm]\n    cure:"),
			`own.yaml: legacy-codec: yields-to: there is no "exeption-storm": did you mean exception-storm?`,
		},
		"explains nothing": {
			change("cure:", "explains: [gc]\n    cure:"),
			`own.yaml: legacy-codec: explains: there is no "gc"`,
		},
		"nothing in it": {"signatures:\n", "own.yaml:1: signatures: there is none"},
		"two of one event": {
			change("    cure:", "      - {event: cpu, frames: [x.y]}\n    cure:"),
			"own.yaml:2: legacy-codec: where[1]: there is one of event cpu already",
		},
		"runs": {
			change("title:", "runs: go\n    title:"),
			`own.yaml:2: legacy-codec: runs is "go": it is one of java, native, python, node`,
		},
		"two documents":     {ownSignature + "---\na: 1\n", "own.yaml: want one document, and no --- after it"},
		"explains a circle": {change("cure:", "explains: [legacy-codec]\n    cure:"), "does not explain itself"},
	} {
		_, _, err := ParseSignatures("own.yaml", []byte(tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v\nwant %s", name, err, tc.want)
		}
	}
}

// TestFixFirst: a finding about code names the earlier finding that distorts the profile.
func TestFixFirst(t *testing.T) {
	rec := checktest.Open(t, "causes/throttled-exceptions")
	res := check.Run(rec, Suite(), check.Options{Causes: Causes()})
	p := res.Principal()
	if p == nil || p.Check != "cpu-throttled" {
		t.Fatalf("the principal finding is %+v", p)
	}
	i := slices.IndexFunc(res.Findings, func(f check.Finding) bool { return f.Check == "exception-storm" })
	if i < 0 || !slices.Equal(res.Findings[i].FixFirst, []string{p.ID()}) {
		t.Errorf("exception-storm does not say what comes first: %+v", res.Findings)
	}
}

// TestFindingsByWeight: among findings of one stage with the same severity and confidence, the one about most time is
// first.
func TestFindingsByWeight(t *testing.T) {
	rec := checktest.Open(t, "causes/two-hot-paths")
	res := check.Run(rec, Suite(), check.Options{Causes: Causes()})
	var names []string
	for _, f := range res.Findings {
		if f.Severity > check.Info {
			names = append(names, f.Check)
		}
	}
	if want := []string{"regex-compile", "exception-storm"}; !slices.Equal(names, want) {
		t.Errorf("findings %v, want %v", names, want)
	}
}
