// Command gather collects the licence texts of all Go modules in perfdoctor from the module cache into the file that
// internal/cli/licenses embeds. It needs no network once perfdoctor has been built.
//
//	gather FILE
package main

import (
	"context"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gather FILE")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gather:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file string) error {
	texts, err := gather(ctx)
	if err != nil {
		return err
	}
	packed, err := pack(texts)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", packed, 0o644); err != nil { //nolint:gosec // public, and others may build here after root did
		return err
	}
	return os.Rename(file+".new", file)
}
