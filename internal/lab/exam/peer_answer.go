package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/input/strictyaml"
)

// finding is a peer's finding, by the peer's own name.
type finding struct {
	ID    string
	Score float64 // higher is worse; among equals, the first one said
	Text  string
}

// meanings translates a peer's findings to the words of the vocabulary: exam/answers/PEER.yaml.
type meanings struct {
	Findings []meaning `yaml:"findings"`

	file string
}

type meaning struct {
	ID    string   `yaml:",key"`
	Means string   `yaml:"means"` // in the peer's own words
	Words []string `yaml:"words"`
	Aside string   `yaml:"aside"` // why it is not an answer: the next finding is
}

// readMeanings reads the table of a peer strictly.
func readMeanings(exam, peer string, words *Vocabulary) (*meanings, error) {
	m := &meanings{file: filepath.Join("answers", peer+".yaml")}
	data, err := os.ReadFile(filepath.Join(exam, m.file))
	if err != nil {
		return nil, err
	}
	root, err := strictyaml.Parse(m.file, data)
	if err != nil {
		return nil, err
	}
	d := &strictyaml.Decoder{File: m.file}
	d.Decode(root, m)
	return m, errors.Join(append(m.validate(words), d.Err())...)
}

func (m *meanings) validate(words *Vocabulary) []error {
	var errs []error
	for _, f := range m.Findings {
		if (len(f.Words) == 0) == (f.Aside == "") || f.Means == "" {
			errs = append(errs, fmt.Errorf("%s: %s: want means, and words or aside", m.file, f.ID))
		}
		for _, word := range f.Words {
			if !words.has(word) {
				errs = append(errs, fmt.Errorf("%s: %s: there is no %q in the vocabulary", m.file, f.ID, word))
			}
		}
	}
	return errs
}

// answer takes the worst finding about the system's speed, and the others after it. Without any, the answer has no
// words.
func (m *meanings) answer(findings []finding, a *PeerAnswer) error {
	findings = slices.Clone(findings)
	slices.SortStableFunc(findings, func(a, b finding) int { return cmp.Compare(b.Score, a.Score) })
	for _, f := range findings {
		i := slices.IndexFunc(m.Findings, func(known meaning) bool { return known.ID == f.ID })
		if i < 0 {
			return fmt.Errorf("%s does not know the finding %q", m.file, f.ID)
		}
		switch words := m.Findings[i].Words; {
		case len(words) == 0: // an aside
		case len(a.Words) == 0:
			a.Words, a.Text = words, f.Text
		default:
			a.Others = append(a.Others, PeerFinding{Name: f.ID, Words: words, Text: f.Text})
		}
	}
	return nil
}
