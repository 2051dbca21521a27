package host

import (
	"strings"
)

// Container runtimes as Target.ContainerRuntime names them.
const (
	Docker     = "docker"
	Containerd = "containerd"
	CRIO       = "cri-o"
	Podman     = "podman"
)

// containerIDLen is the length of the hexadecimal SHA-256-sized ids that all four runtimes use.
const containerIDLen = 64

// container holds what a cgroup path says about the container of a process.
type container struct {
	id      string
	runtime string
	podUID  string // Kubernetes only
	path    string // the path up to the container's own group, without groups it made below
}

// containersIn lists the containers of a cgroup path, outermost first: containers nest (Docker in Docker, kind).
func containersIn(p string) []container {
	var out []container
	pod := ""
	for i := 0; i < len(p); {
		end := strings.IndexByte(p[i+1:], '/')
		if end < 0 {
			end = len(p)
		} else {
			end += i + 1
		}
		component := p[i+1 : end]
		slice, _, _ := strings.Cut(component, ":")
		if uid := podUID(slice); uid != "" {
			pod = uid
		}
		if id, runtime := containerID(component, p[:i]); id != "" {
			out = append(out, container{id: id, runtime: runtime, podUID: pod, path: p[:end]})
		}
		i = end
	}
	return out
}

// containerID reads one component of a cgroup path; above is the path before it.
func containerID(component, above string) (id, runtime string) {
	name := strings.TrimSuffix(component, ".scope")
	// runc with the cgroupfs driver and a path meant for systemd: "system.slice:docker:ID".
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		prefix := name[:i]
		name = prefix[strings.LastIndexByte(prefix, ':')+1:] + "-" + name[i+1:]
	}
	if len(name) < containerIDLen {
		return "", ""
	}
	id = name[len(name)-containerIDLen:]
	if !isHex(id) {
		return "", ""
	}
	switch prefix := name[:len(name)-containerIDLen]; prefix {
	case "":
		return id, bareRuntime(above)
	case "docker-":
		return id, Docker
	case "cri-containerd-", "nerdctl-":
		return id, Containerd
	case "crio-":
		return id, CRIO
	case "libpod-":
		return id, Podman
	}
	// libpod-conmon- and crio-conmon- hold the monitor of a container, which is not part of it.
	return "", ""
}

// bareRuntime names the runtime of a group whose name is only the id. In a pod that is containerd, or Docker before
// Kubernetes 1.24; CRI-O and Podman always write a prefix.
func bareRuntime(above string) string {
	if strings.Contains(above, "kubepods") {
		return Containerd
	}
	return Docker
}

// podUID reads "podUID" (cgroupfs) and "kubepods-burstable-podUID.slice" (systemd, dashes as underscores).
func podUID(component string) string {
	name, isSlice := strings.CutSuffix(component, ".slice")
	if isSlice {
		if !strings.HasPrefix(name, "kubepods") {
			return ""
		}
		name = name[strings.LastIndexByte(name, '-')+1:]
		name = strings.ReplaceAll(name, "_", "-")
	}
	uid, ok := strings.CutPrefix(name, "pod")
	// 36: a UUID; 32: the hash that names a static pod.
	if !ok || (len(uid) != 36 && len(uid) != 32) || !isHex(strings.ReplaceAll(uid, "-", "")) {
		return ""
	}
	return uid
}

func isHex(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return s != ""
}

// containersOf lists the containers of a process, outermost first, from whichever tree names most of them.
func containersOf(lines []cgroupLine) []container {
	var best []container
	for _, line := range lines {
		if found := containersIn(line.path); len(found) > len(best) {
			best = found
		}
	}
	return best
}

// innermost returns the container a process runs in, zero when it runs in none.
func innermost(lines []cgroupLine) container {
	all := containersOf(lines)
	if len(all) == 0 {
		return container{}
	}
	return all[len(all)-1]
}

// minContainerPrefix keeps a mistyped id from matching by chance.
const minContainerPrefix = 4

// normalContainerID accepts what users paste: upper case, and the scheme kubectl prints ("containerd://ID"). It
// returns "" for what can only be a name.
func normalContainerID(s string) string {
	id := s
	if i := strings.Index(id, "://"); i >= 0 {
		id = id[i+3:]
	}
	id = strings.ToLower(strings.TrimSpace(id))
	if len(id) < minContainerPrefix || len(id) > containerIDLen || !isHex(id) {
		return ""
	}
	return id
}

// ContainerOf returns the id of the container whose own control group has this path, "" if it is no container's.
func ContainerOf(path string) string {
	all := containersIn(path)
	if n := len(all); n > 0 && all[n-1].path == path {
		return all[n-1].id
	}
	return ""
}
