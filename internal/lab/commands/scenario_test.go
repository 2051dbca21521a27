package commands_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/lab/scenario"
	"github.com/perfdoctor/perfdoctor/scenarios"
)

// TestScenariosAreValid reads every scenario of the binary, strictly, and checks what the directory promises.
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
		} else if len(s.Cures) == 0 && !s.Story() {
			t.Errorf("%s: a fault without a cure", s.Name)
		}
		for _, heading := range []string{
			"# " + s.Dir + ": ", "## Story", "## Truth", "## Fix", "## A doctor must\n", "## A doctor must not\n",
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
		{
			"scenario run conntrack-full",
			"it runs in a virtual machine only, with --vm: nf_conntrack_max applies to the whole machine",
		},
		{"scenario run nginx-keepalive-light --vm", "a virtual machine has perfdoctor in it, and not nginx, wrk"},
		{"scenario run ports-exhausted --kernel 6.12", "--kernel is that of a virtual machine: add --vm"},
		{
			"scenario run ports-exhausted --vm --kernel /no/such/vmlinuz",
			"--kernel /no/such/vmlinuz: there is no such file",
		},
		{
			"scenario run two-queues --dir testdata/stories --rung leek",
			`two-queues has no rung "leek": did you mean leak?`,
		},
		{
			"scenario run two-queues --dir testdata/stories --order leak",
			"the order: queue is missing: name each fault once",
		},
		{"scenario run two-queues --dir testdata/stories --rung leak --seed 1", "--rung and --seed: give one of them"},
		{"scenario run two-queues --dir testdata/stories --only leak", "--only: two-queues is a story: use --rung"},
		{"scenario run ports-exhausted --healthy", "--healthy: ports-exhausted has no rungs"},
		{"scenario run ports-exhausted --page x.md", "--page: ports-exhausted has no rungs"},
		{"scenario run --all --dir testdata/stories --seed x", `--seed "x" is not a whole number`},
		{"scenario record two-queues --dir testdata/stories --check fd-limit --phase leek", "did you mean leak?"},
		{"scenario verify", "give the name of a scenario, or --all"},
		{"scenario verify --all --runs 0", "--runs 0: give a number from 1 to 1000"},
		{"scenario verify --all --runs many", `--runs "many" is not a whole number`},
		{"scenario verify --all -o yaml", "use text, json or junit"},
		{"scenario record ports-exhausted", "give --check"},
		{"scenario record ports-exhausted --check no-such-check", `unknown check "no-such-check"`},
		{"scenario record ports-exhausted --check fd-limit --phase nothing", "there is no such fix or placebo"},
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

		"scenario list --dir testdata/stories":               "story of 3 rungs",
		"scenario explain two-queues --dir testdata/stories": "a story for the tests",
	} {
		if code, stdout, stderr := run(t, strings.Fields(args)...); code != 0 || !strings.Contains(stdout, want) ||
			stderr != "" {
			t.Errorf("%s: exit code %d, stderr %q, want %q in:\n%s", args, code, stderr, want, stdout)
		}
	}
}

// climbed runs the story of the tests, and returns what -o json says of it, and the page.
func climbed(t *testing.T) (*scenario.Result, string) {
	t.Helper()
	testenv.Need(t, testenv.Root)
	dir := t.TempDir()
	stories, err := filepath.Abs("testdata/stories")
	if err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(dir, "page.md")
	// A bound against hangs. Before each of four phases it waits ten seconds for a machine to become idle. Each phase
	// is run up to three times, twenty seconds apart, while the hypervisor has the CPUs.
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "scenario", "run", "two-queues", "--dir", stories, "--keep", dir,
		"--page", page, "-o", "json")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Errorf("%v\n%s%s", err, errs.String(), out.String())
	}
	var results []*scenario.Result
	if err := json.Unmarshal(out.Bytes(), &results); err != nil || len(results) != 1 {
		t.Fatalf("%v: %s%s", err, out.String(), errs.String())
	}
	for _, p := range results[0].Phases {
		if _, err := os.Stat(filepath.Join(dir, scenario.RecordingName("two-queues", p.Name))); err != nil {
			t.Errorf("the recording of %s: %v", p.Name, err)
		}
		if !strings.Contains(errs.String(), p.Name) {
			t.Errorf("%s is not in what is said meanwhile: %s", p.Name, errs.String())
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return results[0], string(text)
}

// TestStory climbs a real system with two faults. Each fault is the verdict in its turn, its fix has the expected
// effect, the placebo does not help, and nothing is wrong in the end.
func TestStory(t *testing.T) {
	r, page := climbed(t)
	var got []string
	for _, st := range r.Steps {
		got = append(got, fmt.Sprintf("%s: %s, held %v", st.Rung, st.Verdict, st.Held))
	}
	want := []string{
		"somaxconn: slow-accept, held true", "queue: slow-accept, held true",
		"leak: close-wait-leak, held true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"| queue | slow-accept |", "did not help",
		"\n  slow-accept: ", "NO BOTTLENECK FOUND",
	} {
		if !strings.Contains(page, part) {
			t.Errorf("the page has no %q:\n%s", part, page)
		}
	}
	if strings.Contains(page, name) {
		t.Errorf("the page names the host %q:\n%s", name, page)
	}
}
