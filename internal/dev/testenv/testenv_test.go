package testenv

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseRequired(t *testing.T) {
	tests := []struct {
		text    string
		need    Requirement
		want    bool
		wantErr string
	}{
		{text: "", need: Root, want: false},
		{text: "root", need: Root, want: true},
		{text: "root", need: BPF, want: false},
		{text: " root , tool:nginx,", need: Tool("nginx"), want: true},
		{text: "tool:nginx", need: Tool("wrk"), want: false},
		{text: "all", need: Tool("wrk"), want: true},
		{text: "rot", wantErr: `unknown requirement "rot"`},
		{text: "root,tool:", wantErr: `unknown requirement "tool:"`},
	}
	for _, test := range tests {
		got, err := parseRequired(test.text)
		if test.wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("parseRequired(%q): error %v, want %q", test.text, err, test.wantErr)
			}
			continue
		}
		if err != nil {
			t.Errorf("parseRequired(%q): %v", test.text, err)
		}
		if got.names(test.need) != test.want {
			t.Errorf("parseRequired(%q) names %s: %t, want %t", test.text, test.need, !test.want, test.want)
		}
	}
}

func TestMissing(t *testing.T) {
	if err := missing(Tool("true")); err != nil {
		t.Errorf("the program true: %v", err)
	}
	if err := missing(Tool("no-such-program")); err == nil {
		t.Error("no-such-program was found")
	}
	if err := missing(Root); os.Geteuid() != 0 && err == nil {
		t.Error("root without user id 0")
	}
	if err := missing(Java); err == nil {
		if _, lookErr := exec.LookPath("java"); lookErr != nil {
			t.Errorf("java is said to work, but: %v", lookErr)
		}
	}
}

// The user nobody is refused a tracing program, whatever kernel.unprivileged_bpf_disabled says, and is not root.
func TestNobodyHasNothing(t *testing.T) {
	Need(t, Unprivileged)
	dir, err := os.MkdirTemp("", "testenv") //nolint:usetesting // nobody cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	binary := filepath.Join(dir, "child")
	content, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(binary, content, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, need := range []Requirement{BPF, Root} {
		cmd := exec.Command(binary, "-test.run=^TestChild$", "-test.v")
		cmd.Env = append(os.Environ(), childVar+"="+string(need), RequireVar+"=")
		cmd.Dir = dir
		Drop(cmd)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "needs "+string(need)+": ") {
			t.Errorf("nobody has %s: %v\n%s", need, err, out)
		}
	}
}

func TestDrop(t *testing.T) {
	Need(t, Unprivileged)
	cmd := exec.Command("id", "-u")
	Drop(cmd)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(out)); got == "0" {
		t.Errorf("the child still has user id %s", got)
	}
}

const childVar = "TESTENV_CHILD_NEEDS"

// TestChild is not a test of its own. TestNeed runs it in a process whose outcome it can look at.
func TestChild(t *testing.T) {
	needs := os.Getenv(childVar)
	if needs == "" {
		return
	}
	for need := range strings.SplitSeq(needs, ",") {
		Need(t, Requirement(need))
	}
}

func TestNeed(t *testing.T) {
	tests := []struct {
		name, needs, require string
		want                 []string
	}{
		{"there", "tool:true", "all", []string{"--- PASS: TestChild"}},
		{"skip", "tool:no-such-program", "", []string{"--- SKIP: TestChild", "needs tool:no-such-program"}},
		{"other required", "tool:no-such-program", "root", []string{"--- SKIP: TestChild"}},
		{
			"required", "tool:true,tool:no-such-program", "tool:no-such-program",
			[]string{"--- FAIL: TestChild", "forbids skipping", "needs tool:no-such-program"},
		},
		{"all required", "tool:no-such-program", "all", []string{"--- FAIL: TestChild"}},
		{"misspelt", "tool:true", "rot", []string{"--- FAIL: TestChild", `unknown requirement "rot"`}},
		{"unknown", "rot", "", []string{"--- FAIL: TestChild", `unknown requirement "rot"`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
			cmd.Env = append(os.Environ(), childVar+"="+test.needs, RequireVar+"="+test.require)
			out, err := cmd.CombinedOutput()
			if failed := strings.Contains(string(out), "--- FAIL"); failed != (err != nil) {
				t.Errorf("exit %v does not agree with the output:\n%s", err, out)
			}
			for _, want := range test.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("output lacks %q:\n%s", want, out)
				}
			}
		})
	}
}
