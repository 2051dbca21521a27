package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/lab/scenario"
)

// A peer is another tool that the cases are run with.
type peer interface {
	// name returns the name of its table of answers and of its file.
	name() string
	// prepare makes what the tool needs, and returns its version.
	prepare(ctx context.Context, e *exam) (version string, err error)
	// takes reports whether a user would use the tool for such a program at all.
	takes(c *Case) bool
	// settle waits until earlier activity no longer affects what the tool reads.
	settle(ctx context.Context) error
	// watch observes the running system for a window, and leaves what it saw in dir.
	watch(ctx context.Context, c *Case, r scenario.Running, dir string) error
	// read makes findings from what was left in dir, after the system was removed.
	read(ctx context.Context, dir string) ([]finding, error)
}

// peerFlags are the flags of the command.
type peerFlags struct {
	peer, out      string
	melisai, aperf string
}

// peers runs cases with other tools: `exam peers [-peer NAME] [CASE...]`.
func (e *exam) peers(ctx context.Context, args []string) error {
	var f peerFlags
	set := flag.NewFlagSet("peers", flag.ContinueOnError)
	set.StringVar(&f.peer, "peer", "", "the `name` of the one to ask; without it each that is here")
	set.StringVar(&f.out, "out", filepath.Join(e.cache, "peers"), "`directory` for the answers")
	set.StringVar(&f.melisai, "melisai", "", "`path` of melisai's program")
	set.StringVar(&f.aperf, "aperf", "", "`path` of APerf's program")
	if err := set.Parse(args); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("root is needed to build the systems: run it as root")
	}
	asked, err := f.choose()
	if err != nil {
		return err
	}
	cases, err := e.read(set.Args())
	errs := []error{err}
	for _, p := range asked {
		if err := e.ask(ctx, p, f.out, cases); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.name(), err))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.Join(errs...)
}

// choose returns the named peer, or all peers whose program is known.
func (f *peerFlags) choose() ([]peer, error) {
	all := []peer{&melisai{program: f.melisai}, &aperf{program: f.aperf}, &jmc{}}
	programs := map[string]string{peerMelisai: f.melisai, peerAPerf: f.aperf}
	missing := func(p peer) bool {
		path, wanted := programs[p.name()]
		return wanted && path == ""
	}
	if f.peer == "" {
		return slices.DeleteFunc(all, missing), nil
	}
	for _, p := range all {
		if p.name() != f.peer {
			continue
		}
		if missing(p) {
			return nil, fmt.Errorf("-%s is missing: it can be had by no package client: exam/README.md", p.name())
		}
		return []peer{p}, nil
	}
	return nil, fmt.Errorf("there is no peer %q: want %s, %s or %s", f.peer, peerMelisai, peerAPerf, peerJMC)
}

// ask runs the cases with one peer. It skips cases that already have an answer in the peer's file.
func (e *exam) ask(ctx context.Context, p peer, out string, cases []*Case) error {
	words, err := readVocabulary(e.dir)
	if err != nil {
		return err
	}
	table, err := readMeanings(e.dir, p.name(), words)
	if err != nil {
		return err
	}
	version, err := p.prepare(ctx, e)
	if err != nil {
		return err
	}
	file := filepath.Join(out, p.name()+".json")
	answers, err := openAnswers(file, p.name()+" "+version)
	if err != nil {
		return err
	}
	for _, c := range cases {
		if a, ok := answers.Cases[c.Name]; !p.takes(c) || ok && a.Broken == "" {
			continue
		}
		a := e.askOne(ctx, p, table, c)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		answers.Cases[c.Name] = *a
		if err := answers.save(file); err != nil {
			return err
		}
		if c.Sealed() { // nobody may look at its answers
			e.say("%s: %s: %.0f s %s", p.name(), c.Name, a.Seconds, a.Broken)
		} else {
			e.say("%s: %s: %v %s", p.name(), c.Name, a.Words, cmp.Or(a.Broken, a.Text))
		}
	}
	return nil
}

// askOne builds the fault of a case and runs the peer on it. Whatever goes wrong is in the answer.
func (e *exam) askOne(ctx context.Context, p peer, table *meanings, c *Case) *PeerAnswer {
	a := &PeerAnswer{Words: []string{}}
	findings, err := e.observe(ctx, p, c, a)
	if err == nil {
		err = table.answer(findings, a)
	}
	if err != nil {
		a.Broken = err.Error()
	}
	return a
}

func (e *exam) observe(ctx context.Context, p peer, c *Case, a *PeerAnswer) ([]finding, error) {
	paths, err := c.fetchAll(ctx, e.cache, e.say)
	if err != nil {
		return nil, err
	}
	site, err := c.site(phaseFault, paths)
	if err != nil {
		return nil, err
	}
	if _, err := waitQuiet(ctx, time.Minute); err != nil {
		return nil, err
	}
	if err := p.settle(ctx); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "exam-peer-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // a JVM of another user writes its recording there
		return nil, err
	}
	w, err := site.Watch(ctx, labName, func(ctx context.Context, r scenario.Running) error {
		return p.watch(ctx, c, r, dir)
	})
	if err != nil {
		return nil, err
	}
	began := time.Now()
	findings, err := p.read(ctx, dir)
	a.Seconds = w.Seconds + time.Since(began).Seconds()
	return findings, err
}

// openAnswers reads the file of a peer, or begins one.
func openAnswers(file, peer string) (*PeerAnswers, error) {
	answers := &PeerAnswers{Peer: peer, Date: time.Now().UTC().Format(time.DateOnly)}
	old, err := readPeer(file)
	if errors.Is(err, os.ErrNotExist) {
		answers.Cases = map[string]PeerAnswer{}
		return answers, nil
	}
	if err != nil {
		return nil, err
	}
	if old.Peer != peer {
		return nil, fmt.Errorf("%s has the answers of %s, and this is %s: want another -out", file, old.Peer, peer)
	}
	if answers.Cases = old.Cases; answers.Cases == nil {
		answers.Cases = map[string]PeerAnswer{}
	}
	return answers, nil
}

// save replaces the file atomically, so that an interrupted run leaves a complete file.
func (a *PeerAnswers) save(file string) error {
	data, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // beside what was fetched
		return err
	}
	if err := os.WriteFile(file+".part", append(data, '\n'), 0o644); err != nil { //nolint:gosec // answers, no secrets
		return err
	}
	return os.Rename(file+".part", file)
}
