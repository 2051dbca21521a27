// Package testenv says what a test needs from the machine, and turns a missing need into a skip or, on request, a
// failure.
package testenv

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Requirement names one thing a test cannot do without, such as root or a program.
type Requirement string

// The requirements that are not programs.
const (
	Root Requirement = "root"
	BPF  Requirement = "bpf"
	Java Requirement = "java"
)

// Tool is the requirement of a program found through PATH.
func Tool(name string) Requirement { return Requirement("tool:" + name) }

// Need skips the test with the reason when a requirement is missing. It fails instead when the environment variable
// PERFDOCTOR_REQUIRE (a comma separated list, or "all") names the requirement, so that CI cannot skip in silence.
func Need(t testing.TB, needs ...Requirement) {
	t.Helper()
	required := strings.Split(os.Getenv("PERFDOCTOR_REQUIRE"), ",")
	for _, need := range needs {
		reason := missing(need)
		if reason == "" {
			continue
		}
		if slices.Contains(required, "all") || slices.Contains(required, string(need)) {
			t.Fatalf("required %s is missing: %s", need, reason)
		}
		t.Skipf("needs %s: %s", need, reason)
	}
}

func missing(need Requirement) string {
	if (need == Root || need == BPF) && os.Geteuid() != 0 {
		return "not running as root"
	}
	tool, isTool := strings.CutPrefix(string(need), "tool:")
	if need == Java {
		tool, isTool = "java", true
	}
	if !isTool {
		return ""
	}
	if _, err := exec.LookPath(tool); err != nil {
		return err.Error()
	}
	return ""
}
