package asprof

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/jvm"
	"github.com/perfdoctor/perfdoctor/internal/jvm/jfr"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// rawName is the file below profiles/ of a recording that holds what async-profiler wrote.
const rawName = "jvm.jfr"

// maxRaw is the size up to which that file is kept: the limit of a recording (see docs/recording-format.md).
const maxRaw = 32 << 20

// read appends the profiles in async-profiler's recording, and the recording itself for other tools.
func (s *source) read(f *os.File, a *recording.Appender) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	profiles, err := firewall.Parse(fmt.Sprintf("what async-profiler recorded of pid %d", s.vm.PID),
		func() ([]*stacks.Profile, error) {
			return s.parse(f, info.Size(), jfr.Options{ThreadID: threadIDs(s.vm)})
		})
	if firewall.IsFault(err) && profiles != nil {
		a.Lost(1, err.Error())
		err = nil
	}
	if firewall.IsFault(err) { // the file is kept, to find out why
		for _, e := range events {
			a.Missing(e.metric, recording.StatusFailed, err.Error(), "report this as a bug with the recording (--save)")
		}
		return keep(f, info.Size(), a)
	}
	if err != nil {
		return fmt.Errorf("async-profiler's recording: %w", err)
	}
	for _, e := range events {
		switch p := profileOf(profiles, e.event); {
		case p != nil:
			if e.event == stacks.CPU && blind(p, s.session.Warnings) {
				p.Engine += " without kernel frames"
			}
			a.Profile(p)
		case slices.Contains(s.asked, e.event):
			a.Missing(e.metric, recording.StatusFailed, "async-profiler gave no profile of it", "")
		default:
			a.Missing(e.metric, recording.StatusUnsupported, "--jvm-events left it out",
				"add "+string(e.event)+" to --jvm-events")
		}
	}
	return keep(f, info.Size(), a)
}

// blind reports whether the profiler could not see what the kernel does for a thread: that time then counts as the
// caller's. Timers never see it; perf events do if the target may read the kernel's symbols (PerfEvents::start in
// src/perfEvents_linux.cpp of async-profiler).
func blind(p *stacks.Profile, warnings []string) bool {
	denied := slices.ContainsFunc(warnings,
		func(w string) bool { return strings.HasPrefix(w, "Kernel symbols are unavailable") })
	return denied || strings.HasSuffix(p.Engine, "timer") // ctimer, itimer
}

func profileOf(list []*stacks.Profile, e stacks.Event) *stacks.Profile {
	for _, p := range list {
		if p.Event == e {
			return p
		}
	}
	return nil
}

// keep puts the file itself into the recording.
func keep(f *os.File, size int64, a *recording.Appender) error {
	if size > maxRaw {
		a.Lost(int(size), fmt.Sprintf("bytes of %s, which is larger than a recording keeps (%d MiB); its profiles "+
			"are there",
			rawName, maxRaw>>20))
		return nil
	}
	content := make([]byte, size)
	if _, err := f.ReadAt(content, 0); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("async-profiler's recording: %w", err)
	}
	a.File(rawName, content)
	return nil
}

// threadIDs returns a function that maps the id of a thread in the JVM's own pid namespace to its id on the host; nil
// for a JVM in perfdoctor's namespace. A thread that has ended is no longer known there: it keeps its name and has no
// id.
func threadIDs(vm *jvm.VM) func(nstid int) int {
	if !vm.OtherPID {
		return nil
	}
	threads := host.Local().ThreadIDs(vm.PID)
	return func(nstid int) int { return threads[nstid] }
}
