package conventions

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// modFile is the output of `go mod edit -json` for a go.mod.
type modFile struct {
	Require []moduleVersion
	Replace []struct{ Old, New moduleVersion }
	Tool    []struct{ Path string }
}

type moduleVersion struct {
	Path, Version string
	Indirect      bool
}

func (m modFile) version(module string) string {
	for _, r := range m.Require {
		if r.Path == module {
			return r.Version
		}
	}
	return ""
}

// moduleOf names the required module that has the package, or nothing.
func (m modFile) moduleOf(pkg string) string {
	longest := ""
	for _, r := range m.Require {
		if (pkg == r.Path || strings.HasPrefix(pkg, r.Path+"/")) && len(r.Path) > len(longest) {
			longest = r.Path
		}
	}
	return longest
}

const (
	// mainMod is the module of the program and its tests. The others are for what makes and judges it.
	mainMod    = "go.mod"
	toolsMod   = "tools/go.mod"
	releaseMod = "tools/release/go.mod"
	// standIn is the one module that the program has a stand-in for: docs/decisions/0076-pages-without-methods.md.
	standIn = "github.com/mwitkow/go-conntrack"
	// maxRequirements bounds what a reviewer of the program must know, indirect requirements included. There were 59
	// when the tools left. A library with its own requirements may come, the 200 of a linter may not.
	maxRequirements = 130
)

// modViolations finds what a go.mod leaves open. It cannot leave a version open, because the go command refuses a
// branch name.
func modViolations(name string, m modFile) []string {
	var bad []string
	for _, r := range m.Replace {
		if own := strings.TrimSuffix(module, "/"); name != mainMod && r.Old.Path == own && strings.HasPrefix(r.New.Path,
			"..") {
			continue // a module of this repository uses the program beside it
		}
		if name == mainMod && r.Old.Path == standIn && r.New.Path == "./tools/conntrack" {
			continue
		}
		bad = append(bad, fmt.Sprintf("%s: %s is replaced: users of the module would not get the replacement", name,
			r.Old.Path))
	}
	for _, tool := range m.Tool {
		if name == mainMod {
			bad = append(bad, fmt.Sprintf("%s: tool %s: it belongs in %s", name, tool.Path, toolsMod))
		}
		if m.moduleOf(tool.Path) == "" {
			bad = append(bad, fmt.Sprintf("%s: tool %s has no version", name, tool.Path))
		}
	}
	if name == mainMod && len(m.Require) > maxRequirements {
		bad = append(bad, fmt.Sprintf("%s has %d requirements, more than %d: what is not in the program or its tests "+
			"belongs in %s",
			name, len(m.Require), maxRequirements, toolsMod))
	}
	return bad
}

// readMod reads a go.mod. The go command reads only files with that ending.
func readMod(t *testing.T, name string) modFile {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod edit -json %s: %v", name, err)
	}
	var m modFile
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// modFiles reads every go.mod of the repository, by its path from the root.
func modFiles(t *testing.T) map[string]modFile {
	t.Helper()
	all := map[string]modFile{}
	for name := range texts(t) {
		if path.Base(name) == "go.mod" {
			all[name] = readMod(t, "../../../"+name)
		}
	}
	for _, name := range []string{mainMod, toolsMod, releaseMod} {
		if len(all[name].Require) == 0 {
			t.Fatalf("%s requires nothing: it was not read", name)
		}
	}
	if len(all[toolsMod].Tool) == 0 {
		t.Fatalf("%s has no tool", toolsMod)
	}
	return all
}

func TestPinsInGoMod(t *testing.T) {
	for name, m := range modFiles(t) {
		for _, violation := range modViolations(name, m) {
			t.Error(violation)
		}
	}
}

func TestGoModRuleFires(t *testing.T) {
	m := readMod(t, "testdata/bad.mod")
	for i := range maxRequirements {
		m.Require = append(m.Require, moduleVersion{Path: fmt.Sprintf("example.com/%d", i), Version: "v1.0.0"})
	}
	replaced := ": example.com/fine is replaced: users of the module would not get the replacement"
	want := []string{
		"go.mod: github.com/perfdoctor/perfdoctor is replaced: users of the module would not get the replacement",
		"go.mod" + replaced,
		"go.mod: tool example.com/fine/cmd/fine: it belongs in tools/go.mod",
		"go.mod: tool example.com/nowhere/cmd: it belongs in tools/go.mod",
		"go.mod: tool example.com/nowhere/cmd has no version",
		"go.mod has 133 requirements, more than 130: what is not in the program or its tests belongs in tools/go.mod",
	}
	if diff := cmp.Diff(want, modViolations(mainMod, m)); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
	want = []string{"other/go.mod" + replaced, "other/go.mod: tool example.com/nowhere/cmd has no version"}
	if diff := cmp.Diff(want, modViolations("other/go.mod", m)); diff != "" {
		t.Errorf("violations of another module (-want +got):\n%s", diff)
	}
}

// asked are the modules that m exists for: those of its tools and of its own packages.
func (m modFile) asked() []string {
	var all []string
	for _, r := range m.Require {
		if !r.Indirect {
			all = append(all, r.Path)
		}
	}
	for _, tool := range m.Tool {
		all = append(all, m.moduleOf(tool.Path))
	}
	return all
}

// strangers are modules in the program's go.sum that the other modules of this repository exist for, but not the
// program's go.mod.
func strangers(sum string, m modFile, others []modFile) []string {
	var found []string
	for _, other := range others {
		for _, module := range other.asked() {
			if strings.Contains("\n"+sum, "\n"+module+" ") && m.version(module) == "" {
				found = append(found, module)
			}
		}
	}
	return found
}

// TestToolsStayOut: what lints, tests and packages is nowhere among the program's modules, so that no tool decides a
// version there.
func TestToolsStayOut(t *testing.T) {
	all := modFiles(t)
	sum, err := os.ReadFile("../../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	others := []modFile{all[toolsMod], all[releaseMod]}
	for _, module := range strangers(string(sum), all[mainMod], others) {
		t.Errorf("go.sum knows %s, which is not of the program: go mod why -m %s", module, module)
	}
	linter := all[toolsMod].moduleOf("github.com/golangci/golangci-lint/v2/cmd/golangci-lint")
	sum = append(sum, linter+" v2.0.0 h1:0\n"...)
	if diff := cmp.Diff([]string{linter}, strangers(string(sum), all[mainMod], others)); diff != "" {
		t.Errorf("a linter in go.sum is not noticed (-want +got):\n%s", diff)
	}
}

// TestGeneratorIsOfTheLibrary: the code that bpf2go writes has the version of the library that loads it.
func TestGeneratorIsOfTheLibrary(t *testing.T) {
	const ebpf = "github.com/cilium/ebpf"
	all := modFiles(t)
	linked, generates := all[mainMod].version(ebpf), all[toolsMod].version(ebpf)
	if linked == "" || linked != generates {
		t.Errorf("%s is %s in %s and %s in %s: both need the same", ebpf, linked, mainMod, generates, toolsMod)
	}
}
