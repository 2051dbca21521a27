// Package testenv says what a test needs of the machine, and skips or fails it when that is missing.
package testenv

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Requirement is one thing a test needs of the machine.
type Requirement string

// The requirements a test can name; tools are made with [Tool].
const (
	Root   Requirement = "root"
	BPF    Requirement = "bpf"
	Java   Requirement = "java"
	Docker Requirement = "docker"
)

// Tool is the requirement that the named program is in PATH.
func Tool(name string) Requirement { return Requirement("tool:" + name) }

// Need skips t with the reason when a requirement is missing. A requirement that the environment variable
// PERFDOCTOR_REQUIRE names (a comma separated list, or "all") fails t instead, so that a CI job which promises root
// cannot pass by skipping.
func Need(t testing.TB, needs ...Requirement) {
	t.Helper()
	for _, need := range needs {
		reason := missing(need)
		if reason == "" {
			continue
		}
		if required(need) {
			t.Fatalf("PERFDOCTOR_REQUIRE names %s: %s", need, reason)
		}
		t.Skip(reason)
	}
}

func required(need Requirement) bool {
	list := strings.Split(os.Getenv("PERFDOCTOR_REQUIRE"), ",")
	return slices.Contains(list, "all") || slices.Contains(list, string(need))
}

func missing(need Requirement) string {
	if need == Root || need == BPF {
		if os.Geteuid() != 0 {
			return "needs root"
		}
		return ""
	}
	tool := strings.TrimPrefix(string(need), "tool:")
	if _, err := exec.LookPath(tool); err != nil {
		return "needs " + tool + " in PATH: " + err.Error()
	}
	return ""
}
