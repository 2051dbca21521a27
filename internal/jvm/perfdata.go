package jvm

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/jvm/hsperf"
)

// PerfData are HotSpot's counters, open for reading, in shared memory or else in the JVM's own. The JVM has no work
// with a reading.
type PerfData struct {
	file counters
	at   int64 // where they begin in it
	buf  []byte

	parse  func([]byte) (hsperf.Snapshot, error)
	locate func([]byte, map[string]bool) (hsperf.Part, error)
}

// counters are in a file, or in the JVM's memory.
type counters interface {
	io.ReaderAt
	io.Closer
	Name() string
}

func newPerfData(file counters, at, size int64) *PerfData {
	return &PerfData{file: file, at: at, buf: make([]byte, size), parse: hsperf.Parse, locate: hsperf.Locate}
}

// table names the counters in an error of the firewall.
const table = "their table"

// perfDataFile is where HotSpot keeps its counters (src/hotspot/os/posix/perfMemory_posix.cpp). The name is taken from
// the list of mappings, so that neither the user's name nor the pid in the target's namespaces has to be guessed.
var perfDataFile = regexp.MustCompile(`^/tmp/hsperfdata_[^/]*/[0-9]+$`)

// OpenPerfData opens the counters: HotSpot's file of them, or the JVM's own memory where HotSpot could not make the
// file or somebody removed it. Its error is a *Refusal, mostly because there are no counters.
func (vm *VM) OpenPerfData() (*PerfData, error) {
	if vm.Kind != HotSpot {
		return nil, vm.Attachable()
	}
	files, err := mappedFiles(vm.proc(""))
	if err != nil {
		return nil, vm.unreadable(err)
	}
	for _, name := range files {
		if perfDataFile.MatchString(name) {
			return vm.openPerfData(name)
		}
	}
	if v, ok := vm.Options.lookup("UsePerfData"); ok && v.Value == "false" {
		return nil, vm.refuse(Failed, "the JVM was started with -XX:-UsePerfData ("+v.Source+"), which turns its "+
			"counters off",
			"restart it without that option: the counters cost nothing that can be measured")
	}
	memory, at, size, ok, err := vm.perfMemory()
	switch {
	case err != nil:
		return nil, vm.noPerfFile(files, err)
	case !ok:
		return nil, vm.noPerfData()
	}
	return newPerfData(memory, at, size), nil
}

// noPerfData explains a JVM without any counters.
func (vm *VM) noPerfData() *Refusal {
	if age := vm.age(); age < startTimeOfJVM {
		reason := fmt.Sprintf("pid %d: the JVM is starting and has no counters yet, %.1f s after its start", vm.PID,
			age.Seconds())
		return &Refusal{Cause: Starting, Reason: reason, Remedy: "try again"}
	}
	return vm.refuse(Failed, fmt.Sprintf("the JVM keeps no counters %.0f s after its start: they are turned off where "+
		"that does not "+
		"show, or it hangs in its start", vm.age().Seconds()),
		"start it with -XX:+UsePerfData: the counters cost nothing that can be measured")
}

// noPerfFile explains a JVM whose counters are only in its own memory, which could not be read.
func (vm *VM) noPerfFile(files []string, err error) error {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r
	}
	why, remedy := vm.whyNoPerfFile(files)
	remedy += "; or run perfdoctor as root, which may read the counters in the JVM's memory"
	cause := Failed
	if errors.Is(err, fs.ErrPermission) {
		cause = Denied
	}
	r := vm.refuse(cause, fmt.Sprintf("%s, and its counters cannot be read from its memory: %v", why, err), remedy)
	r.Err = err
	return r
}

// whyNoPerfFile returns why there is no file of the counters, by the rules of perfMemory_posix.cpp, and what would
// change that.
func (vm *VM) whyNoPerfFile(files []string) (why, remedy string) {
	if v, ok := vm.Options.lookup("PerfDisableSharedMem"); ok && v.Value == "true" {
		return "the JVM was started with -XX:+PerfDisableSharedMem (" + v.Source + ")",
			"restart it without that option, with /tmp in " +
				"memory (tmpfs) if its writes to disk were the reason"
	}
	for _, name := range files {
		if perfDataFile.MatchString(strings.TrimSuffix(name, deletedMark)) {
			return "the JVM's file of counters was removed (" + name + ")",
				"keep what cleans /tmp away from hsperfdata_*, and restart the JVM"
		}
	}
	return fmt.Sprintf("the JVM made no file /tmp/hsperfdata_USER/PID: its user (uid %d) has no entry in the "+
			"/etc/passwd that it sees, "+
			"or /tmp could not be written", vm.UID),
		"give the user an entry in the container's /etc/passwd, and a writable /tmp; then restart the JVM"
}

// startTimeOfJVM is how long a JVM may take to create its counters: it creates them early, but with a tenth of a CPU
// that takes long.
const startTimeOfJVM = 3 * time.Second

func (vm *VM) openPerfData(name string) (*PerfData, error) {
	file, info, err := vm.openInTarget(name, true)
	if err != nil {
		return nil, vm.unreadable(err)
	}
	if !info.Mode().IsRegular() || info.Size() > hsperf.MaxSize {
		return nil, errors.Join(fmt.Errorf("%s in the target, of %d bytes, is not HotSpot's", name, info.Size()),
			file.Close())
	}
	return newPerfData(file, 0, info.Size()), nil
}

// Read reads the counters as they are now.
func (p *PerfData) Read() (hsperf.Snapshot, error) {
	n, err := p.file.ReadAt(p.buf, p.at)
	if err != nil && !errors.Is(err, io.EOF) {
		return hsperf.Snapshot{}, fmt.Errorf("the JVM's counters: %w", err)
	}
	s, err := firewall.Parse(table, func() (hsperf.Snapshot, error) { return p.parse(p.buf[:n]) })
	if err != nil {
		return s, p.explain(err)
	}
	return s, nil
}

// Part returns a function that reads only these counters as they are now, in 2 us instead of 30. It may run
// concurrently with [PerfData.Read]. Counters that the JVM lacks are left out; if it lacks all of them, that is an
// error.
func (p *PerfData) Part(names map[string]bool) (read func() (hsperf.Snapshot, error), err error) {
	buf := make([]byte, len(p.buf))
	n, err := p.file.ReadAt(buf, p.at)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the JVM's counters: %w", err)
	}
	part, err := firewall.Parse(table, func() (hsperf.Part, error) { return p.locate(buf[:n], names) })
	if err == nil && part.Size == 0 {
		err = errors.New("it has none of those that are asked for")
	}
	if err != nil {
		return nil, p.explain(err)
	}
	buf = buf[:part.Size]
	return func() (hsperf.Snapshot, error) {
		if _, err := p.file.ReadAt(buf, p.at+int64(part.At)); err != nil {
			return hsperf.Snapshot{}, fmt.Errorf("the JVM's counters: %w", err)
		}
		return part.Parse(buf)
	}, nil
}

func (p *PerfData) explain(err error) error {
	return fmt.Errorf("the JVM's counters in %s: %w", p.file.Name(), err)
}

// Close ends the reading.
func (p *PerfData) Close() error { return p.file.Close() }
