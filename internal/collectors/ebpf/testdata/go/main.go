// Shares runs two functions in turns, one for 70 % of the iterations, until its standard input ends. It writes what Go's own profiler
// saw of them to the file named by its argument.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"sync/atomic"
)

var (
	sink uint64
	stop atomic.Bool
)

// Each has the loop in itself: a function that calls nothing has no frame, and hides who called it.
//
//go:noinline
func seventy() {
	for i := range uint64(700000) {
		sink = sink*6364136223846793005 + i
	}
}

//go:noinline
func thirty() {
	for i := range uint64(300000) {
		sink = sink*6364136223846793005 + i
	}
}

func main() {
	f, err := os.Create(os.Args[1])
	if err == nil {
		err = pprof.StartCPUProfile(f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // whatever ends it
		stop.Store(true)
	}()
	fmt.Println("ready")
	for !stop.Load() {
		seventy()
		thirty()
	}
	pprof.StopCPUProfile()
	if err := f.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
