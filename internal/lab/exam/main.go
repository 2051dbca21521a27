// Command exam runs the cases of exam/ with perfdoctor and other tools, and scores their answers. `make exam-check`,
// `make exam` and `make exam-report` run it, and `make generate` writes docs/exam.md; exam/README.md has the rules.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/input/spelling"
	"github.com/perfdoctor/perfdoctor/internal/lab"
)

//go:generate go run github.com/perfdoctor/perfdoctor/internal/lab/exam -exam ../../../exam report

func main() {
	if code, child := lab.RunIfChild(); child {
		os.Exit(code)
	}
	e := &exam{}
	flag.StringVar(&e.dir, "exam", "exam", "`directory` with the cases")
	flag.StringVar(&e.cache, "cache", filepath.Join(".cache", "exam"), "`directory` for what is fetched")
	flag.DurationVar(&e.window, "window", window, "how `long` check measures each phase")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: exam [flags] check|fetch|run|peers|score|report [flags] [CASE...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := e.run(ctx, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "exam:", err)
		os.Exit(1)
	}
}

// exam are the flags.
type exam struct {
	dir, cache string
	here       string // the working directory
	window     time.Duration
}

// defaultResults returns the directory that keeps the complete results of a run.
func (e *exam) defaultResults() string { return filepath.Join(e.cache, resultsDir) }

// tidy removes the paths of this machine from a text: they would be committed, and might name a component.
func (e *exam) tidy(text string) string {
	for _, dir := range []string{e.cache, e.here, os.TempDir()} {
		if len(dir) > 1 {
			text = strings.ReplaceAll(text, dir+"/", "")
		}
	}
	return ownGroup.ReplaceAllString(text, "/…")
}

// ownGroup matches a control group that a session manager or a container made for the user of the exam.
var ownGroup = regexp.MustCompile(`/[A-Za-z_.-]+/[0-9a-f]{32,64}\b`)

func (e *exam) say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (e *exam) run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("want a command: check, fetch, run, peers, score or report")
	}
	var err error
	if e.cache, err = filepath.Abs(e.cache); err != nil { // programs have their own working directories
		return err
	}
	if e.here, err = os.Getwd(); err != nil {
		return err
	}
	switch args[0] {
	case "check":
		return e.checkAll(ctx, args[1:])
	case "fetch":
		return e.fetchAll(ctx, args[1:])
	case "run":
		return e.runCases(ctx, args[1:])
	case "peers":
		return e.peers(ctx, args[1:])
	case "score":
		return e.scoreCases(args[1:])
	case "report":
		return e.writeReport(args[1:])
	default:
		return fmt.Errorf("there is no command %q: want check, fetch, run, peers, score or report", args[0])
	}
}

// read reads the named cases, or all. It returns all mistakes as one error, together with the cases that have none.
func (e *exam) read(names []string) ([]*Case, error) {
	words, err := readVocabulary(e.dir)
	if err != nil {
		return nil, err
	}
	there, err := caseNames(e.dir)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		names = there
	}
	var cases []*Case
	var errs []error
	for _, name := range names {
		if !slices.Contains(there, name) {
			errs = append(errs, fmt.Errorf("there is no case %q; the nearest is %q", name,
				spelling.Nearest(name, there)))
			continue
		}
		c, err := readCase(e.dir, name, words)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		cases = append(cases, c)
	}
	return cases, errors.Join(errs...)
}

// checkAll checks cases one after the other, and goes on after one that fails.
func (e *exam) checkAll(ctx context.Context, names []string) error {
	cases, err := e.read(names)
	errs := []error{err}
	if os.Geteuid() != 0 {
		return errors.Join(err, errors.New("root is needed to build the systems: run it as root"))
	}
	var failed []string
	for _, c := range cases {
		held, err := e.check(ctx, c)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			errs = append(errs, err)
		} else if !held {
			failed = append(failed, c.Name)
		}
	}
	if len(failed) > 0 {
		errs = append(errs, fmt.Errorf("the cure does not move what it must: %s", strings.Join(failed, ", ")))
	}
	return errors.Join(errs...)
}

// fetchAll makes the directories of all cases beforehand, so that nothing is fetched or compiled between two cases.
func (e *exam) fetchAll(ctx context.Context, names []string) error {
	cases, err := e.read(names)
	errs := []error{err}
	for _, c := range cases {
		if _, err := c.fetchAll(ctx, e.cache, e.say); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.Name, err))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.Join(errs...)
}
