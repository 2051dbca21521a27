package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording/partial"
)

// Results are the committed results of one run of the exam: what was said about open cases, and only counts for
// sealed cases.
type Results struct {
	Who     string       `json:"who"` // the version of perfdoctor, or the peer
	Peer    bool         `json:"peer,omitempty"`
	From    string       `json:"from"` // the days of the first and of the last phase
	To      string       `json:"to"`
	Last    string       `json:"last,omitempty"` // when the last phase began (RFC 3339): several runs may end on one day
	Kernels []string     `json:"kernels,omitempty"`
	Cases   []*CaseScore `json:"cases"`
	Sealed  Sealed       `json:"sealed"`
}

// Sealed counts sealed cases.
type Sealed struct {
	All      *Tally            `json:"all"`
	Families map[string]*Tally `json:"families,omitempty"`
	Runtimes map[string]*Tally `json:"runtimes,omitempty"`
}

// firstContact is the name of the results that are never replaced.
const firstContact = "first"

// resultsDir has the committed results, below the directory of the exam.
const resultsDir = "results"

func newResults(who string) *Results {
	return &Results{Who: who, Sealed: Sealed{
		All: newTally(), Families: map[string]*Tally{}, Runtimes: map[string]*Tally{},
	}}
}

// add adds a case: an open one as it is, a sealed one only to the counts.
func (r *Results) add(c *CaseScore, sealed bool) {
	if !sealed {
		r.Cases = append(r.Cases, c)
		return
	}
	r.Sealed.All.add(c)
	tallyOf(r.Sealed.Families, c.Family).add(c)
	tallyOf(r.Sealed.Runtimes, c.Runtime).add(c)
}

// dated widens the range of days to include the day of a phase.
func (r *Results) dated(day string) {
	if r.From == "" || day < r.From {
		r.From = day
	}
	r.To = max(r.To, day)
}

// openOnly reports whether these are results between two releases: perfdoctor's, without sealed cases.
func (r *Results) openOnly() bool { return !r.Peer && r.Sealed.All.Cases == 0 }

// open counts the open cases.
func (r *Results) open() *Tally {
	t := newTally()
	for _, c := range r.Cases {
		t.add(c)
	}
	return t
}

// total counts all cases.
func (r *Results) total() *Tally {
	t := r.open()
	t.merge(r.Sealed.All)
	return t
}

// by counts all cases by a key of the case.
func (r *Results) by(key func(*CaseScore) string, sealed map[string]*Tally) map[string]*Tally {
	out := map[string]*Tally{}
	for _, c := range r.Cases {
		tallyOf(out, key(c)).add(c)
	}
	for name, t := range sealed {
		tallyOf(out, name).merge(t)
	}
	return out
}

// tallyOf returns the tally of that name, or a new one if there is none.
func tallyOf(tallies map[string]*Tally, name string) *Tally {
	if tallies[name] == nil {
		tallies[name] = newTally()
	}
	return tallies[name]
}

// find returns the score of an open case, or nil.
func (r *Results) find(name string) *CaseScore {
	i := slices.IndexFunc(r.Cases, func(c *CaseScore) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return r.Cases[i]
}

// write commits the results under a name. It never overwrites the first contact.
func (r *Results) write(exam, name string) error {
	if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return fmt.Errorf("%q: want a name without a directory", name)
	}
	path := filepath.Join(exam, resultsDir, name+".json")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // committed: for everybody
		return err
	}
	data, err := indented(r)
	if err != nil {
		return err
	}
	if name != firstContact {
		return os.WriteFile(path, data, 0o644) //nolint:gosec // as above
	}
	err = partial.File(path, func(f *os.File) error {
		_, err := f.Write(data)
		return errors.Join(err, f.Chmod(0o644))
	})
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s is there: the first contact is never replaced; give the results another name", path)
	}
	return err
}

// readResults reads the committed results: the first contact, later ones in order, and peers. Any may be missing.
func readResults(exam string) (first *Results, later, peers []*Results, err error) {
	files, err := filepath.Glob(filepath.Join(exam, resultsDir, "*.json"))
	if err != nil {
		return nil, nil, nil, err
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, nil, err
		}
		r := newResults("")
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err := d.Decode(r); err != nil {
			return nil, nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		switch {
		case r.Peer:
			peers = append(peers, r)
		case filepath.Base(path) == firstContact+".json":
			first = r
		default:
			later = append(later, r)
		}
	}
	order := func(a, b *Results) int {
		return cmp.Or(cmp.Compare(a.To, b.To), cmp.Compare(a.Last, b.Last), cmp.Compare(a.Who, b.Who))
	}
	slices.SortFunc(later, order)
	slices.SortFunc(peers, order)
	return first, later, peers, nil
}
