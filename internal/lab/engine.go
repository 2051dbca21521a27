package lab

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Engine is a Docker engine in a host: a dockerd with its own containerd, in the host's network and in its own pid
// and mount namespaces. Whatever it starts, mounts and configures there ends with its first process, even if this
// process is killed. Only its directory and cgroups stay. They are named like those of the lab.
type Engine struct {
	host  *Host
	dir   string // has its data, its socket, and the ids of its containers
	group string // its cgroup-parent, below the lab's own group: "docker-" and the host, a name that no Cgroup can have
}

// Container says how a child runs in a container.
type Container struct {
	Name        string   // as `docker ps` shows it; unique in the engine
	CPUs        float64  // --cpus: CPU seconds a second; 0: no quota
	Memory      int64    // --memory in bytes; 0: no limit
	HostNetwork bool     // --network host: the network of the engine's host instead of its bridge, docker0
	Publish     []uint16 // --publish N:N: the host's ports that lead to the container's
}

// StartDocker starts an engine in the host, with its data in dir, which must not exist yet. Its image is this
// program, which must be linked statically. Nothing is downloaded. It needs dockerd and docker in PATH.
func (h *Host) StartDocker(dir string) (*Engine, error) {
	e := &Engine{host: h, dir: dir, group: "docker-" + h.name}
	if err := e.start(); err != nil {
		return nil, fmt.Errorf("host %s: docker: %w", h.name, err)
	}
	return e, nil
}

func (e *Engine) start() error {
	exe, err := staticProgram()
	if err != nil {
		return err
	}
	if err := os.Mkdir(e.dir, 0o700); err != nil {
		return err
	}
	// The run's own group must be removed after the engine's, which is in it.
	if _, err := e.host.lab.Cgroup(); err != nil {
		return err
	}
	if err := e.host.lab.onClose(e.removeGroups); err != nil {
		return err
	}
	o := ChildOptions{Mode: modeEngine, Engine: &engineOptions{Dir: e.dir, CgroupParent: "/" + filepath.Join(
		e.host.lab.run, e.group)}}
	cmd, err := childCommand(o)
	if err != nil {
		return err
	}
	cmd.Dir = e.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	if _, err := e.host.startChild(nil, cmd, o); err != nil {
		return err
	}
	return e.importProgram(exe)
}

// staticProgram returns the path of this program. It returns an error if the program needs libraries, because an
// image with the program alone lacks them.
func staticProgram() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	file, err := elf.Open(exe)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP {
			return "", fmt.Errorf("%s needs shared libraries and cannot be a container's only file: build it with "+
				"CGO_ENABLED=0", exe)
		}
	}
	return exe, nil
}

// imageName is the engine's only image, programPath the only file in it.
const (
	imageName   = "perfdoctor-lab"
	programPath = "/perfdoctor"
)

// importProgram makes the image. It pipes a tar archive to `docker import`.
func (e *Engine) importProgram(exe string) error {
	in, out := io.Pipe()
	var said bytes.Buffer
	cmd := e.docker("import", "--change", fmt.Sprintf("ENTRYPOINT [%q]", programPath), "-", imageName)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &said, &said
	go func() { _ = out.CloseWithError(writeTar(out, exe)) }()
	if err := cmd.Run(); err != nil {
		return errors.Join(fmt.Errorf("import the image: %w: %s", err, bytes.TrimSpace(said.Bytes())), in.Close())
	}
	return in.Close()
}

func writeTar(w io.Writer, exe string) error {
	file, err := os.Open(exe)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	st, err := file.Stat()
	if err != nil {
		return err
	}
	archive := tar.NewWriter(w)
	if err := archive.WriteHeader(&tar.Header{
		Name: strings.TrimPrefix(programPath, "/"), Mode: 0o755,
		Size: st.Size(),
	}); err != nil {
		return err
	}
	if _, err := io.Copy(archive, file); err != nil {
		return err
	}
	return archive.Close()
}

// Socket returns the engine's socket, for docker -H unix://PATH.
func (e *Engine) Socket() string { return filepath.Join(e.dir, socketName) }

