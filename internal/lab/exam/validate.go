package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/perfdoctor/perfdoctor/internal/input/spelling"
	"github.com/perfdoctor/perfdoctor/internal/lab/scenario"
)

// longestWarmup is how long a fault may take to show itself: exam/README.md.
const longestWarmup = 5 * time.Second

// caseName matches a name that can be typed on a command line.
var caseName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// validate returns which rules of exam/README.md the case breaks.
func (c *Case) validate(dir string, words *Vocabulary) []error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, c.fail(format, args...)) }
	if c.Name != dir || !caseName.MatchString(c.Name) {
		fail("name: %q: want that of the directory, %s, of a-z, 0-9 and -", c.Name, dir)
	}
	errs = append(errs, c.validateTexts()...)
	errs = append(errs, c.validateWords(words)...)
	if len(c.Truth.Component) == 0 || slices.Contains(c.Truth.Component, "") {
		fail("truth.component: want names of the culprit, none of them empty")
	}
	if c.Twin != nil && (c.Twin.Title == "" || c.Twin.Change == nil) {
		fail("twin: want a title and a change")
	}
	if c.Corrected != nil && (c.Corrected.When == "" || c.Corrected.Why == "") {
		fail("corrected: want when and why")
	}
	errs = append(errs, c.validateCure()...)
	errs = append(errs, c.validateFetch()...)
	if c.System == nil {
		fail("system is missing")
	}
	if len(errs) > 0 { // the following checks lay one part over the other
		return errs
	}
	return c.validateSystem()
}

// validateTexts returns which texts are missing.
func (c *Case) validateTexts() []error {
	var errs []error
	for _, text := range []struct{ field, value string }{
		{"title", c.Title},
		{"source.id", c.Source.ID},
		{"source.url", c.Source.URL},
		{"source.licence", c.Source.Licence},
		{"source.says", c.Source.Says},
		{"truth.because", c.Truth.Because},
		{"cure.title", c.Cure.Title},
	} {
		if strings.TrimSpace(text.value) == "" {
			errs = append(errs, c.fail("%s is missing", text.field))
		}
	}
	return errs
}

// validateWords returns which words are not in the vocabulary.
func (c *Case) validateWords(words *Vocabulary) []error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, c.fail(format, args...)) }
	word := func(field, value string, there []string) {
		if slices.Contains(there, value) {
			return
		}
		if near := spelling.Nearest(value, there); near != "" {
			fail("%s: %q is not in the vocabulary: did you mean %s?", field, value, near)
			return
		}
		fail("%s: %q is not in the vocabulary: it has %s", field, value, strings.Join(there, ", "))
	}
	word("family", c.Family, words.Families)
	word("runtime", c.Runtime, words.Runtimes)
	word("truth.mechanism", c.Truth.Mechanism, words.mechanismNames())
	return errs
}

// outcomes returns the metrics in which a fault must show.
func outcomes() []string {
	return []string{scenario.Throughput, scenario.Errors, scenario.P50, scenario.P99}
}

// leastFactor is the factor by which a fix must move one of them: exam/README.md.
const leastFactor = 2.0

func (c *Case) validateCure() []error {
	m := c.Cure.Moves
	switch {
	case c.Cure.Change == nil:
		return []error{c.fail("cure.change is missing")}
	case m == nil:
		return []error{c.fail("cure.moves is missing: want metric, and factor_at_most or factor_at_least")}
	case !slices.Contains(outcomes(), m.Metric):
		return []error{c.fail("cure.moves: metric %q: want one of %s", m.Metric, strings.Join(outcomes(), ", "))}
	case m.AtLeast != nil || m.AtMost != nil:
		return []error{c.fail("cure.moves: want factor_at_most or factor_at_least, from the fault to the cure")}
	case (m.FactorAtMost == nil) == (m.FactorAtLeast == nil):
		return []error{c.fail("cure.moves: want one of factor_at_most and factor_at_least")}
	case m.FactorAtMost != nil && *m.FactorAtMost > 1/leastFactor:
		return []error{c.fail("cure.moves: factor_at_most %v: want a factor of two or more: 0.5 or less",
			*m.FactorAtMost)}
	case m.FactorAtLeast != nil && *m.FactorAtLeast < leastFactor:
		return []error{c.fail("cure.moves: factor_at_least %v: want a factor of two or more", *m.FactorAtLeast)}
	}
	return nil
}

// validateFetch returns which packages have no exact version, and which files are missing.
func (c *Case) validateFetch() []error {
	var errs []error
	for i := range c.Fetch {
		f := &c.Fetch[i]
		clients := 0
		for _, client := range f.clients() {
			if len(client.packages) > 0 {
				clients++
			}
			for _, p := range client.packages {
				if !client.exact.MatchString(p) {
					errs = append(errs, c.fail("fetch.%s.%s: %q: want %s", f.Name, client.name, p, client.want))
				}
			}
		}
		if clients == 0 && len(f.Files) == 0 {
			errs = append(errs, c.fail("fetch.%s: is empty", f.Name))
		}
		for _, name := range f.Files {
			if name != filepath.Base(name) {
				errs = append(errs, c.fail("fetch.%s.files: %q: want a file beside %s", f.Name, name, caseFile))
			} else if _, err := os.Stat(filepath.Join(c.dir, name)); err != nil {
				errs = append(errs, c.fail("fetch.%s.files: %w", f.Name, err))
			}
		}
		used := len(f.Apt) > 0
		for _, node := range c.nodes() {
			used = used || mentions(node, reference(f.Name))
		}
		if !used {
			errs = append(errs, c.fail("fetch.%s: nothing uses %s", f.Name, reference(f.Name)))
		}
	}
	return errs
}

// nodes returns the parts of the case that name fetched directories.
func (c *Case) nodes() []*yaml.Node {
	nodes := []*yaml.Node{c.System, c.Cure.Change}
	if c.Twin != nil {
		nodes = append(nodes, c.Twin.Change)
	}
	return nodes
}

// validateSystem reads the system of each phase as if everything were fetched.
func (c *Case) validateSystem() []error {
	paths := map[string]string{}
	for i := range c.Fetch {
		paths[c.Fetch[i].Name] = "/fetched"
	}
	var errs []error
	for _, node := range c.nodes() {
		if mentions(withPaths(node, paths), "${fetch") {
			errs = append(errs, c.fail("${fetch NAME}: a name that is not in fetch"))
		}
	}
	for _, phase := range c.phaseNames() {
		s, err := c.site(phase, paths)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, c.validateSite(phase, s)...)
	}
	return errs
}

func (c *Case) validateSite(phase string, s *scenario.Site) []error {
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, c.fail(phase+": "+format, args...))
	}
	if s.Measure == "" {
		fail("measure is missing: the fault must show in the outcome")
	}
	d := s.Diagnose
	if d.Warmup > longestWarmup {
		fail("diagnose.warmup: %v: want %v at most", d.Warmup, longestWarmup)
	}
	if d.Duration+d.Interval > 0 || d.Deep || d.Ping != "" {
		fail("diagnose: want target and warmup alone: the exam is taken with default flags")
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.Java != nil {
			fail("processes.%s.java: these programs are this project's: start a stranger's with run", p.Name)
		}
		if p.Load != nil && !p.Load.Open() {
			fail("processes.%s.load: want a rate: a closed loop hides latency", p.Name)
		}
	}
	return errs
}
