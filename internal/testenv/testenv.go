// Package testenv says what a test needs of the machine it runs on.
package testenv

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A Requirement is something a machine may lack.
type Requirement string

// The requirements that are not programs.
const (
	Root Requirement = "root"
	BPF  Requirement = "bpf"
	Java Requirement = "java"
)

// Tool is the requirement of a program in PATH.
func Tool(name string) Requirement { return Requirement("tool:" + name) }

// Need skips the test when a need is not met, or fails it when PERFDOCTOR_REQUIRE (a list with commas, or "all")
// names the need.
func Need(t testing.TB, needs ...Requirement) {
	t.Helper()
	for _, n := range needs {
		reason := missing(n)
		if reason == "" {
			continue
		}
		required := strings.Split(os.Getenv("PERFDOCTOR_REQUIRE"), ",")
		name := strings.TrimPrefix(string(n), "tool:")
		if slices.Contains(required, "all") || slices.Contains(required, name) {
			t.Fatalf("PERFDOCTOR_REQUIRE names %s: %s", name, reason)
		}
		t.Skip(reason)
	}
}

func missing(n Requirement) string {
	name, isTool := strings.CutPrefix(string(n), "tool:")
	if n == Java {
		name, isTool = "java", true
	}
	if isTool {
		if _, err := exec.LookPath(name); err != nil {
			return "needs the program " + name + " in PATH"
		}
		return ""
	}
	if os.Geteuid() != 0 {
		return "needs root"
	}
	return ""
}
