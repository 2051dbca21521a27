// Command perfdoctor tells what holds a Linux system back, with the numbers that prove it, and what to change first.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/perfdoctor/perfdoctor/internal/cli"
)

// version is set by the build (-X main.version).
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	os.Exit(cli.Run(ctx, version, os.Args[1:], cli.Streams{Out: os.Stdout, Err: os.Stderr}))
}
