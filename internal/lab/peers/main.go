// Command peers compares perfdoctor with the tools that one would use instead. They run in turns, as whole commands.
// `make bench-peers` measures everything, and writes figures.json, docs/performance.md and what README.md and
// docs/guide.md say about cost. It fails if a goal is missed. `make bench-short` measures a part. It fails if
// perfdoctor has become more expensive relative to its peers than in figures.json. docs/decisions/0085 explains why
// it compares ratios, and which.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/perfdoctor/perfdoctor/internal/lab"
)

// skipped is the exit code for figures that cannot be compared, as .ci/run reads it.
const skipped = 77

// errOther says that there is nothing to compare with.
var errOther = errors.New("the figures are of another machine, whose ratios are others")

func main() {
	if code, child := lab.RunIfChild(); child {
		os.Exit(code)
	}
	b := &bench{out: os.Stdout}
	flag.StringVar(&b.doctor, "doctor", "bin/perfdoctor", "the `program` that is measured")
	flag.StringVar(&b.root, "root", ".", "the `directory` of the repository")
	flag.StringVar(&b.perfspect, "perfspect", "", "`path` of PerfSpect")
	flag.StringVar(&b.melisai, "melisai", "", "`path` of melisai")
	flag.BoolVar(&b.short, "short", false, "measure what takes seconds, and compare it with the figures")
	flag.IntVar(&b.rounds, "rounds", 0, "how `often` each command runs; 0: as often as its noise asks for")
	flag.BoolVar(&b.keep, "keep", false, "put the contests that are named into the figures and pages")
	flag.BoolVar(&b.page, "page", false, "measure nothing: write the pages from the figures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := b.run(ctx, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
	}
	switch {
	case errors.Is(err, errOther):
		os.Exit(skipped)
	case err != nil:
		os.Exit(1)
	}
}

// A bench is a run of this program.
type bench struct {
	doctor, self, root string
	perfspect, melisai string
	short, page, keep  bool
	rounds             int
	out                io.Writer

	// For the current contest.
	lab  *lab.Lab
	host *lab.Host
	dir  string
}

// times returns how often to run: the usual number, unless the number of rounds is set.
func (b *bench) times(usual int) int {
	if b.rounds > 0 {
		return b.rounds
	}
	return usual
}

func (b *bench) say(format string, args ...any) { _, _ = fmt.Fprintf(b.out, format, args...) }

func (b *bench) run(ctx context.Context, args []string) (err error) {
	if len(args) > 0 && slices.Contains([]string{asPass, asBare, asThreads}, args[0]) {
		return part(ctx, args)
	}
	if b.page {
		f, err := b.committed()
		if err != nil {
			return err
		}
		return b.write(f)
	}
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	if b.doctor, err = filepath.Abs(b.doctor); err != nil {
		return err
	}
	f, err := b.machine(ctx)
	if err != nil {
		return err
	}
	if err := b.measure(ctx, f, args); err != nil {
		return err
	}
	switch {
	case b.short:
		return b.compare(f)
	case len(args) == 0:
		if f.LoadAfter, err = load(); err != nil {
			return err
		}
		err = b.write(f)
	case b.keep:
		err = b.replace(f)
	}
	return errors.Join(err, b.judge(f))
}

// measure runs all contests and growths, or the named ones, and adds them to the figures.
func (b *bench) measure(ctx context.Context, f *figures, names []string) error {
	wanted := func(name string, short bool) bool {
		return len(names) == 0 && (short || !b.short) || slices.Contains(names, name)
	}
	for _, t := range tasks() {
		if !wanted(t.name, t.short) {
			continue
		}
		err := b.alone(func() error {
			c, err := t.make(ctx, b, t.name)
			if err == nil {
				f.Contests = append(f.Contests, c)
				b.say("%s", c.text())
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if err := f.save(b.soFar()); err != nil {
			return err
		}
	}
	for i, s := range b.growths() {
		if !wanted(s.of, false) {
			continue
		}
		err := b.alone(func() error {
			g, err := b.grow(ctx, b.growths()[i]) // the series for this host
			f.Growths = append(f.Growths, g)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", s.of, err)
		}
		if err := f.save(b.soFar()); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// alone calls do with a separate host, which is removed afterwards.
func (b *bench) alone(do func() error) (err error) {
	if b.lab, err = lab.New("peers"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.lab.Close()) }()
	if b.host, err = b.lab.Host("peers"); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("/var/tmp", "peers-"); err != nil { // not /tmp, which may be memory
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	return do()
}

// judge prints the verdicts, and returns an error with the missed goals.
func (b *bench) judge(f *figures) error {
	var missed []string
	for _, v := range f.judged() {
		line := fmt.Sprintf("%s: %s: %v, %s", v.of, v.what, v.got, v.wanted())
		b.say("%s: %s\n", strings.Trim(v.word(), "*"), line)
		if v.missed() {
			missed = append(missed, line)
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("%d goals are missed:\n%s", len(missed), strings.Join(missed, "\n"))
	}
	return nil
}

func command(argv []string) *exec.Cmd { return exec.Command(argv[0], argv[1:]...) } //nolint:noctx // the lab ends it
