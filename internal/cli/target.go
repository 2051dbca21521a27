package cli

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/input/spelling"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// addTargetFlags adds the ways to name a target.
func addTargetFlags(cmd *cobra.Command, s *host.Selector) {
	f := cmd.Flags()
	f.IntVarP(&s.PID, "pid", "p", 0, "diagnose process `N` and its children")
	f.StringVar(&s.Comm, "comm", "", "diagnose the process named `NAME` and its children")
	f.StringVar(&s.CgroupPath, "cgroup", "", "diagnose the processes of the control group at `PATH`")
	f.StringVar(&s.ContainerID, "container", "",
		"diagnose the container with this `ID`, or the beginning of it (docker, containerd, podman, CRI-O), or a name "+
			"of Docker's")
	completeRunning(cmd, "pid", processIDs)
	completeRunning(cmd, "comm", processNames)
	completeRunning(cmd, "cgroup", cgroups)
	completeRunning(cmd, "container", containers)
}

// checkTargetFlags rejects values that were given and mean nothing, such as --pid 0.
func checkTargetFlags(cmd *cobra.Command, s host.Selector) error {
	f := cmd.Flags()
	if f.Changed("pid") && s.PID <= 0 {
		return command.UsageErrorf("--pid %d is not a process id: give a positive number", s.PID)
	}
	for _, flag := range []struct{ name, value, want string }{
		{"comm", s.Comm, "the name of a command"},
		{"cgroup", s.CgroupPath, "the path of a control group"},
		{"container", s.ContainerID, "the id or name of a container"},
	} {
		if f.Changed(flag.name) && strings.TrimSpace(flag.value) == "" {
			return command.UsageErrorf("--%s is empty: give %s", flag.name, flag.want)
		}
	}
	return nil
}

// resolve finds the target and describes it for the recording, without secrets. It reports at once what could not be
// found out about the target.
func (d *diagnosis) resolve(ctx context.Context, h *host.Host, s host.Selector) (host.Target, recording.Target, error) {
	t, err := h.Resolve(ctx, s)
	switch {
	case err != nil && ctx.Err() != nil:
		return t, recording.Target{}, errInterrupted
	case errors.Is(err, host.ErrNoSuchCgroup):
		return t, recording.Target{}, nearCgroup(err, s.CgroupPath, cgroups())
	case errors.Is(err, host.ErrNoSuchProcess) && s.Comm != "":
		return t, recording.Target{}, nearProcess(err, s.Comm, processNames())
	case err != nil:
		return t, recording.Target{}, err
	}
	for _, n := range t.Notes {
		d.Streams.Say("perfdoctor: note: %s\n", printable(n))
	}
	return t, describeTarget(t), nil
}

// nearCgroup adds the control group that was meant, if one that has processes resembles the name or ends in it.
func nearCgroup(err error, name string, known []named) error {
	var paths []string
	for _, c := range known {
		paths = append(paths, c.choice)
		if path.Base(c.choice) == path.Base(name) {
			return fmt.Errorf("%w; did you mean --cgroup %s?", err, printable(c.choice))
		}
	}
	if near := spelling.Nearest(name, paths); near != "" {
		return fmt.Errorf("%w; did you mean --cgroup %s?", err, printable(near))
	}
	return err
}

// nearProcess adds the process that was meant, if the name of a running one resembles it.
func nearProcess(err error, name string, known []named) error {
	var names []string
	for _, p := range known {
		names = append(names, p.choice)
	}
	if near := spelling.Nearest(name, names); near != "" {
		return fmt.Errorf("%w; did you mean %s?", err, printable(near))
	}
	return err
}

// errInterrupted is an interruption before the first sample.
var errInterrupted = errors.New("interrupted before the diagnosis began")

// printable keeps a name of the host from acting on the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

func describeTarget(t host.Target) recording.Target {
	out := recording.Target{
		Kind: string(t.Kind), Name: t.Name, Cmdline: recording.Redact(t.Cmdline), Runtime: string(t.Runtime),
		User:      t.User,
		Container: t.ContainerID, OwnNetNS: len(t.PIDs) > 0 && !t.Namespaces.Net.Same,
	}
	switch t.Kind {
	case host.KindHost:
		out.Name = "" // the kind says it
	case host.KindProcess:
		out.PID, out.Name = t.PIDs[0], t.Comm
	}
	out.Cgroup = t.CgroupDir
	for _, l := range t.Cgroups {
		if out.Cgroup == "" && (l.Controller == "cpu" || l.Controller == "") {
			out.Cgroup = l.Path
		}
	}
	return out
}

// endedReason says that the target is gone. It is "" while the target lives.
func endedReason(h *host.Host, t host.Target) string {
	if h.Alive(t) {
		return ""
	}
	if t.Kind == host.KindProcess {
		return fmt.Sprintf("process %d (%s) ended", t.PIDs[0], t.Comm)
	}
	return fmt.Sprintf("%s %s ended", t.Kind, t.Name)
}
