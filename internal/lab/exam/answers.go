package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/perfdoctor/perfdoctor/internal/input/strictyaml"
)

// Answers translates a tool's verdicts to the words of the vocabulary.
type Answers struct {
	Checks []Answer `yaml:"checks"`
}

// Answer is what one check says. It may have no words.
type Answer struct {
	Check string   `yaml:",key"`
	Says  []string `yaml:"says"`
}

// answersFile is perfdoctor's table, below the directory of the exam.
var answersFile = filepath.Join("answers", "perfdoctor.yaml")

// readAnswers reads the table strictly: a word that the vocabulary does not have is an error.
func readAnswers(exam string, words *Vocabulary) (*Answers, error) {
	data, err := os.ReadFile(filepath.Join(exam, answersFile))
	if err != nil {
		return nil, err
	}
	root, err := strictyaml.Parse(answersFile, data)
	if err != nil {
		return nil, err
	}
	a := &Answers{}
	d := &strictyaml.Decoder{File: answersFile}
	d.Decode(root, a)
	errs := []error{d.Err()}
	for _, row := range a.Checks {
		for _, word := range row.Says {
			if !words.has(word) {
				errs = append(errs,
					fmt.Errorf("%s: %s: there is no %q in the vocabulary", answersFile, row.Check, word))
			}
		}
	}
	return a, errors.Join(errs...)
}

// of returns the words of a check. ok is false for a check without a row.
func (a *Answers) of(check string) (words []string, ok bool) {
	for _, row := range a.Checks {
		if row.Check == check {
			return row.Says, true
		}
	}
	return nil, false
}
