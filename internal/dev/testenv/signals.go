package testenv

import (
	"os"
	"os/signal"
	"syscall"
)

// DefaultSignals gives the programs that this process starts the usual meaning of the signals that end one. Whoever
// starts tests with nohup, or in the background of a shell without job control, has them ignored, and every child
// inherits that; a test that sends such a signal would wait in vain. The tests' own process goes on ignoring them. It
// belongs in TestMain.
func DefaultSignals() {
	for _, sig := range []os.Signal{syscall.SIGHUP, os.Interrupt, syscall.SIGTERM} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig) // a signal with a handler is reset by exec
		}
	}
}
