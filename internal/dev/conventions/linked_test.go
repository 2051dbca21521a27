package conventions

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/linked.txt anew")

const (
	linkedFile = "../../../docs/linked.txt"
	linkedHead = `# What of others is linked into perfdoctor: module, version, package, and the architecture where it is not both.
# A change here is new code that runs as root: read it in the review. Written by go test ./internal/dev/conventions -update
`
)

// TestLinked compares what is linked into the program with the committed list. So foreign new code shows in a review.
func TestLinked(t *testing.T) {
	got := linkedHead + linked(t)
	if *update {
		if err := os.WriteFile(linkedFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(linkedFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("docs/linked.txt is stale (-committed +linked): go test ./internal/dev/conventions -update\n%s", diff)
	}
}

// TestProductionHasNoLab: what runs on a diagnosed host has nothing of the code that builds sick hosts. The packages
// below cmd join the two for one binary.
func TestProductionHasNoLab(t *testing.T) {
	packages := []string{"./internal/cli", "./internal/daemon/...", "./internal/report/...", "./internal/compare"}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps"}, packages...)...)
	cmd.Dir, cmd.Stderr = "../../..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), module+"internal/collectors/ebpf\n") {
		t.Fatal("the list lacks the collectors, so it shows nothing")
	}
	for line := range strings.Lines(string(out)) {
		for _, lab := range []string{module + "internal/lab", module + "scenarios"} {
			if strings.HasPrefix(line, lab) {
				t.Errorf("diagnose, exporter, report or compare need %s", line)
			}
		}
	}
}

// linked lists the packages of other modules in the program, for both architectures of a release.
func linked(t *testing.T) string {
	t.Helper()
	architectures := map[string][]string{}
	const format = `{{if not .Standard}}{{with .Module}}{{if not .Main}}{{.Path}} ` +
		`{{with .Replace}}{{.Path}}{{else}}{{.Version}}{{end}} {{end}}{{end}}{{.ImportPath}}{{end}}`
	for _, arch := range []string{"amd64", "arm64"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", format, "./cmd/perfdoctor")
		cmd.Dir, cmd.Stderr = "../../..", os.Stderr
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list for %s: %v", arch, err)
		}
		for line := range strings.Lines(string(out)) {
			if line = strings.TrimSpace(line); strings.Contains(line, " ") { // else a package of perfdoctor
				architectures[line] = append(architectures[line], arch)
			}
		}
	}
	var b strings.Builder
	for _, line := range slices.Sorted(maps.Keys(architectures)) {
		if on := architectures[line]; len(on) == 1 {
			line += " " + on[0]
		}
		fmt.Fprintln(&b, line)
	}
	return b.String()
}
