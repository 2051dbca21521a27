// Command perfdoctor tells what holds a Linux system back, with the numbers that prove it, and what to change first.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"

	"github.com/perfdoctor/perfdoctor/internal/cli"
	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/cli/experiment"
	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/lab/commands"
	"github.com/perfdoctor/perfdoctor/internal/lab/vm/guest"
)

// version is set by the build (-X main.version).
var version = "unknown"

// memoryLimit is the size, in bytes, above which the garbage collector works harder. The packaged unit grants 256
// MiB, and the program's text, stacks and BPF maps need a part of that.
const memoryLimit = 192 << 20

func main() {
	if door.Helped() { // a process that reads memory for another perfdoctor
		return
	}
	if code, watched := experiment.Watch(); watched { // a process that undoes what another perfdoctor changed
		os.Exit(code)
	}
	if guest.IsInit() {
		fmt.Fprintln(os.Stderr, guest.Main()) // when it returns, the guest ends
		os.Exit(1)
	}
	if code, child := lab.RunIfChild(); child { // a process of a scenario
		os.Exit(code)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ending()...)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	// A lost reader then causes a write error and does not end the process: the recording must still be saved.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	streams := command.Streams{Out: os.Stdout, Err: os.Stderr}
	os.Exit(cli.Run(ctx, version, os.Args[1:], streams, commands.Scenario))
}

// ending returns the signals that end the observation, including a lost terminal, except those that the parent wants
// ignored (nohup).
func ending() []os.Signal {
	return slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
}
