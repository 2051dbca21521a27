package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/scenario"
	"github.com/perfdoctor/perfdoctor/scenarios"
)

// TestScenariosAreValid reads every scenario of the binary, strictly, and asks for what the directory promises.
func TestScenariosAreValid(t *testing.T) {
	var names []string
	for _, c := range checks.Suite() {
		names = append(names, c.Name)
	}
	all, err := scenario.All(scenarios.FS, names)
	if err != nil {
		t.Fatal(err)
	}
	healthy := 0
	for _, s := range all {
		if s.Expect.Verdict == scenario.VerdictNone {
			healthy++
		} else if len(s.Cures) == 0 {
			t.Errorf("%s: a fault without a cure", s.Name)
		}
		for _, heading := range []string{
			"# " + s.Dir + ": ", "## Story", "## Truth", "## Cure", "## A doctor must\n", "## A doctor must not\n",
		} {
			if !strings.Contains(s.Readme, heading) {
				t.Errorf("%s/README.md has no %q", s.Dir, heading)
			}
		}
	}
	if healthy < 10 {
		t.Errorf("%d healthy scenarios, want ten at least", healthy)
	}
}

func TestScenarioUsageErrors(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	for _, err := range []error{
		os.Mkdir(bad, 0o755),
		os.WriteFile(filepath.Join(bad, "scenario.yaml"), []byte("name: bad\ntitel: a slip\n"), 0o600),
		os.WriteFile(filepath.Join(bad, "README.md"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ args, want string }{
		{"scenario lsit", "did you mean `perfdoctor scenario list`?"},
		{"scenario list ports-exhausted", `unexpected argument "ports-exhausted"`},
		{"scenario list --dir /no/such", "--dir /no/such: there is no such directory"},
		{"scenario list --dir " + dir, `bad/scenario.yaml:2: unknown field "titel": did you mean title?`},
		{"scenario explain", "give the name of a scenario"},
		{"scenario explain ports-exhaustd", "did you mean ports-exhausted?"},
		{"scenario explain xyzzy", "`perfdoctor scenario list` names all"},
		{"scenario run", "give the name of a scenario, or --all"},
		{"scenario run bad --dir " + dir, "did you mean title?"},
		{"scenario run ports-exhausted --all", "give names, --all or --subset, one of them"},
		{"scenario run --all --subset ci", "give names, --all or --subset, one of them"},
		{"scenario run --subset cii", `unknown --subset "cii": use ci`},
		{"scenario run ports-exhausted -o xml", "use text, json or junit"},
		{"scenario run ports-exhausted --only keepalive", "there is as-is, keep-alive, reuse, fin-timeout"},
		{"scenario run ports-exhausted --ony keep-alive", "did you mean --only?"},
		{"scenario run conntrack-full", "it runs in a virtual machine only, with --vm: nf_conntrack_max is one for the whole machine"},
		{"scenario run nginx-keepalive-light --vm", "a virtual machine has perfdoctor in it, and not nginx, wrk"},
		{"scenario run ports-exhausted --kernel 6.12", "--kernel is that of a virtual machine: add --vm"},
		{"scenario run ports-exhausted --vm --kernel /no/such/vmlinuz", "--kernel /no/such/vmlinuz: there is no such file"},
		{"scenario verify", "give the name of a scenario, or --all"},
		{"scenario verify --all --runs 0", "--runs 0: give a number from 1 to 1000"},
		{"scenario verify --all --runs many", `--runs "many" is not a whole number`},
		{"scenario verify --all -o yaml", "use text, json or junit"},
		{"scenario record ports-exhausted", "give --check"},
		{"scenario record ports-exhausted --check no-such-check", `unknown check "no-such-check"`},
		{"scenario record ports-exhausted --check fd-limit --phase nothing", "there is no such cure or placebo"},
		{"scenario clean now", `unexpected argument "now"`},
	} {
		t.Run(tt.args, func(t *testing.T) { wantUsage(t, tt.want, strings.Fields(tt.args)...) })
	}
}

func TestScenarioAnswers(t *testing.T) {
	for args, want := range map[string]string{
		"scenario":                         "verify",
		"scenario list":                    "ports-exhausted",
		"scenario explain ports-exhausted": "## A doctor must not",
		"scenario run --help":              "--keep",
	} {
		if code, stdout, stderr := run(t, strings.Fields(args)...); code != 0 || !strings.Contains(stdout, want) || stderr != "" {
			t.Errorf("%s: exit code %d, stderr %q, want %q in:\n%s", args, code, stderr, want, stdout)
		}
	}
}
