package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

// PeerAnswers is what another tool said about the cases, in the words of the vocabulary.
type PeerAnswers struct {
	Peer  string                `json:"peer"` // the tool with its version
	Date  string                `json:"date"`
	Cases map[string]PeerAnswer `json:"cases"`
}

// PeerAnswer is what the tool said first about one case. Without words, it found nothing.
type PeerAnswer struct {
	Words     []string `json:"words"`
	Text      string   `json:"text"`
	Seconds   float64  `json:"seconds"`
	Broken    string   `json:"broken"`    // why it could not be run
	Abstained bool     `json:"abstained"` // it says that it could not tell

	Others []PeerFinding `json:"others,omitempty"` // what it said after that, the worst first
}

// PeerFinding is what the tool said after its answer.
type PeerFinding struct {
	Name  string   `json:"name"` // the tool's own name for it
	Words []string `json:"words"`
	Text  string   `json:"text"`
}

// otherWord stands for a finding of a peer for which the vocabulary has no word.
const otherWord = "other"

func readPeer(path string) (*PeerAnswers, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := &PeerAnswers{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(p); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if p.Peer == "" || p.Date == "" {
		return nil, fmt.Errorf("%s: want the name of the peer and the date", path)
	}
	return p, nil
}

// peer marks the answers by the same rubric as perfdoctor's.
func (s *scorer) peer(p *PeerAnswers, cases []*Case) (*Results, error) {
	r := newResults(p.Peer)
	r.Peer = true
	r.dated(p.Date)
	known := map[string]bool{}
	for _, c := range cases {
		known[c.Name] = true
		answer, ok := p.Cases[c.Name]
		if !ok {
			continue
		}
		phase, err := s.peerPhase(c, &answer)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", p.Peer, c.Name, err)
		}
		r.add(&CaseScore{Name: c.Name, Family: c.Family, Runtime: c.Runtime, Fault: phase}, c.Sealed())
	}
	for _, name := range sortedKeys(p.Cases) {
		if !known[name] {
			return nil, fmt.Errorf("%s: there is no case %q", p.Peer, name)
		}
	}
	return r, nil
}

func (s *scorer) peerPhase(c *Case, a *PeerAnswer) (*PhaseScore, error) {
	out := &PhaseScore{Broken: s.tidy(a.Broken), Says: a.Words, Summary: s.tidy(a.Text), Seconds: round(a.Seconds)}
	if a.Broken != "" {
		out.Mark = Broken
		return out, nil
	}
	reply := &Reply{Abstained: a.Abstained}
	if len(a.Words) > 0 {
		first, err := s.peerSaid(a.Words, a.Text)
		if err != nil {
			return nil, err
		}
		reply.First = first
	}
	for _, f := range a.Others {
		other, err := s.peerSaid(f.Words, f.Text)
		if err != nil {
			return nil, err
		}
		reply.Others = append(reply.Others, *other)
		out.Others = append(out.Others, f.Name)
	}
	out.Mark, out.Why = mark(&c.Truth, s.words, reply)
	return out, nil
}

// peerSaid checks the words of a finding, and drops the placeholder for other words.
func (s *scorer) peerSaid(said []string, text string) (*Said, error) {
	out := &Said{Text: s.tidy(text)}
	for _, w := range said {
		if w == otherWord {
			continue
		}
		if !s.words.has(w) {
			return nil, fmt.Errorf("there is no %q in the vocabulary; what has no word is %q", w, otherWord)
		}
		out.Words = append(out.Words, w)
	}
	return out, nil
}
