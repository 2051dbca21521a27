package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/input/strictyaml"
)

// Vocabulary is the fixed set of words for truths and answers.
type Vocabulary struct {
	Mechanisms []Mechanism `yaml:"mechanisms"`
	Symptoms   []Symptom   `yaml:"symptoms"`
	Families   []string    `yaml:"families"`
	Runtimes   []string    `yaml:"runtimes"`
}

// Mechanism is what goes wrong.
type Mechanism struct {
	Name     string   `yaml:",key"`
	Means    string   `yaml:"means"`
	Near     []string `yaml:"near"`
	Symptoms []string `yaml:"symptoms"` // may include mechanisms: a cause in one case may be a symptom in another
}

// Symptom is something that is not a cause by itself.
type Symptom struct {
	Name  string `yaml:",key"`
	Means string `yaml:"means"`
}

const vocabularyFile = "vocabulary.yaml"

// readVocabulary reads the words from the directory of the exam.
func readVocabulary(exam string) (*Vocabulary, error) {
	data, err := os.ReadFile(filepath.Join(exam, vocabularyFile))
	if err != nil {
		return nil, err
	}
	root, err := strictyaml.Parse(vocabularyFile, data)
	if err != nil {
		return nil, err
	}
	v := &Vocabulary{}
	d := &strictyaml.Decoder{File: vocabularyFile}
	d.Decode(root, v)
	return v, errors.Join(append(v.unknown(), d.Err())...)
}

// unknown returns errors for references to words that do not exist.
func (v *Vocabulary) unknown() []error {
	var errs []error
	for _, m := range v.Mechanisms {
		for _, word := range slices.Concat(m.Near, m.Symptoms) {
			if !v.has(word) {
				errs = append(errs, fmt.Errorf("%s: %s: there is no %q", vocabularyFile, m.Name, word))
			}
		}
	}
	return errs
}

// has reports whether the word is a mechanism or a symptom.
func (v *Vocabulary) has(word string) bool {
	return v.mechanism(word) != nil || slices.ContainsFunc(v.Symptoms, func(s Symptom) bool { return s.Name == word })
}

func (v *Vocabulary) mechanism(name string) *Mechanism {
	for i := range v.Mechanisms {
		if v.Mechanisms[i].Name == name {
			return &v.Mechanisms[i]
		}
	}
	return nil
}

func (v *Vocabulary) mechanismNames() []string {
	var names []string
	for _, m := range v.Mechanisms {
		names = append(names, m.Name)
	}
	return names
}
