package exporter

import (
	"os"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host"
)

// PodNames finds the names of pods on the node itself, without a right in the cluster.
type PodNames struct {
	// Logs is where the kubelet keeps a link for each container, named POD_NAMESPACE_CONTAINER-ID.log: /var/log/containers. "" or without
	// such links, a container has the name of its control group.
	Logs string
}

// nameOf gives "pod NAMESPACE/POD/CONTAINER", or "cgroup PATH" as in the subject of a finding.
func (p PodNames) nameOf(t host.Target) string {
	if id := host.ContainerOf(t.Name); id != "" && p.Logs != "" {
		if name := p.ofContainer(id); name != "" {
			return name
		}
	}
	return "cgroup " + t.Name
}

func (p PodNames) ofContainer(id string) string {
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

// podName reads "POD_NAMESPACE_CONTAINER". None of the three has an underscore: they are DNS labels and names.
func podName(link string) string {
	parts := strings.Split(link, "_")
	if len(parts) != 3 {
		return ""
	}
	return "pod " + parts[1] + "/" + parts[0] + "/" + parts[2]
}
