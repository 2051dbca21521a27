package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// perfdoctor looks up Docker's names in Docker's own files, not over its socket. It finds the file from the
// container's process, whichever engine that belongs to (rootless, another data-root, one of several), and only needs
// to read.

// containerNamed returns the id of the Docker container of that name, "" when there is none. note then says how many
// names are not known, and why the first one is not.
func (h *Host) containerNamed(ctx context.Context, name string) (id, note string, err error) {
	byID, err := h.dockerContainers(ctx)
	if err != nil {
		return "", "", err
	}
	var found []string
	var unknown []error
	for id, pid := range byID {
		got, err := h.dockerName(id, pid)
		if err != nil {
			unknown = append(unknown, err)
		}
		if got == strings.TrimPrefix(name, "/") {
			found = append(found, id)
		}
	}
	if len(found) > 1 { // engines do not know of each other
		slices.Sort(found)
		return "", "", kindErrorf(ErrAmbiguous, "%d containers of several engines are named %s: %s", len(found), name,
			strings.Join(found, ", "))
	}
	if len(unknown) > 0 {
		slices.SortFunc(unknown, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		note = fmt.Sprintf("; the names of %d of %d containers are not known: %v", len(unknown), len(byID), unknown[0])
	}
	if len(found) == 0 {
		return "", note, nil
	}
	return found[0], "", nil
}

// dockerContainers returns Docker's containers with one process of each.
func (h *Host) dockerContainers(ctx context.Context) (map[string]int, error) {
	pids, err := h.allPIDs()
	if err != nil {
		return nil, err
	}
	byID := map[string]int{}
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		lines, err := h.readCgroup(pid)
		if err != nil {
			continue // ended, or hidden from this user
		}
		if c := innermost(lines); c.runtime == Docker && byID[c.id] == 0 {
			byID[c.id] = pid
		}
	}
	return byID, nil
}

// dockerName reads <data-root>/containers/<id>/config.v2.json. Docker mounts hostname, hosts and resolv.conf from
// that directory, or from that of the container whose network this one shares (container/container.go and
// daemon/container_operations.go of moby).
func (h *Host) dockerName(id string, pid int) (string, error) {
	mounts, err := h.mountsOf(fmt.Sprint(pid))
	if errors.Is(err, fs.ErrPermission) {
		return "", errors.New("perfdoctor needs to be root to read them, or an id instead of a name")
	}
	if err != nil {
		return "", err
	}
	for _, m := range mounts {
		if by, runtime := mountedBy(m.root); by == "" || runtime != Docker {
			continue
		}
		config := path.Join(path.Dir(path.Dir(m.root)), id, "config.v2.json")
		// Process 1 has the host's files even for a perfdoctor in a container that sees the host's pids, but not
		// every root may look at it.
		name, err := h.nameSeenBy("self", m.device, config)
		if err != nil {
			if again, other := h.nameSeenBy("1", m.device, config); other == nil {
				return again, nil
			}
		}
		return name, err
	}
	return "", fmt.Errorf("pid %d has no mount that leads to Docker's files", pid)
}

// nameSeenBy reads the config by its path within the file system of a device, where that is mounted for the process.
func (h *Host) nameSeenBy(process, device, config string) (string, error) {
	mounts, err := h.mountsOf(process)
	if err != nil {
		return "", err
	}
	for _, at := range mounts {
		if rest, ok := below(at.root, config); ok && at.device == device {
			return readDockerName(path.Join(h.Proc, process), path.Join(at.point, rest))
		}
	}
	return "", fmt.Errorf("the file system with Docker's %s is not mounted here", config)
}

// maxDockerConfig is far above any config.v2.json, which holds a container's settings with its environment.
const maxDockerConfig = 4 << 20

// readDockerName reads a config as the process whose directory in /proc is dir sees it. The path follows from a
// mount, and a process can mount in its own namespace what only looks like Docker's. So the path must lead nowhere
// else, and no error tells what was read.
func readDockerName(dir, config string) (string, error) {
	root, err := door.Enter(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	f, err := root.OpenUnlinked(config)
	if err != nil {
		return "", fmt.Errorf("%s: %w", config, errors.Unwrap(err)) // it is in no target
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxDockerConfig+1))
	if err != nil {
		return "", err
	}
	if len(text) > maxDockerConfig {
		return "", fmt.Errorf("%s: more than %d bytes are too many for what Docker writes there", config,
			maxDockerConfig)
	}
	name := parseDockerName(text)
	if name == "" {
		return "", fmt.Errorf("%s has no Name as Docker writes it", config)
	}
	return name, nil
}

// parseDockerName reads the field Name, "/web"; "" where there is none.
func parseDockerName(config []byte) string {
	var c struct{ Name string }
	if json.Unmarshal(config, &c) != nil {
		return ""
	}
	return strings.TrimPrefix(c.Name, "/")
}

// maxMounts bounds a list of mounts, which a process can extend: 10,000 mounts of 400 bytes are more than a busy
// Kubernetes node has.
const maxMounts = 4 << 20

func (h *Host) mountsOf(pid string) ([]mount, error) {
	b, _, err := door.Read(path.Join(h.Proc, pid, "mountinfo"), maxMounts)
	if err != nil {
		return nil, err
	}
	return parseMountInfo(bytes.NewReader(b))
}
