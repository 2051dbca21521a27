package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// scoreCases is the command score: it marks the kept results, prints the marks, and commits them with -keep.
func (e *exam) scoreCases(args []string) error {
	flags := flag.NewFlagSet("score", flag.ContinueOnError)
	from := flags.String("results", e.defaultResults(), "`directory` with the results of run")
	peer := flags.String("peer", "", "score the answers of a peer in this `file` instead")
	keep := flags.String("keep", "", "write the marks to the new `name` in exam/results: first, or a version")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := e.newScorer()
	if err != nil {
		return err
	}
	cases, err := e.read(flags.Args())
	if err != nil {
		return err
	}
	if *keep != "" && flags.NArg() > 0 {
		return errors.New("-keep is for all cases: give no names")
	}
	if *keep == firstContact && *peer != "" {
		return fmt.Errorf("-keep %s is for perfdoctor: give the peer's results another name", firstContact)
	}
	var r *Results
	var missing []string
	if *peer != "" {
		answers, err := readPeer(*peer)
		if err != nil {
			return err
		}
		r, err = s.peer(answers, cases)
		if err != nil {
			return err
		}
	} else if r, missing, err = s.results(cases, *from); err != nil {
		return err
	}
	if err := r.print(os.Stdout, missing, flags.NArg() == 0); err != nil || *keep == "" {
		return err
	}
	if missing = r.needed(cases, missing); len(missing) > 0 {
		return fmt.Errorf("not kept: these have no result yet: %s", strings.Join(missing, ", "))
	}
	return r.write(e.dir, *keep)
}

// needed returns the missing cases without which results are not kept. Sealed cases are run once per release, so
// results between two releases may have none of them. With only some of them, the counts would reveal how single
// cases went.
func (r *Results) needed(cases []*Case, missing []string) []string {
	if !r.openOnly() {
		return missing
	}
	return slices.DeleteFunc(missing, func(name string) bool {
		return slices.ContainsFunc(cases, func(c *Case) bool { return c.Name == name && c.Sealed() })
	})
}

// results marks the completely run cases, and returns the names of the others.
func (s *scorer) results(cases []*Case, dir string) (r *Results, missing []string, err error) {
	r = newResults("")
	var versions []string
	for _, c := range cases {
		phases := map[string]*PhaseResult{}
		for _, phase := range c.phaseNames() {
			p, err := c.readPhase(dir, phase)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", c.phaseFile(dir, phase), err)
			}
			if p != nil {
				phases[phase] = p
			}
		}
		if len(phases) < len(c.phaseNames()) {
			missing = append(missing, c.Name)
			continue
		}
		score, err := s.score(c, phases)
		if err != nil {
			return nil, nil, err
		}
		r.add(score, c.Sealed())
		for _, p := range phases {
			r.dated(p.Date.Format("2006-01-02"))
			r.Last = max(r.Last, p.Date.UTC().Format(time.RFC3339))
			versions = append(versions, p.Version)
			r.Kernels = append(r.Kernels, p.Kernel)
		}
	}
	slices.Sort(versions)
	slices.Sort(r.Kernels)
	r.Kernels = slices.Compact(r.Kernels)
	r.Who = doctorName + " " + strings.Join(slices.Compact(versions), ", ")
	return r, missing, nil
}

// print writes the marks of open cases, and the counts of all cases. It shows sealed cases only together: the count
// of a single one would be its mark.
func (r *Results) print(out io.Writer, missing []string, all bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, c := range r.Cases {
		fault := c.Fault
		_, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", c.Name, fault.Mark, fault.Why+fault.Broken, fault.oneLine())
		if err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	lines := []string{"open:   " + r.open().sentence()}
	if all && len(missing) == 0 {
		lines = append(lines, "sealed: "+r.Sealed.All.sentence(), "all:    "+r.total().sentence())
	} else {
		lines = append(lines,
			fmt.Sprintf("sealed: %d cases, counted once all cases were run", r.Sealed.All.Cases))
	}
	if len(missing) > 0 {
		lines = append(lines, fmt.Sprintf("not run as a whole: %d cases", len(missing)))
	}
	_, err := fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}

// sentence returns the tally in words.
func (t *Tally) sentence() string {
	parts := []string{fmt.Sprintf("%d cases", t.Cases)}
	for _, m := range append(slices.Clone(marks), Broken) {
		if t.Marks[m] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", t.Marks[m], m))
		}
	}
	if t.Healthy > 0 {
		parts = append(parts, fmt.Sprintf("%d false alarms in %d healthy systems", t.Alarms, t.Healthy))
	}
	if t.Cures > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d cures work", t.Work, t.Cures))
	}
	return strings.Join(parts, ", ")
}
