package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/jvm"
	"github.com/perfdoctor/perfdoctor/internal/jvm/perfmap"
)

// perfmapLimit bounds the whole command. The JVM takes a second for a map of 100,000 methods.
const perfmapLimit = 30 * time.Second

type perfmapRun struct {
	*app
	pid     int
	output  string
	inlined bool
}

func (a *app) perfmapCommand() *cobra.Command {
	r := &perfmapRun{app: a}
	cmd := &cobra.Command{
		Use:   "perfmap --pid N",
		Short: "Write a JVM's compiled methods to a map, for perf to name them",
		Long: `Asks a HotSpot JVM (JDK 11 or later) where its compiled code lies at this moment,
and writes it where perf looks for it: /tmp/perf-<pid>.map. The JVM may run as
another user and in a container.

It uses the JVM's own command Compiler.perfmap (JDK 17 and later), else a small
agent of perfdoctor's, which stays loaded (5 kB). --inlined uses the agent,
which also names inlined methods: outer->inner.

perf follows Java stacks only in a JVM started with -XX:+PreserveFramePointer.`,
		Example: `  perf record -F 99 -g -p 4021 -- sleep 10
  perfdoctor perfmap --pid 4021      # while the JVM runs
  perf report`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if r.pid <= 0 {
				return command.UsageErrorf("give the JVM's process id: --pid N")
			}
			if cmd.Flags().Changed("output") && r.output == "" {
				return command.UsageErrorf("--output is empty: give a file, or - for the standard output")
			}
			return r.run(cmd.Context())
		},
	}
	cmd.Flags().IntVar(&r.pid, "pid", 0, "ask the JVM with process id `N`")
	cmd.Flags().StringVarP(&r.output, "output", "o", "", "write to `FILE`, or - for the standard output (default "+
		"/tmp/perf-<pid>.map)")
	cmd.Flags().BoolVar(&r.inlined, "inlined", false, "name inlined methods, by an agent that is loaded into the JVM")
	return cmd
}

func (r *perfmapRun) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, perfmapLimit)
	defer cancel()
	vm, err := jvm.Inspect(r.pid)
	if err != nil {
		return err
	}
	if r.output == "" {
		r.output = "/tmp/perf-" + strconv.Itoa(vm.PID) + ".map"
		// The JVM's own command may write to that same name, and does not if a file already exists.
		if err := os.Remove(r.output); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("replace the map of an earlier run: %w", err)
		}
	}
	m, err := vm.PerfMap(ctx, r.inlined)
	if err != nil {
		return err
	}
	if r.output == "-" {
		_, err := m.WriteTo(r.Streams.Out)
		return command.OutputError(err)
	}
	if err := writeMap(r.output, m); err != nil {
		return fmt.Errorf("write the map: %w", err)
	}
	r.Streams.Say("perfdoctor: %s: %d ranges of compiled code\n", r.output, len(m.Entries))
	if vm.Options.Flags["PreserveFramePointer"].Value != "true" {
		r.Streams.Say("perfdoctor: note: the JVM was not started with -XX:+PreserveFramePointer: most Java stacks " +
			"of perf " +
			"will be one frame deep\n")
	}
	return nil
}

// writeMap puts the map in place whole or not at all. It replaces what is at that path and does not follow a link: in
// /tmp anybody can have put one there.
func writeMap(path string, m *perfmap.Map) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".perfdoctor-map-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := errors.Join(fill(f, m), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func fill(f *os.File, m io.WriterTo) error {
	// Any user's perf may read it, as it may read a map that the JVM writes.
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	_, err := m.WriteTo(f)
	return err
}
