package main

import (
	"fmt"
	"slices"
	"strings"
)

// Mark is the value of an answer. exam/README.md, "Marks", has the rubric. This file is that rubric and nothing else:
// it reads no file and no clock.
type Mark string

// The marks. A broken case has no answer: it could not be built.
const (
	Exact     Mark = "exact"
	Partly    Mark = "partly"
	Abstained Mark = "abstained"
	Missed    Mark = "missed"
	Wrong     Mark = "wrong"
	Broken    Mark = "broken"
)

// marks are the possible marks of an answer, the best first.
var marks = []Mark{Exact, Partly, Abstained, Missed, Wrong}

// Said is one thing that a tool says: words of the vocabulary, and the text that may name a component.
type Said struct {
	Words []string
	Text  string
}

// Reply is everything that a tool says about a system.
type Reply struct {
	First     *Said  // nil: it warns of nothing
	Others    []Said // more findings, however small
	Abstained bool   // it says that it could not tell
}

// mark returns the mark of a reply, and the reason in a few words.
func mark(truth *Truth, words *Vocabulary, r *Reply) (Mark, string) {
	if r.First != nil {
		if m, why := markFirst(truth, words, r.First); m == Exact || m == Partly {
			return m, why
		}
	}
	for i := range r.Others {
		if truth.mechanismIn(r.Others[i].Words) && truth.componentIn(r.Others[i].Text) != "" {
			return Partly, "the right finding is not the first"
		}
	}
	switch {
	case r.First != nil:
		return markFirst(truth, words, r.First)
	case r.Abstained:
		return Abstained, "it says that too little could be read"
	case len(r.Others) > 0:
		return Missed, "nothing at warning or above"
	}
	return Missed, "nothing found"
}

// markFirst marks the verdict, regardless of other findings.
func markFirst(truth *Truth, words *Vocabulary, first *Said) (Mark, string) {
	mechanism := words.mechanism(truth.Mechanism)
	component := truth.componentIn(first.Text)
	near := firstOf(first.Words, mechanism.Near)
	symptom := firstOf(first.Words, mechanism.Symptoms)
	switch {
	case truth.mechanismIn(first.Words) && component != "":
		return Exact, fmt.Sprintf("names %q", component)
	case truth.mechanismIn(first.Words):
		return Partly, "the right mechanism, and no component"
	case near != "" && component != "":
		return Partly, fmt.Sprintf("%s is near, and it names %q", near, component)
	case symptom != "" && component != "":
		return Partly, fmt.Sprintf("%s is a symptom, and it names %q", symptom, component)
	case symptom != "":
		return Missed, fmt.Sprintf("%s is true, but names no cause", symptom)
	case near != "":
		return Wrong, fmt.Sprintf("%s is near, but of no component", near)
	case len(first.Words) == 0:
		return Wrong, "says nothing of the vocabulary"
	}
	return Wrong, strings.Join(first.Words, " or ")
}

func (t *Truth) mechanismIn(words []string) bool { return slices.Contains(words, t.Mechanism) }

// componentIn returns the first component that occurs in the text, ignoring case.
func (t *Truth) componentIn(text string) string {
	text = strings.ToLower(text)
	for _, c := range t.Component {
		if strings.Contains(text, strings.ToLower(c)) {
			return c
		}
	}
	return ""
}

// firstOf returns the first of the words that is in the list.
func firstOf(words, list []string) string {
	for _, w := range words {
		if slices.Contains(list, w) {
			return w
		}
	}
	return ""
}

// random returns the probability of each mark for a uniformly drawn mechanism without a component.
func random(truth *Truth, words *Vocabulary) map[Mark]float64 {
	chance := map[Mark]float64{}
	for _, name := range words.mechanismNames() {
		m, _ := mark(truth, words, &Reply{First: &Said{Words: []string{name}}})
		chance[m] += 1 / float64(len(words.Mechanisms))
	}
	return chance
}
