package exporter

import (
	"context"
	"log/slog"
	"os"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host"
)

// PodNames finds the names of pods on the node itself, without any right in the cluster.
type PodNames struct {
	// Logs is where the kubelet keeps a link for each container, named POD_NAMESPACE_CONTAINER-ID.log:
	// /var/log/containers. If it is "" or has no such links, a container has the name of its control group.
	Logs string
	// Runtime is asked first, unless it is nil.
	Runtime *Runtime
}

// nameOf returns "pod NAMESPACE/POD/CONTAINER", or "cgroup PATH" as in the subject of a finding.
func (p PodNames) nameOf(ctx context.Context, log *slog.Logger, t host.Target) string {
	if id := host.ContainerOf(t.Name); id != "" {
		if name := p.ofContainer(ctx, log, id); name != "" {
			return name
		}
	}
	return "cgroup " + t.Name
}

func (p PodNames) ofContainer(ctx context.Context, log *slog.Logger, id string) string {
	if p.Runtime != nil {
		name, err := p.Runtime.nameOf(ctx, id)
		if err != nil {
			log.Warn("the name of a pod is not known from the container runtime", "reason", err)
		}
		if name != "" {
			return name
		}
	}
	return p.ofLinks(id)
}

func (p PodNames) ofLinks(id string) string {
	if p.Logs == "" {
		return ""
	}
	entries, err := os.ReadDir(p.Logs)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if rest, ok := strings.CutSuffix(e.Name(), "-"+id+".log"); ok {
			return podName(rest)
		}
	}
	return ""
}

// podName reads "POD_NAMESPACE_CONTAINER". No part has an underscore: they are DNS labels and names.
func podName(link string) string {
	parts := strings.Split(link, "_")
	if len(parts) != 3 {
		return ""
	}
	return "pod " + parts[1] + "/" + parts[0] + "/" + parts[2]
}
