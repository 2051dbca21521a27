// Command docgen writes documentation from the program itself: man pages, one page per check, the list of metrics,
// and the completion scripts for shells. `make generate` runs it. It is separate from perfdoctor so that the binary
// does not contain a markdown converter.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

//go:generate go run github.com/perfdoctor/perfdoctor/internal/dev/docgen ../../..

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: docgen ROOT-OF-THE-REPOSITORY")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	pages, err := generate(os.DirFS(root))
	if err != nil {
		return err
	}
	return write(root, pages)
}

// ownDirs hold only generated pages. Any other file in them is the page of something that no longer exists.
var ownDirs = []string{"docs/man", "docs/checks", completionDir}

// write writes the pages, by their path from the root, and removes stale ones.
func write(root string, pages map[string][]byte) error {
	for _, dir := range ownDirs {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil { //nolint:gosec // pages are for everybody
			return err
		}
		if err := removeStale(root, dir, pages); err != nil {
			return err
		}
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(root, name), text, 0o644); err != nil { //nolint:gosec // pages are for everybody
			return err
		}
	}
	return nil
}

func removeStale(root, dir string, pages map[string][]byte) error {
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if _, ok := pages[name]; !ok {
			errs = append(errs, os.Remove(filepath.Join(root, name)))
		}
	}
	return errors.Join(errs...)
}
