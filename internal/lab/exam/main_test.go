package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/lab"
)

func TestMain(m *testing.M) {
	if code, child := lab.RunIfChild(); child {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// theExam is the directory of the committed cases.
var theExam = filepath.Join("..", "..", "..", "exam")

// TestCases: each committed case follows the rules of exam/README.md.
func TestCases(t *testing.T) {
	words, err := readVocabulary(theExam)
	if err != nil {
		t.Fatal(err)
	}
	names, err := caseNames(theExam)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if _, err := readCase(theExam, name, words); err != nil {
			t.Error(err)
		}
	}
}
