package conventions

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// A linePattern is something that no line of the repository's own text may contain.
type linePattern struct {
	pattern *regexp.Regexp
	why     string
}

// pinPatterns are versions that mean something else tomorrow.
var pinPatterns = []linePattern{
	{
		regexp.MustCompile(`@(latest|upgrade|patch|main|master|HEAD)\b`),
		"a version that moves: name the exact one",
	},
	{
		regexp.MustCompile(`(?i)^\s*FROM\s+\S+:latest\b|\bimage:\s*\S+:latest\b`),
		"an image that moves: name the exact version",
	},
	{
		regexp.MustCompile(`\b(curl|wget)\b.*\|\s*(sudo\s+)?(ba|da|z)?sh\b`),
		"runs what a server says today: pin it by checksum",
	},
	{
		regexp.MustCompile(`\bapt(-get)?\s+(-\S+\s+)*install\s+(-\S+\s+)*[a-z]`),
		"packages are listed in .ci/apt-packages, and .ci/deps installs them",
	},
}

// pathPatterns are directories that exist on one machine only. Data under testdata may mention them.
var pathPatterns = []linePattern{
	{
		regexp.MustCompile(`(^|[\s"'=(\x60])/(home|Users|root|work|workspace|builds)/\w`),
		"a path of one machine",
	},
}

// lineViolations returns the lines of text that match one of patterns.
func lineViolations(name, text string, patterns []linePattern) []string {
	var bad []string
	number := 0
	for line := range strings.Lines(text) {
		number++
		for _, p := range patterns {
			if found := p.pattern.FindString(line); found != "" {
				bad = append(bad, fmt.Sprintf("%s:%d: %q: %s", name, number, strings.TrimSpace(found), p.why))
			}
		}
	}
	return bad
}

// texts reads every file of the repository that people write, by its path from the root.
func texts(t *testing.T) map[string]string {
	t.Helper()
	skipped := []string{".git", "bin", "dist", ".cache", "testdata", "go.sum", "LICENSE"}
	tree := os.DirFS("../../..")
	all := map[string]string{}
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains(skipped, entry.Name()) && entry.IsDir():
			return fs.SkipDir
		case slices.Contains(skipped, entry.Name()) || !entry.Type().IsRegular():
			return nil
		}
		content, err := fs.ReadFile(tree, name)
		if err == nil && !bytes.Contains(content, []byte{0}) {
			all[name] = string(content)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Makefile", "README.md", ".ci/run", "go.mod"} {
		if all[name] == "" {
			t.Fatalf("%s was not read: this test looks at the wrong files", name)
		}
	}
	return all
}

func TestPinsInText(t *testing.T) {
	for name, text := range texts(t) {
		for _, violation := range lineViolations(name, text, pinPatterns) {
			t.Error(violation)
		}
	}
}

func TestNoPathsOfOneMachine(t *testing.T) {
	for name, text := range texts(t) {
		for _, violation := range lineViolations(name, text, pathPatterns) {
			t.Error(violation)
		}
	}
}

// TestLinesFire shows that the patterns find what they should: each line of a file "bad", none of a file "good".
func TestLinesFire(t *testing.T) {
	for name, patterns := range map[string][]linePattern{"pins": pinPatterns, "paths": pathPatterns} {
		archive, err := txtar.ParseFile("testdata/" + name + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		for _, member := range archive.Files {
			for line := range strings.Lines(string(member.Data)) {
				found := len(lineViolations(name, line, patterns)) > 0
				if want := path.Base(member.Name) == "bad"; found != want {
					t.Errorf("%s: violation %t, want %t: %s", name, found, want, line)
				}
			}
		}
	}
}

// TestAptPackages expects one line a package, in the form that .ci/deps reads.
func TestAptPackages(t *testing.T) {
	content, err := os.ReadFile("../../../.ci/apt-packages")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	form := regexp.MustCompile(`^[a-z0-9][a-z0-9.+-]+( +[a-z0-9_-]+)+( +# .*)?$`)
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, _, _ := strings.Cut(line, " ")
		if !form.MatchString(line) || seen[name] {
			t.Errorf("want `package command... # reason`, each package once: %q", line)
		}
		seen[name] = true
	}
	if len(seen) == 0 {
		t.Error("no package is listed")
	}
}
