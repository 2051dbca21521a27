package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/perfdoctor/perfdoctor/internal/input/strictyaml"
	"github.com/perfdoctor/perfdoctor/internal/lab/scenario"
)

// A Case is a fault that others made, with its truth, its fix and a similar healthy system. exam/README.md has the
// rules.
type Case struct {
	Name    string     `yaml:"name"`
	Title   string     `yaml:"title"`
	Family  string     `yaml:"family"`
	Runtime string     `yaml:"runtime"`
	Source  Source     `yaml:"source"`
	Fetch   []Fetch    `yaml:"fetch"`
	System  *yaml.Node `yaml:"system"`
	Truth   Truth      `yaml:"truth"`
	Cure    Cure       `yaml:"cure"`
	Twin    *Twin      `yaml:"twin"`
	// Corrected says when a mistake in the case was corrected after its first run, and why.
	Corrected *Corrected `yaml:"corrected"`

	dir  string // it was read from this directory
	file string // for messages
}

// Source is where the fault comes from.
type Source struct {
	ID      string `yaml:"id"`
	URL     string `yaml:"url"`
	Licence string `yaml:"licence"`
	Says    string `yaml:"says"` // the strangers' label, in their words
}

// Truth is what is wrong.
type Truth struct {
	Mechanism string   `yaml:"mechanism"`
	Component []string `yaml:"component"`
	Because   string   `yaml:"because"`
}

// Cure is laid over the system, and improves what users notice.
type Cure struct {
	Title  string         `yaml:"title"`
	Change *yaml.Node     `yaml:"change"`
	Moves  *scenario.Move `yaml:"moves"`
}

// Twin is laid over the system, and makes it healthy.
type Twin struct {
	Title  string     `yaml:"title"`
	Change *yaml.Node `yaml:"change"`
}

// Corrected is a mistake that was corrected in the open.
type Corrected struct {
	When string `yaml:"when"`
	Why  string `yaml:"why"`
}

// caseFile is the file in a case's directory.
const caseFile = "case.yaml"

// sealedBelow is a third of the possible values of a byte.
const sealedBelow = 85

// Sealed reports whether the case is in the third that is run once a release and must not influence any rule.
func (c *Case) Sealed() bool { return sha256.Sum256([]byte(c.Name))[0] < sealedBelow }

// caseNames lists the cases below the directory of the exam.
func caseNames(exam string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(exam, "cases", "*", caseFile))
	for i := range files {
		files[i] = filepath.Base(filepath.Dir(files[i]))
	}
	return files, err
}

// readCase reads a case strictly. All mistakes in it are one error.
func readCase(exam, name string, words *Vocabulary) (*Case, error) {
	c := &Case{dir: filepath.Join(exam, "cases", name), file: filepath.Join(name, caseFile)}
	data, err := os.ReadFile(filepath.Join(c.dir, caseFile))
	if err != nil {
		return nil, err
	}
	root, err := strictyaml.Parse(c.file, data)
	if err != nil {
		return nil, err
	}
	d := &strictyaml.Decoder{File: c.file}
	d.Decode(root, c)
	if err := d.Err(); err != nil {
		return nil, err
	}
	if err := errors.Join(c.validate(name, words)...); err != nil {
		return nil, err
	}
	return c, nil
}

// The phases of a case.
const (
	phaseFault = "fault"
	phaseCure  = "cure"
	phaseTwin  = "twin"
)

// phaseNames returns the phases of the case. If the case has no twin, the fixed system is also the twin.
func (c *Case) phaseNames() []string {
	names := []string{phaseFault, phaseCure}
	if c.Twin != nil {
		names = append(names, phaseTwin)
	}
	return names
}

// site returns what a phase builds. paths are the fetched directories by name.
func (c *Case) site(phase string, paths map[string]string) (*scenario.Site, error) {
	var changes []*yaml.Node
	switch phase {
	case phaseCure:
		changes = append(changes, c.Cure.Change)
	case phaseTwin:
		changes = append(changes, c.Twin.Change)
	}
	for i := range changes {
		changes[i] = withPaths(changes[i], paths)
	}
	return scenario.ReadSite(c.file, phase, withPaths(c.System, paths), changes...)
}

// reference returns how a case refers to a fetched directory.
func reference(fetch string) string { return "${fetch " + fetch + "}" }

// withPaths returns a copy of the node with the paths of fetched directories in place of their names.
func withPaths(n *yaml.Node, paths map[string]string) *yaml.Node {
	out := *n
	for name, path := range paths {
		out.Value = strings.ReplaceAll(out.Value, reference(name), path)
	}
	out.Content = make([]*yaml.Node, len(n.Content))
	for i := range n.Content {
		out.Content[i] = withPaths(n.Content[i], paths)
	}
	return &out
}

// mentions reports whether text occurs in a value below the node.
func mentions(n *yaml.Node, text string) bool {
	return n != nil && (strings.Contains(n.Value, text) ||
		slices.ContainsFunc(n.Content, func(n *yaml.Node) bool { return mentions(n, text) }))
}

// fail returns an error for a mistake in the case.
func (c *Case) fail(format string, args ...any) error {
	return fmt.Errorf("%s: %w", c.file, fmt.Errorf(format, args...))
}
