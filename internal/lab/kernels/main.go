// Command kernels runs kernel-dependent tests on this machine and in guests with other kernels, and prints a table of
// what worked where. `make test-kernels` runs it, as root.
//
// A feature either works on a kernel, or the kernel is older than the feature declares. Everything else is a failure.
// Kernels are Debian's, fetched once (vm.FetchKernel). Guests are emulated (qemu), so this needs no hardware and
// changes nothing on the machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	doc := flag.String("doc", "", "also write the table to this `file`, as markdown")
	dir := flag.String("programs", filepath.Join("bin", "kernels"), "`folder` for the compiled tests")
	some := flag.String("features", "", "only the features whose name has this `text`")
	guests := flag.Int("guests", runtime.NumCPU(), "guests at a time, each of which takes one CPU")
	verbose := flag.Bool("v", false, "print what the tests print")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, options{doc: *doc, dir: *dir, some: *some, guests: *guests, verbose: *verbose, wanted: flag.Args()})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(1)
	}
}

// options are the flags, and the names of the kernels to run if not all.
type options struct {
	doc, dir string
	some     string
	guests   int
	verbose  bool
	wanted   []string
}

func run(ctx context.Context, o options) error {
	list, floors := features(), floors()
	if err := checkList(list, floors); err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(f feature) bool { return !strings.Contains(f.name, o.some) })
	columns, err := chosen(o.wanted)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("root is needed to load BPF programs and to make network namespaces: run it as root")
	}
	start := time.Now()
	m := &matrix{floors: floors, features: list, cells: map[place]cell{}, releases: map[kernel]string{}}
	if err := m.fill(ctx, columns, o); err != nil {
		return err
	}
	fmt.Print(m.text(columns))
	fmt.Printf("in all %.0f s\n", time.Since(start).Seconds())
	if o.doc != "" {
		if err := os.WriteFile(o.doc, m.document(columns, time.Now()), 0o644); err != nil { //nolint:gosec // a page for everybody
			return err
		}
	}
	if n := m.failed(); n > 0 {
		return fmt.Errorf("%d of %d cells failed", n, len(m.cells))
	}
	return nil
}

// chosen returns the named kernels, or all.
func chosen(names []string) ([]kernel, error) {
	if len(names) == 0 {
		return kernels(), nil
	}
	var out []kernel
	for _, name := range names {
		found := false
		for _, k := range kernels() {
			if k.name == name {
				out, found = append(out, k), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no kernel %q in the matrix", name)
		}
	}
	return out, nil
}
