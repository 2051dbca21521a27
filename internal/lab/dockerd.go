package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// modeEngine is process 1 of an engine's namespaces.
const modeEngine Mode = "engine"

// engineOptions are the options of a child in modeEngine.
type engineOptions struct {
	Dir          string // data, socket and log
	CgroupParent string // "/pd-<name>-<pid>/docker-<host>"
}

// The names in an engine's directory.
const (
	socketName    = "docker.sock"
	dockerdLog    = "dockerd.log"
	dockerdConfig = "daemon.json"
)

// engineEnv returns the environment of dockerd and of its client, without the user's proxy, context and home.
func engineEnv(dir string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
}

// newEngine starts dockerd, which answers when the call returns. This process is the first one in its pid namespace,
// so all others end with it. Otherwise containerd's shims would survive, because they detach from their parent.
func newEngine(o *engineOptions, rec *recorder) (func(context.Context), error) {
	if o == nil {
		return nil, errors.New("engine: the child has no options")
	}
	if err := veilMachine(o.Dir); err != nil {
		return nil, err
	}
	ended, err := startDockerd(o)
	if err != nil {
		return nil, err
	}
	if err := awaitDockerd(o.Dir, ended); err != nil {
		return nil, err
	}
	rec.ready("")
	return func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case err := <-ended:
			rec.fail(fmt.Errorf("dockerd ended: %w", err))
		}
	}, nil
}

// veilMachine hides from the engine's mount namespace what dockerd would change on the machine. Although it is given
// its own directories, dockerd writes /etc/docker/key.json and /opt/containerd, keeps sockets and locks in /run, asks
// a firewalld that it finds there to open ports, and loads an AppArmor profile (seen with docker.io 20.10).
func veilMachine(dir string) error {
	for _, hidden := range []string{"/run", "/etc", "/opt"} {
		if dir == hidden || strings.HasPrefix(dir, hidden+"/") {
			return fmt.Errorf("the directory %s of the engine cannot be in %s: set TMPDIR to another one", dir, hidden)
		}
	}
	const noExec = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"proc", "/proc", "proc", noExec}, // for the new pid namespace
		// Only net.* keys are per namespace. The engine sets these, and must not set others.
		{"/proc/sys", "/proc/sys", "", unix.MS_BIND | unix.MS_REC},
		{"/proc/sys/net", "/proc/sys/net", "", unix.MS_BIND},
		{"", "/proc/sys", "", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | noExec},
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV},
	} {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	const securityFS = "/sys/kernel/security"
	if err := unix.Mount("tmpfs", securityFS, "tmpfs", noExec, ""); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("mount %s: %w", securityFS, err)
	}
	return errors.Join(writeAside("/etc"), writeAside("/opt"))
}

// writeAside redirects writes to the directory to the tmpfs on /run.
func writeAside(dir string) error {
	upper, work := "/run/aside"+dir, "/run/aside-work"+dir
	for _, made := range []string{upper, work} {
		if err := os.MkdirAll(made, 0o750); err != nil {
			return err
		}
	}
	err := unix.Mount("overlay", dir, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", dir, upper, work))
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("mount an overlay on %s: %w", dir, err)
	}
	return nil
}

// startDockerd starts dockerd without the capability to load kernel modules. Containers need the same modules as the
// lab's own hosts. dockerd would also load br_netfilter, which changes how the machine's bridges treat packets.
func startDockerd(o *engineOptions) (ended <-chan error, err error) {
	in := func(name string) string { return filepath.Join(o.Dir, name) }
	// Its own configuration file keeps it from reading /etc/docker/daemon.json.
	if err := os.WriteFile(in(dockerdConfig), []byte("{}\n"), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(in(dockerdLog))
	if err != nil {
		return nil, err
	}
	// dockerd has its own descriptor
	defer func() { _ = log.Close() }()
	cmd := exec.Command("dockerd", "--config-file", in(dockerdConfig), "--log-level", "warn", //nolint:noctx // ends with the namespace
		"--host", "unix://"+in(socketName), "--data-root", in("data"), "--exec-root", "/run/docker", "--pidfile",
		"/run/docker.pid",
		"--cgroup-parent", o.CgroupParent, "--exec-opt", "native.cgroupdriver=cgroupfs") // a lab does not use systemd
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = o.Dir, engineEnv(o.Dir), log, log
	runtime.LockOSThread() // the bounding set belongs to the thread, and its children inherit it
	if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_MODULE, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("give up CAP_SYS_MODULE: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	end := make(chan error, 1)
	go func() { end <- cmd.Wait() }()
	return end, nil
}

// dockerdWait is how long dockerd may take to answer. It takes 0.3 s on an idle machine. The parent waits a little
// longer (startWait).
const (
	dockerdWait = 15 * time.Second
	dockerdPoll = 20 * time.Millisecond
)

func awaitDockerd(dir string, ended <-chan error) error {
	socket := filepath.Join(dir, socketName)
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}
	for deadline := time.Now().Add(dockerdWait); ; time.Sleep(dockerdPoll) {
		err := ping(client)
		if err == nil {
			return nil
		}
		select {
		case how := <-ended:
			return fmt.Errorf("dockerd ended: %w: %s", how, logEnd(dir))
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("dockerd does not answer after %v: %w: %s", dockerdWait, err, logEnd(dir))
		}
	}
}

// ping sends GET /_ping, which Docker's API documents for this.
func ping(client *http.Client) error {
	answer, err := client.Get("http://docker/_ping") //nolint:noctx // the client has a timeout
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", answer.Status)
	}
	return nil
}

// logEnd returns the end of dockerd's log, for messages.
func logEnd(dir string) string {
	const enough = 600 // the last two lines
	text, err := os.ReadFile(filepath.Join(dir, dockerdLog))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text[max(0, len(text)-enough):]))
}
