// Package asprof runs async-profiler in a JVM for a bounded time and undoes everything afterwards.
//
// A session can be killed safely: the profiler is started with a timeout of its own, its files are locked as long as
// their owner lives, and a later session removes files that nobody holds (see [jvm.VM.CleanLeftovers]). The library
// stays mapped in the JVM, because HotSpot never unloads an agent; a later session uses the mapped one.
package asprof

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/jvm"
)

// ErrBusy says that the profiler in the target already runs for someone else.
var ErrBusy = errors.New("a profiler already runs in the JVM: another perfdoctor profiles it; wait until it has ended")

// A Session is a profiler that runs in a JVM. It must be ended with Stop or Close.
type Session struct {
	// Warnings are async-profiler's messages at its start, one line each, such as that there are no kernel symbols.
	Warnings []string
	// Verified says that the JVM has loaded the very library that was placed. It is false where that could not be
	// verified.
	Verified bool
	// Lost is what the profiler lost, after Stop.
	Lost Lost

	vm           *jvm.VM
	library      string // as the target sees it
	lib, jfr, lg *jvm.File
	running      bool
}

// The purposes of the placed files; each ends the name of its file. The recording's must end in .jfr.
const (
	recordingName = "profile.jfr"
	logName       = "asprof.log"
)

// libraryName returns a name that differs between releases of the library, so that a mapped library is reused only if
// it is the same.
func libraryName(library []byte) string {
	sum := sha256.Sum256(library)
	return "libasyncProfiler-" + hex.EncodeToString(sum[:6]) + ".so"
}

// undoLimit bounds the cleanup after the context of a start has ended: a JVM that works answers in 50 ms.
const undoLimit = time.Second

// Start places the library in the target, loads it and starts the profiler. Its error is a [jvm.Refusal] where the
// target is the reason, [ErrBusy], or async-profiler's own message. After an error only the library's mapping is left
// in the target.
func Start(ctx context.Context, vm *jvm.VM, o Options) (*Session, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := Possible(vm); err != nil {
		return nil, err
	}
	orphaned, err := clean(vm)
	if err != nil {
		return nil, err
	}
	s := &Session{vm: vm}
	err = s.place(o.Library)
	if err == nil {
		err = s.start(ctx, o, orphaned)
	}
	if err != nil {
		return nil, errors.Join(err, s.undo(ctx))
	}
	return s, nil
}

// Possible returns why no session can be started in a JVM, as far as that shows without touching it, or nil. The
// reasons are those of [jvm.VM.Loadable] and another loaded profiler, since only one at a time can use signals and
// perf events.
func Possible(vm *jvm.VM) error {
	if r := vm.Loadable(); r != nil {
		return r
	}
	for _, a := range vm.Profilers() {
		return &jvm.Refusal{
			Cause: jvm.Failed,
			Reason: fmt.Sprintf("pid %d: another profiler is loaded, %s (%s), which a second one beside it would "+
				"disturb",
				vm.PID, a.Name, a.Path),
			Remedy: "use that one, or start the program without it",
		}
	}
	return nil
}

// clean removes what a killed perfdoctor left, and reports whether a recording was among it: its profiler may still
// run.
func clean(vm *jvm.VM) (orphaned bool, err error) {
	left, err := vm.CleanLeftovers()
	return recordings(left.Removed) > 0, err
}

// recordings counts the paths of recordings: a session has one.
func recordings(paths []string) (n int) {
	for _, path := range paths {
		if strings.HasSuffix(path, recordingName) {
			n++
		}
	}
	return n
}

// place creates the files for the recording and the log, and places the library unless this very one is mapped
// already.
func (s *Session) place(library []byte) (err error) {
	if s.jfr, err = s.vm.Place(recordingName, nil, 0o600); err != nil {
		return err
	}
	if s.lg, err = s.vm.Place(logName, nil, 0o600); err != nil {
		return err
	}
	for _, a := range s.vm.Agents {
		if a.Own && a.Name == libraryName(library) {
			s.library = a.Path
			s.Verified, err = s.vm.VerifyMapped(a.Path, library)
			return err
		}
	}
	return s.placeLibrary(library)
}

