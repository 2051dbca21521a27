package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// window is long enough for four rates of one second, and short enough for a test.
const window = 5 * time.Second

// A diagnosis is what the program said.
type diagnosis struct {
	code     int
	json     []byte
	text     string
	report   reportJSON
	findings map[string][]finding // by check
}

// reportJSON is the part of docs/report-schema.md that the tests read. It is written anew here, because a test that
// shared the program's types would not notice a renamed field.
type reportJSON struct {
	ExitCode int `json:"exit_code"`
	Verdict  struct {
		Principal string `json:"principal"`
		Summary   string `json:"summary"`
	} `json:"verdict"`
	Findings    []json.RawMessage `json:"findings"`
	NotAssessed []struct {
		Reason string   `json:"reason"`
		Checks []string `json:"checks"`
	} `json:"not_assessed"`
}

type finding struct {
	ID       string `json:"id"`
	Role     string `json:"role"`
	Check    string `json:"check"`
	Severity string `json:"severity"`
	Subject  struct {
		Kind string `json:"kind"`
		ID   string `json:"id"`
	} `json:"subject"`
	Summary  string `json:"summary"`
	Evidence []struct {
		Label      string  `json:"label"`
		Value      float64 `json:"value"`
		Text       string  `json:"text"`
		Arithmetic string  `json:"arithmetic"`
	} `json:"evidence"`

	raw string // all of it, as printed
}

// atWarning says whether the finding makes the exit code 3.
func (f finding) atWarning() bool { return f.Severity == "warning" || f.Severity == "critical" }

// diagnose runs the program on the live host, then on the recording as a user without rights, and compares.
func diagnose(t *testing.T, args ...string) diagnosis {
	t.Helper()
	program := perfdoctor(t)
	recording := recordingName(t)
	live := run(t, exec.Command(program, append([]string{
		"diagnose", "--duration", window.String(), "--save", recording, "-o", "json",
	}, args...)...))
	must(t, os.Chmod(recording, 0o644)) // the recording is private until its owner gives it away
	again := run(t, withoutRights(program, "diagnose", "--from", recording, "-o", "json"))
	if diff := cmp.Diff(string(live.json), string(again.json)); diff != "" || live.code != again.code {
		t.Errorf("diagnosed again from the recording, exit code %d, then %d (-live +again):\n%s", live.code, again.code,
			diff)
	}
	live.text = string(run(t, withoutRights(program, "diagnose", "--from", recording)).json)
	t.Logf("perfdoctor diagnose %s\n%s", strings.Join(args, " "), live.text)
	live.parse(t)
	keep(t, recording)
	return live
}

// recordingName returns a new name in the readable directory.
func recordingName(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(workDir, "recording-") //nolint:usetesting // nobody must be able to enter it
	must(t, err)
	must(t, os.Chmod(dir, 0o755))
	return filepath.Join(dir, "recording.zip")
}

func withoutRights(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = "/"
	testenv.Drop(cmd)
	return cmd
}

// run returns exit code and standard output. A diagnosis that worked has code 0 or 3.
func run(t *testing.T, cmd *exec.Cmd) diagnosis {
	t.Helper()
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	code := cmd.ProcessState.ExitCode()
	if code != 0 && code != 3 && code != 4 {
		t.Fatalf("%v: exit code %d: %s", cmd.Args, code, stderr.String())
	}
	return diagnosis{code: code, json: out.Bytes()}
}

func (d *diagnosis) parse(t *testing.T) {
	t.Helper()
	must(t, json.Unmarshal(d.json, &d.report))
	if d.report.ExitCode != d.code {
		t.Errorf("the report says exit code %d, the program ended with %d", d.report.ExitCode, d.code)
	}
	d.findings = map[string][]finding{}
	for _, raw := range d.report.Findings {
		f := finding{raw: string(raw)}
		must(t, json.Unmarshal(raw, &f))
		d.findings[f.Check] = append(d.findings[f.Check], f)
	}
}