// docker returns the command-line client without the user's settings, which may point to another engine.
func (e *Engine) docker(args ...string) *exec.Cmd {
	cmd := exec.Command("docker", append([]string{"--host", "unix://" + e.Socket()}, args...)...) //nolint:noctx // ends with the engine
	cmd.Dir, cmd.Env = e.dir, engineEnv(e.dir)
	return cmd
}

// StartChild is [Host.StartChild] in a container. [Process.Pid] is the pid of the engine's client, which passes on
// the child's output. [Child.LoadPid] returns the pid of the child.
func (e *Engine) StartChild(c Container, o ChildOptions) (*Child, error) {
	options, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("options of lab child: %w", err)
	}
	id := filepath.Join(e.dir, c.Name+".id")
	args := append([]string{"run", "--rm", "--interactive", "--log-driver", "none", "--cidfile", id, "--env", childEnv},
		c.flags()...)
	cmd := e.docker(append(args, imageName, string(o.Mode), o.Addr)...)
	cmd.Env = append(cmd.Env, childEnv+"="+string(options))
	child, err := e.host.startChild(nil, cmd, o)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", c.Name, err)
	}
	if child.loadPid, err = e.pidOf(id); err != nil {
		return nil, fmt.Errorf("container %s: %w", c.Name, err)
	}
	return child, nil
}

func (c *Container) flags() []string {
	flags := []string{"--name", c.Name}
	if c.CPUs > 0 {
		flags = append(flags, "--cpus", strconv.FormatFloat(c.CPUs, 'f', -1, 64))
	}
	if c.Memory > 0 {
		flags = append(flags, "--memory", strconv.FormatInt(c.Memory, 10))
	}
	if c.HostNetwork {
		flags = append(flags, "--network", "host")
	}
	for _, port := range c.Publish {
		flags = append(flags, "--publish", fmt.Sprintf("%d:%d", port, port))
	}
	return flags
}

// pidOf returns the pid of the only process in the container whose id is in the file. The engine knows the process by
// its pid in the engine's pid namespace. A control group lists it by the pid in the reader's namespace
// (cgroup_procs_show in kernel/cgroup/cgroup.c).
func (e *Engine) pidOf(idFile string) (int, error) {
	id, err := os.ReadFile(idFile)
	if err != nil {
		return 0, err
	}
	h, err := findHierarchy("cpu")
	if err != nil {
		return 0, err
	}
	dir := filepath.Join(h.root, e.host.lab.run, e.group, strings.TrimSpace(string(id)))
	pids, err := readPids(dir)
	if err != nil {
		return 0, err
	}
	if len(pids) != 1 {
		return 0, fmt.Errorf("%s holds the processes %v, want one", dir, pids)
	}
	return pids[0], nil
}

// removeGroups removes the control groups of the ended engine from every hierarchy: runc makes them in all.
func (e *Engine) removeGroups() error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	var errs []error
	for _, root := range roots {
		run := filepath.Join(root, e.host.lab.run)
		errs = append(errs, removeTreeSoon(filepath.Join(run, e.group)))
		_ = unix.Rmdir(run) // not empty if the lab has its own groups, which it removes itself
	}
	return errors.Join(errs...)
}

// removeTreeSoon removes a tree of groups. It waits a moment for killed processes to leave them.
func removeTreeSoon(dir string) error {
	for deadline := time.Now().Add(removeWait); ; time.Sleep(removePoll) {
		removeTree(dir)
		_, err := os.Stat(dir)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove cgroup %s: still in use %v after its processes were ended", dir, removeWait)
		}
	}
}

// cgroupRoots returns the mount points of all control group hierarchies.
func cgroupRoots() ([]string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("read /proc/self/mounts: %w", err)
	}
	var roots []string
	for line := range bytes.Lines(mounts) { // "device path type options 0 0"
		field := strings.Fields(string(line))
		if len(field) > 2 && (field[2] == "cgroup" || field[2] == "cgroup2") && !slices.Contains(roots, field[1]) {
			roots = append(roots, field[1])
		}
	}
	return roots, nil
}
