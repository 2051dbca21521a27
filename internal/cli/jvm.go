package cli

import (
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/collectors/asprof"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// Bounds of the interval between CPU samples. At 1 ms a busy JVM loses 5 % of its throughput; at a second a window of
// ten seconds has ten samples per CPU.
const (
	minProfileInterval = time.Millisecond
	maxProfileInterval = time.Second
)

// jvmFlags are the flags about the profiles of a JVM.
type jvmFlags struct {
	events   []string
	interval time.Duration
	library  string
	off      bool
	probe    bool // no flag: a preflight loads nothing into a JVM
}

func (j *jvmFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&j.events, "jvm-events", jvmEvents(), "profile these of a JVM: comma-separated `EVENTS`")
	timeVar(f, &j.interval, "jvm-interval", asprof.DefaultInterval,
		"CPU `time` between two samples of a JVM's thread; the wall clock is sampled a twentieth as often")
	f.BoolVar(&j.off, "no-jvm", false, "leave a JVM and .NET alone: attach nothing, ask nothing")
	j.addLibrary(cmd)
	command.CompleteFlag(cmd, "jvm-events", jvmEvents()...)
}

// addLibrary adds the flag that preflight shares.
func (j *jvmFlags) addLibrary(cmd *cobra.Command) {
	cmd.Flags().StringVar(&j.library, "async-profiler", "",
		"load the libasyncProfiler.so at `PATH` into a JVM, not the one in this program")
}

func jvmEvents() []string {
	var names []string
	for _, e := range asprof.Events() {
		names = append(names, string(e))
	}
	return names
}

func (j *jvmFlags) validate(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	for _, e := range j.events {
		if !slices.Contains(jvmEvents(), e) {
			return command.UsageErrorf("--jvm-events: unknown event %q: use %s", e, wordList(jvmEvents()))
		}
	}
	switch {
	case len(j.events) == 0:
		return command.UsageErrorf("--jvm-events is empty: give some of %s, or --no-jvm", wordList(jvmEvents()))
	case j.interval < minProfileInterval || j.interval > maxProfileInterval:
		return command.UsageErrorf("--jvm-interval %v: give a time between %v and %v", j.interval, minProfileInterval,
			maxProfileInterval)
	case given("async-profiler") && j.library == "":
		return command.UsageErrorf("--async-profiler is empty: give the path of a libasyncProfiler.so")
	case j.library != "" && !isFile(j.library):
		return command.UsageErrorf("--async-profiler %s: no such file: give the path of a libasyncProfiler.so",
			j.library)
	case j.off && (given("jvm-events") || given("jvm-interval") || given("async-profiler")):
		return command.UsageErrorf("--no-jvm takes no profile: it goes with no other flag about one")
	}
	return nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// wordList joins words for a sentence.
func wordList(words []string) string {
	list := words[0]
	for i, w := range words[1:] {
		sep := ", "
		if i == len(words)-2 {
			sep = " and "
		}
		list += sep + w
	}
	return list
}

func (j *jvmFlags) options() asprof.Options {
	o := asprof.Options{Off: j.off, Probe: j.probe, Interval: j.interval, Library: j.library}
	for _, e := range j.events {
		if !slices.Contains(o.Events, stacks.Event(e)) {
			o.Events = append(o.Events, stacks.Event(e))
		}
	}
	return o
}