func (s *Session) placeLibrary(library []byte) (err error) {
	if s.lib, err = s.vm.Place(libraryName(library), library, 0o500); err != nil {
		return err
	}
	s.library = s.lib.Path
	return nil
}

func (s *Session) start(ctx context.Context, o Options, orphaned bool) error {
	if orphaned {
		if err := s.stopOrphan(ctx); err != nil {
			return err
		}
	}
	err := s.tryStart(ctx, o)
	if errors.Is(err, ErrBusy) && s.isAlone() {
		// the library that answered that it is busy also answers now, wherever it was loaded from
		if err := s.stopRunning(ctx); err != nil {
			return err
		}
		err = s.tryStart(ctx, o)
	}
	return err
}

// isAlone reports whether no other session holds a recording in the JVM. The running profiler then belongs to a
// killed session whose files a diagnosis of the whole host has removed.
func (s *Session) isAlone() bool {
	left, err := s.vm.CleanLeftovers()
	return err == nil && recordings(left.Held) == 1
}

func (s *Session) tryStart(ctx context.Context, o Options) error {
	err := s.command(ctx, o.start("cpu", s.jfr.Path, s.lg.Path))
	if isSwapped(err) { // it is never spoken to again
		return err
	}
	if s.lib == nil && notLoaded(err) {
		// The loader finds a mapped library by the name it was loaded with (_dl_map_object in glibc's elf/dl-load.c),
		// though the file is gone. That fails in musl, and when the library was loaded by another name.
		if err = s.placeLibrary(o.Library); err == nil {
			err = s.command(ctx, o.start("cpu", s.jfr.Path, s.lg.Path))
		}
	}
	if err != nil && strings.Contains(s.said(), "Perf events") {
		// Perf events work for the process, but not for all its threads: they need a right, and a descriptor each.
		// Timers of a thread's CPU time need neither.
		err = s.command(ctx, o.start("ctimer", s.jfr.Path, s.lg.Path))
	}
	s.Warnings = lines(s.said())
	var r *jvm.Refusal
	switch {
	case err == nil:
		s.running = true
		return nil
	case !errors.As(err, &r) || r.Cause != jvm.Failed:
		s.running = true // perhaps: it did not answer in time, and may still do what it was told
		return err
	case strings.Contains(s.said(), "already started"):
		return ErrBusy
	}
	return fmt.Errorf("async-profiler could not start: %s: %w", strings.Join(s.Warnings, "; "), err)
}

// stopOrphan stops the profiler of a killed perfdoctor. A profiler that has stopped by itself says so, which is as
// good.
func (s *Session) stopOrphan(ctx context.Context) error {
	// what is mapped is another release, or was loaded by an older perfdoctor: it cannot be told to stop
	if s.lib != nil {
		return nil
	}
	return s.stopRunning(ctx)
}

func (s *Session) stopRunning(ctx context.Context) error {
	err := s.command(ctx, stop)
	var r *jvm.Refusal
	if errors.As(err, &r) && r.Cause == jvm.Failed && r.Code > 0 {
		return nil
	}
	if notLoaded(err) {
		return &jvm.Refusal{
			Cause: jvm.Failed,
			Reason: fmt.Sprintf("pid %d: the profiler of a perfdoctor that was killed may still run, and cannot be "+
				"told to stop", s.vm.PID),
			Remedy: "wait until it stops by itself: a few seconds after the end of the window that was asked for",
		}
	}
	return err
}

// notLoaded reports whether the JVM could not load the library, so that it ran no command.
func notLoaded(err error) bool {
	var r *jvm.Refusal
	return errors.As(err, &r) && r.Code == -1
}

