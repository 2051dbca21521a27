// Package firewall keeps a panic from costing more than the symbol, file or rule that it came from.
//
// Code that reads bytes that perfdoctor did not make may hit a bug, ours or a library's, that only those bytes
// uncover. The firewall encloses each such piece of work. Its error goes where every other error goes: into the
// recording, by name.
package firewall

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"strings"
)

// A Fault is a panic of perfdoctor's own code, as an error.
type Fault struct {
	What  string // what was worked on: "the JVM's counters"
	Why   string
	Where string // function, file and line
}

// Error returns what was worked on, and the place in perfdoctor.
func (f *Fault) Error() string {
	return fmt.Sprintf("%s: perfdoctor failed on it (%s; %s), which is a bug to report", f.What, f.Why, f.Where)
}

// module begins the names of perfdoctor's own functions.
const module = "github.com/perfdoctor/perfdoctor/"

// reason returns why there was a panic. The runtime's messages are about numbers and types, and perfdoctor's own hold
// nothing that was read. A library's message may.
func reason(value any, from runtime.Frame) string {
	if err, ok := value.(runtime.Error); ok {
		return strings.TrimPrefix(err.Error(), "runtime error: ")
	}
	if strings.HasPrefix(from.Function, module) {
		return fmt.Sprint(value)
	}
	return fmt.Sprintf("a panic with a %T", value)
}

// Run calls f. A panic of f becomes a [*Fault] about what, which names kind and owner of what f works on, never its
// content. What f has changed until then stays changed, so f should deliver its results only at its end.
//
// It cannot help where f starts goroutines, exhausts the memory or overflows the stack.
func Run(what string, f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			from := origin()
			where := fmt.Sprintf("%s, %s:%d", path.Base(from.Function), path.Base(from.File), from.Line)
			err = &Fault{What: what, Why: reason(value, from), Where: where}
		}
	}()
	return f()
}

// Parse is [Run] for a function with one result.
func Parse[T any](what string, parse func() (T, error)) (result T, err error) {
	err = Run(what, func() (err error) {
		result, err = parse()
		return err
	})
	return result, err
}

// IsFault reports whether an error was caused by a panic.
func IsFault(err error) bool {
	_, ok := errors.AsType[*Fault](err)
	return ok
}

// origin returns the function that panicked: the first one below the runtime's functions.
func origin() runtime.Frame {
	callers := make([]uintptr, 32)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	for panicking := false; ; {
		f, more := frames.Next()
		own := !strings.HasPrefix(f.Function, "runtime.")
		if panicking && own || !more {
			return f
		}
		panicking = panicking || !own && strings.HasSuffix(f.Function, "panic")
	}
}
