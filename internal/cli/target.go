package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// addTargetFlags adds the ways to name a target.
func addTargetFlags(cmd *cobra.Command, s *host.Selector) {
	f := cmd.Flags()
	f.IntVar(&s.PID, "pid", 0, "diagnose this process and its children")
	f.StringVar(&s.Comm, "comm", "", "diagnose the process of this name and its children")
	f.StringVar(&s.CgroupPath, "cgroup", "", "diagnose the processes of this control group")
	f.StringVar(&s.ContainerID, "container", "", "diagnose the container with this id or unique prefix (docker, containerd, podman, CRI-O)")
}

// checkTargetFlags finds values that were given and mean nothing, such as --pid 0.
func checkTargetFlags(cmd *cobra.Command, s host.Selector) error {
	f := cmd.Flags()
	if f.Changed("pid") && s.PID <= 0 {
		return usageErrorf("--pid %d is not a process id: give a positive number", s.PID)
	}
	for name, v := range map[string]string{"comm": s.Comm, "cgroup": s.CgroupPath, "container": s.ContainerID} {
		if f.Changed(name) && strings.TrimSpace(v) == "" {
			return usageErrorf("--%s is empty", name)
		}
	}
	return nil
}

// resolve finds the target and describes it for the recording, without secrets.
func resolve(ctx context.Context, h *host.Host, s host.Selector) (host.Target, recording.Target, error) {
	t, err := h.Resolve(ctx, s)
	if err != nil {
		return t, recording.Target{}, err
	}
	return t, describeTarget(t), nil
}

func describeTarget(t host.Target) recording.Target {
	out := recording.Target{
		Kind: string(t.Kind), Name: t.Name, Cmdline: recording.Redact(t.Cmdline), Runtime: string(t.Runtime), User: t.User,
		Container: t.ContainerID, OwnNetNS: len(t.PIDs) > 0 && !t.Namespaces.Net.Same,
	}
	if len(t.PIDs) > 0 && t.Kind == host.KindProcess {
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

// endedReason says that the target is gone, or "".
func endedReason(h *host.Host, t host.Target) string {
	if h.Alive(t) {
		return ""
	}
	if t.Kind == host.KindProcess {
		return fmt.Sprintf("process %d (%s) ended", t.PIDs[0], t.Comm)
	}
	return fmt.Sprintf("%s %s ended", t.Kind, t.Name)
}
