// Command languages lets perfdoctor diagnose the same fault in six languages. It prints what perfdoctor says about
// each program, about the program with the fix, and about its healthy twin. `make languages` runs it.
// workloads/languages has the programs, and describes each fault.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/lab"
)

func main() {
	r := &runner{out: os.Stdout}
	flag.StringVar(&r.doctor, "doctor", "bin/perfdoctor", "the `program` that diagnoses")
	flag.StringVar(&r.source, "programs", "workloads/languages", "`directory` of the programs")
	flag.StringVar(&r.built, "built", ".cache/languages", "`directory` for what they are compiled to")
	flag.DurationVar(&r.window, "duration", 5*time.Second, "how `long` each is diagnosed")
	flag.StringVar(&r.keep, "keep", "", "`directory` for the recordings")
	runs := flag.Int("runs", 1, "how `often` each cell is put")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := r.run(ctx, *runs, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "languages:", err)
		os.Exit(1)
	}
}

// run runs the cells named as FAULT, LANGUAGE or FAULT/LANGUAGE, or all without a name. It returns an error if one
// did not hold.
func (r *runner) run(ctx context.Context, runs int, names []string) error {
	l, err := lab.New("languages")
	if err != nil {
		return err
	}
	defer l.Close()
	r.lab = l
	if r.backend, err = serveSlowly(ctx); err != nil {
		return err
	}
	defer r.backend.Close()
	held, of := 0, 0
	for _, c := range cells() {
		if len(names) > 0 && !slices.ContainsFunc(names, c.is) {
			continue
		}
		if c.none != "" {
			r.say("%-13s -    %s\n", c, c.none)
			continue
		}
		n, err := r.cell(ctx, c, runs)
		if err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
		of++
		if n == runs {
			held++
		}
	}
	r.say("%d of %d cells hold in %d of %d runs\n", held, of, runs, runs)
	if held < of {
		return fmt.Errorf("%d cells do not hold", of-held)
	}
	return nil
}

// cell runs one cell, and returns in how many runs it held.
func (r *runner) cell(ctx context.Context, c cell, runs int) (held int, err error) {
	for range runs {
		sick, err := r.diagnose(ctx, c, "sick", c.fault.load)
		if err != nil {
			return held, err
		}
		cured, err := r.diagnose(ctx, c, "cured", c.fault.load)
		if err != nil {
			return held, err
		}
		twin, err := r.diagnose(ctx, c, "sick", c.fault.twin)
		if err != nil {
			return held, err
		}
		right, named := slices.Contains(c.fault.verdicts, sick.check()), c.named(sick)
		if right && named && cured.silent() && twin.silent() {
			held++
		}
		r.say("%-13s verdict %-5s function %-5s fix silent %-5s twin silent %-5s %s | %s | %s\n", c, mark(right),
			mark(named), mark(cured.silent()), mark(twin.silent()), sick, cured, twin)
	}
	return held, nil
}

func (r *runner) say(format string, args ...any) { _, _ = fmt.Fprintf(r.out, format, args...) }

func mark(ok bool) string {
	if ok {
		return "yes"
	}
	return "NO"
}

func (c cell) String() string { return c.fault.name + "/" + c.language.name }

func (c cell) is(name string) bool {
	return name == c.fault.name || name == c.language.name || name == c.String()
}

// named reports whether the principal finding has the function's name, in any spelling of its words.
func (c cell) named(s said) bool {
	if c.fault.function == "" {
		return true
	}
	plain := func(text string) string { return strings.ToLower(strings.ReplaceAll(text, "_", "")) }
	return strings.Contains(plain(s.principal), plain(c.fault.function))
}