// keep copies the recording to PERFDOCTOR_KEEP, named for the test.
func keep(t *testing.T, recording string) {
	t.Helper()
	dir := os.Getenv("PERFDOCTOR_KEEP")
	if dir == "" {
		return
	}
	data, err := os.ReadFile(recording)
	must(t, err)
	name := strings.ReplaceAll(t.Name(), "/", "-")
	for n := 1; ; n++ {
		path := filepath.Join(dir, fmt.Sprintf("%s-%d.zip", name, n))
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			must(t, os.WriteFile(path, data, 0o644))
			return
		}
	}
}

// want is what a diagnosis must say.
type want struct {
	verdict   []string // the check of the principal finding is one of these
	severity  []string // one of these; nil for warning or critical
	subject   string   // part of the principal finding's subject
	text      []string // each in the principal finding
	required  []string // checks that must have found something too
	forbidden []string // checks that must not have found anything at warning or above
}

// complaints says how the diagnosis differs.
func (w want) complaints(d diagnosis) []string {
	p, ok := d.principal()
	if !ok {
		return []string{fmt.Sprintf("no verdict, want %v: %s", w.verdict, d.report.Verdict.Summary)}
	}
	var bad []string
	wrong := func(is bool, format string, args ...any) {
		if is {
			bad = append(bad, fmt.Sprintf(format, args...))
		}
	}
	wrong(!slices.Contains(w.verdict, p.Check), "verdict %s, want one of %v", p.ID, w.verdict)
	wrong(!p.atWarning() || w.severity != nil && !slices.Contains(w.severity, p.Severity),
		"severity %s, want %v", p.Severity, w.severity)
	wrong(d.code != 3, "exit code %d, want 3", d.code)
	wrong(!strings.Contains(p.Subject.ID, w.subject), "subject %s %q, want %q in it", p.Subject.Kind, p.Subject.ID,
		w.subject)
	for _, text := range w.text {
		wrong(!strings.Contains(p.raw, text), "the verdict does not say %q", text)
	}
	for _, name := range w.required {
		wrong(len(d.findings[name]) == 0, "%s found nothing", name)
	}
	for _, f := range d.all() {
		wrong(f.atWarning() && slices.Contains(w.forbidden, f.Check), "false: %s %s: %s", f.Severity, f.ID, f.Summary)
	}
	return bad
}

// quiet expects exit code 0 and no finding at warning or above, except for what a hypervisor does to this machine: that
// is real, and not the program's fault.
func quiet(d diagnosis) []string {
	var bad []string
	stolen := false
	for _, f := range d.all() {
		switch {
		case f.atWarning() && f.Check == "cpu-steal":
			stolen = true
		case f.atWarning():
			bad = append(bad, fmt.Sprintf("false: %s %s: %s", f.Severity, f.ID, f.Summary))
		}
	}
	if d.code != 0 && (!stolen || d.code != 3) {
		bad = append(bad, fmt.Sprintf("exit code %d, want 0", d.code))
	}
	return bad
}

// all returns the findings by name of the check.
func (d *diagnosis) all() []finding {
	var out []finding
	for _, name := range slices.Sorted(maps.Keys(d.findings)) {
		out = append(out, d.findings[name]...)
	}
	return out
}

func (d *diagnosis) principal() (finding, bool) {
	for _, f := range d.all() {
		if f.Role == "principal" {
			return f, true
		}
	}
	return finding{}, false
}

// measured returns the value of the principal finding's evidence whose label contains the words.
func (d *diagnosis) measured(t *testing.T, label string) float64 {
	t.Helper()
	p, _ := d.principal()
	for _, v := range p.Evidence {
		if strings.Contains(v.Label, label) {
			return v.Value
		}
	}
	t.Fatalf("no evidence %q in %s", label, p.raw)
	return 0
}
