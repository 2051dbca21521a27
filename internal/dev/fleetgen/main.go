// Command fleetgen writes what a fleet's Prometheus and Grafana need to know about the checks: alert rules with their
// tests, and the dashboard. `make generate` runs it. A threshold, a title or a check's name is defined once, in the
// check.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

//go:generate go run github.com/perfdoctor/perfdoctor/internal/dev/fleetgen ../../..

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: fleetgen ROOT-OF-THE-REPOSITORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "fleetgen:", err)
		os.Exit(1)
	}
}

func write(root string) error {
	files, err := generate()
	if err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // rules are for everybody
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil { //nolint:gosec // rules are for everybody
			return err
		}
	}
	return nil
}