// command runs one command of async-profiler in the target.
func (s *Session) command(ctx context.Context, options string) error {
	err := s.vm.Load(ctx, s.library, options)
	if s.lib == nil {
		return err
	}
	// Also after an error: a stranger's library may have run and then failed.
	known, checkErr := s.vm.VerifyLoaded(s.lib, err == nil)
	if isSwapped(checkErr) {
		return checkErr
	}
	s.Verified = s.Verified || known && checkErr == nil
	var r *jvm.Refusal
	if errors.As(err, &r) && r.Cause == jvm.Gone {
		r.Reason += fmt.Sprintf("; it ended while it loaded %s, whose inode is %d", s.library, s.lib.Inode())
	}
	return err
}

func isSwapped(err error) bool {
	var swapped *jvm.SwappedError
	return errors.As(err, &swapped)
}

// maxLog bounds what is read of async-profiler's log, which has a few lines.
const maxLog = 16 << 10

// said returns what async-profiler wrote into its log since it was last started.
func (s *Session) said() string {
	f, err := s.lg.Open()
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxLog))
	if err != nil {
		return ""
	}
	return string(text)
}

// lines returns the lines of the log without the mark of their level. It returns equal lines once: each thread may
// say the same.
func lines(text string) []string {
	var out []string
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if _, rest, ok := strings.Cut(line, "] "); ok && strings.HasPrefix(line, "[") {
			line = strings.TrimSpace(rest)
		}
		if line != "" && !seen[line] {
			seen[line] = true
			out = append(out, line)
		}
	}
	return out
}

// maxRecording bounds the recording: 10,000 samples a second with all their stacks take less in an hour.
const maxRecording = 1 << 30

// Stop ends the profiler and returns its recording, a complete JFR file. The caller closes it; its name in the target
// is gone. A profiler that has stopped by itself, at its timeout or because the JVM has ended, has already completed
// its file.
func (s *Session) Stop(ctx context.Context) (recording *os.File, err error) {
	stopped := s.end(ctx)
	if stopped == nil {
		s.Lost = s.lost(ctx)
	}
	f, err := s.jfr.Open()
	if err == nil {
		err = bounded(f)
	}
	err = errors.Join(err, s.remove())
	// A JVM that was stopped may meanwhile have done what an earlier run had asked for. Files that cannot be removed
	// are left to the next run.
	_, _ = s.vm.CleanLeftovers()
	if err != nil {
		if f != nil {
			_ = f.Close() // only read
		}
		return nil, errors.Join(stopped, err)
	}
	if stopped != nil {
		_ = f.Close() // only read; it is still being written
		return nil, stopped
	}
	return f, nil
}

func bounded(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	switch {
	case info.Size() > maxRecording:
		return fmt.Errorf("the recording has %d bytes, more than %d: profile for a shorter time or with longer "+
			"intervals",
			info.Size(), maxRecording)
	case info.Size() == 0:
		return errors.New("the recording is empty: the JVM ended before anything was written")
	}
	return nil
}

// end stops the profiler. If the agent says that it is not running, or the JVM is gone, it has ended already.
func (s *Session) end(ctx context.Context) error {
	if !s.running {
		return nil
	}
	s.running = false
	err := s.command(ctx, stop)
	var r *jvm.Refusal
	if errors.As(err, &r) && (r.Cause == jvm.Gone || r.Cause == jvm.Failed && r.Code > 0) {
		return nil
	}
	return err
}

// Close ends the session without its recording. After Stop it does nothing.
func (s *Session) Close() error { return s.undo(context.Background()) }

// undo reverts what was done, even when the context has ended.
func (s *Session) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	return errors.Join(s.end(ctx), s.remove())
}

// remove removes the files from the target.
func (s *Session) remove() error {
	var failed []error
	for _, f := range []**jvm.File{&s.lib, &s.jfr, &s.lg} {
		if *f != nil {
			failed = append(failed, (*f).Remove())
			*f = nil
		}
	}
	return errors.Join(failed...)
}
