// Package testenv lets a test say what it needs of the machine, and skip, or fail where that is demanded.
package testenv

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A Requirement is something of the machine that a test cannot do without.
type Requirement string

// Requirements that are not a tool.
const (
	Root Requirement = "root" // effective uid 0
	BPF  Requirement = "bpf"  // root and a kernel with BTF
	Java Requirement = "java" // a java command
)

// Tool requires the command name in PATH.
func Tool(name string) Requirement { return Requirement("tool:" + name) }

// Need skips the test when the machine lacks one of needs. It fails instead when the environment variable
// PERFDOCTOR_REQUIRE (a comma-separated list, or "all") names what is missing, so that CI cannot skip silently.
func Need(t testing.TB, needs ...Requirement) {
	t.Helper()
	for _, need := range needs {
		reason := missing(need)
		if reason == "" {
			continue
		}
		name := strings.TrimPrefix(string(need), "tool:")
		required := strings.Split(os.Getenv("PERFDOCTOR_REQUIRE"), ",")
		if slices.Contains(required, "all") || slices.Contains(required, name) {
			t.Fatalf("required by PERFDOCTOR_REQUIRE: %s", reason)
		}
		t.Skip(reason)
	}
}

func missing(need Requirement) string {
	switch need {
	case Root:
		return missingRoot()
	case BPF:
		if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
			return "kernel has no BTF: " + err.Error()
		}
		return missingRoot()
	}
	tool := strings.TrimPrefix(string(need), "tool:")
	if _, err := exec.LookPath(tool); err != nil {
		return err.Error()
	}
	return ""
}

func missingRoot() string {
	if os.Geteuid() != 0 {
		return "not root"
	}
	return ""
}
