package testenv

import (
	"os"
	"os/signal"
	"syscall"
)

// DefaultSignals resets the signals that end a program to their default meaning, for the children of this process.
// Under nohup, or in the background of a shell without job control, these signals are ignored, and every child
// inherits that: a test that sends one would wait in vain. The test process itself keeps ignoring them. Call it in
// TestMain.
func DefaultSignals() {
	for _, sig := range []os.Signal{syscall.SIGHUP, os.Interrupt, syscall.SIGTERM} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig) // exec resets a signal with a handler
		}
	}
}
