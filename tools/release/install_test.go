package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// What `make check-packages` passes to the tests below. They take a minute and a network, too much for every run of all
// tests.
const (
	packagesVar = "PERFDOCTOR_PACKAGES" // the directory of a release
	debianVar   = "PERFDOCTOR_DEBIAN"   // the root that debootstrap made, which is not changed
)

func given(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv(name)
	if dir == "" {
		t.Skipf("%s is not set: make check-packages sets it", name)
	}
	return dir
}

// A guest is a Debian that systemd has booted in namespaces of its own.
type guest struct {
	t      *testing.T
	leader int // its process 1, as this host sees it
}

// boot starts systemd in dir, and waits until it has started everything.
func boot(t *testing.T, dir string) *guest {
	t.Helper()
	// The rights beyond a container's are those of the unit, and the machine may have no systemd of its own.
	cmd := exec.Command("systemd-nspawn", "--quiet", "--directory", dir, "--register=no", "--keep-unit",
		"--private-network", "--boot",
		"--console=read-only", "--machine=perfdoctor-package", "--capability=CAP_BPF,CAP_PERFMON,CAP_NET_ADMIN",
		"--system-call-filter=bpf perf_event_open")
	log, err := os.Create(filepath.Join(t.TempDir(), "console"))
	must(t, err)
	cmd.Stdout, cmd.Stderr = log, log
	must(t, cmd.Start())
	g := &guest{t: t}
	t.Cleanup(func() {
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		if g.leader == 0 {
			_ = cmd.Process.Kill() // it has not come to starting anything
		} else {
			_ = syscall.Kill(g.leader, syscall.Signal(34+4)) // SIGRTMIN+4: systemd(1) powers off
		}
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			// its death is that of the whole guest, and then of systemd-nspawn
			_ = syscall.Kill(g.leader, syscall.SIGKILL)
			<-ended
		}
		_ = log.Close()
		removeGroups(t)
	})
	eventually(t, "systemd has booted", func() error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", cmd.Process.Pid))
		if err != nil {
			return err
		}
		children := strings.Fields(string(text))
		if len(children) != 1 {
			said, _ := os.ReadFile(log.Name())
			return fmt.Errorf("systemd-nspawn has %d children: %s", len(children), said)
		}
		if g.leader, err = strconv.Atoi(children[0]); err != nil {
			return err
		}
		out, err := g.try("systemctl", "is-system-running")
		if strings.TrimSpace(out) != "running" {
			return fmt.Errorf("%s, %w", strings.TrimSpace(out), err)
		}
		return nil
	})
	return g
}

// removeGroups removes the control groups that systemd-nspawn made beside the test's own. It leaves them if no systemd
// looks after them.
func removeGroups(t *testing.T) {
	text, err := os.ReadFile("/proc/self/cgroup")
	must(t, err)
	for line := range strings.Lines(string(text)) {
		_, own, _ := strings.Cut(strings.TrimSpace(line), ":")
		_, own, _ = strings.Cut(own, ":")
		for _, hierarchy := range []string{"", "systemd", "unified"} {
			for _, name := range []string{"payload", "supervisor"} {
				// Until the last process of the guest is reaped its group is busy; what is not there is no loss.
				dir := filepath.Join("/sys/fs/cgroup", hierarchy, own, name)
				_ = exec.Command("find", dir, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").Run()
			}
		}
	}
}

// try runs a command in the guest, as its root.
func (g *guest) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(g.t.Context(), time.Minute)
	defer cancel()
	all := append([]string{
		"--all", "--target", strconv.Itoa(g.leader), "--", "/usr/bin/env", "-i", "LC_ALL=C",
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
	}, args...)
	out, err := exec.CommandContext(ctx, "nsenter", all...).CombinedOutput()
	return string(out), err
}

func (g *guest) run(args ...string) string {
	g.t.Helper()
	out, err := g.try(args...)
	if err != nil {
		journal, _ := g.try("journalctl", "--no-pager", "-n", "40")
		g.t.Fatalf("%s: %v\n%s\n%s", strings.Join(args, " "), err, out, journal)
	}
	return out
}

// get asks the exporter with nothing but the shell that every Debian has.
func (g *guest) get(path string) (string, error) {
	return g.try("bash", "-c",
		`exec 3<>/dev/tcp/127.0.0.1/9843 && printf 'GET %s HTTP/1.0\r\n\r\n' "$0" >&3 && cat <&3`, path)
}

func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(90 * time.Second) // it takes one to twenty; a busy machine more
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within the time: %s: %v", what, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// overlay is a root that can be changed without changing the one below.
func overlay(t *testing.T, lower string) string {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	for _, name := range []string{"upper", "work", "root"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", lower, dir, dir)
	must(t, syscall.Mount("overlay", root, "overlay", 0, options))
	t.Cleanup(func() {
		if err := syscall.Unmount(root, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", root, err)
		}
	})
	return root
}

// traces lists every file of the guest with its owner and mode, its users, and its units. It leaves out logs and the
// books of the package manager and of systemd: what was installed once is in them for ever.
func (g *guest) traces() string {
	g.t.Helper()
	return g.run("sh", "-c", `find / -xdev \( -path /var/log -o -path /var/cache -o -path /var/lib/dpkg -o -path /var/lib/systemd -o -path /var/backups \) \
		-prune -o ! -name '*-' ! -path /etc/.pwd.lock -printf '%p %u %g %m %y\n' | sort; cat /etc/passwd /etc/group; systemctl list-unit-files --no-pager`)
}

// TestInstalled installs the Debian package in a root that has nothing but Debian. It looks at what the service is and
// what it cannot do, and removes it without a trace.
func TestInstalled(t *testing.T) {
	packages, debian := given(t, packagesVar), given(t, debianVar)
	testenv.Need(t, testenv.Root, testenv.Tool("systemd-nspawn"), testenv.Tool("nsenter"))
	found, err := filepath.Glob(filepath.Join(packages, "*_amd64.deb"))
	must(t, err)
	if len(found) != 1 {
		t.Fatalf("%s has %d packages for amd64", packages, len(found))
	}
	root := overlay(t, debian)
	copyFile(t, found[0], filepath.Join(root, "perfdoctor.deb"))
	copyFile(t, "probe.sh", filepath.Join(root, "probe.sh"))
	g := boot(t, root)
	before := g.traces()

	began := time.Now()
	g.run("dpkg", "--install", "/perfdoctor.deb")
	t.Run("first answer", func(t *testing.T) { g.firstAnswer(t, began) })
	t.Run("serves", g.serves)
	t.Run("rights", g.rights)
	t.Run("unit", g.unit)
	t.Run("sandbox", g.sandbox)
	g.clean()
	g.run("dpkg", "--remove", "perfdoctor")
	if out := g.run("sh", "-c", "cat /etc/default/perfdoctor-exporter; getent passwd perfdoctor"); out == "" {
		t.Error("remove without purge must leave the configuration and its user")
	}
	g.run("dpkg", "--purge", "perfdoctor")
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(g.traces(), "\n")); diff != "" {
		t.Errorf("purging left something (-before +after):\n%s", diff)
	}
	if out := g.run("systemctl", "--failed", "--no-legend", "--no-pager"); out != "" {
		t.Errorf("units have failed: %s", out)
	}
}

// mostToAnswer is what README.md promises, from the package to the first answer.
const mostToAnswer = time.Minute

// verdict begins the answer.
var verdict = regexp.MustCompile(`(?m)^((BUSY, )?NO BOTTLENECK FOUND|INCOMPLETE|WARNING|CRITICAL)\b`)

// firstAnswer is what somebody gets who began to install the package a moment ago.
func (g *guest) firstAnswer(t *testing.T, began time.Time) {
	out, err := g.try("perfdoctor", "diagnose")
	took := time.Since(began)
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 3 && exit.ExitCode() != 4) {
		t.Fatalf("diagnose: %v\n%s", err, out) // 3 is a finding, 4 says that most could not be assessed
	}
	at := verdict.FindStringIndex(out)
	if at == nil || took > mostToAnswer {
		t.Fatalf("after %v:\n%s", took, out)
	}
	said, _, _ := strings.Cut(out[at[0]:], "\n")
	t.Logf("%.1f s from the package to the first answer: %s", took.Seconds(), said)
}

// serves waits for the first window.
func (g *guest) serves(t *testing.T) {
	eventually(t, "the exporter serves its first window", func() error {
		page, err := g.get("/metrics")
		if err != nil {
			journal, _ := g.try("journalctl", "--no-pager", "-u", "perfdoctor-exporter")
			return fmt.Errorf("%w: %s\n%s", err, page, journal)
		}
		if !strings.Contains(page, "\nperfdoctor_cpu_seconds_total{") {
			return fmt.Errorf("no CPU time in %.300q", page)
		}
		return nil
	})
	page, err := g.get("/metrics")
	must(t, err)
	// Those that need a capability each: NET_ADMIN and SYS_PTRACE, PERFMON, BPF.
	for _, name := range []string{"sockets", "perf-events", "bpf-connections", "bpf-softirq"} {
		if want := fmt.Sprintf("\nperfdoctor_collector_success{collector=%q,target=\"host\"} 1\n",
			name); !strings.Contains(page, want) {
			journal, _ := g.try("journalctl", "--no-pager", "-u", "perfdoctor-exporter")
			t.Errorf("no %q: the rights of the unit do not suffice\n%s", want, journal)
		}
	}
}

// rights are the rights that the kernel says the process has.
func (g *guest) rights(t *testing.T) {
	pid := strings.TrimSpace(g.run("systemctl", "show", "--property", "MainPID", "--value", "perfdoctor-exporter"))
	if user := strings.TrimSpace(g.run("stat", "-c", "%U:%G", "/proc/"+pid)); user != "perfdoctor:perfdoctor" {
		t.Errorf("it runs as %s", user)
	}
	status := g.run("cat", "/proc/"+pid+"/status")
	// CAP_DAC_READ_SEARCH 2, CAP_NET_ADMIN 12, CAP_SYS_PTRACE 19, CAP_PERFMON 38, CAP_BPF 39
	// (include/uapi/linux/capability.h).
	want := fmt.Sprintf("%016x", uint64(1<<2|1<<12|1<<19|1<<38|1<<39))
	for _, line := range []string{
		"CapPrm:\t" + want, "CapEff:\t" + want, "CapBnd:\t" + want, "NoNewPrivs:\t1",
		"Seccomp:\t2",
	} {
		if !strings.Contains(status, line+"\n") {
			t.Errorf("no line %q in its status:\n%s", line, status)
		}
	}
}

// unit asks systemd what it thinks of the files.
func (g *guest) unit(t *testing.T) {
	if out := g.run("systemd-analyze", "verify", "--man=no", "perfdoctor-exporter.service",
		"perfdoctor-exporter.socket"); out != "" {
		t.Errorf("systemd-analyze verify: %s", out)
	}
	out := g.run("systemd-analyze", "security", "--no-pager", "perfdoctor-exporter.service")
	t.Log(out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:])
	// 3.0 of 10 is as exposed as an edit may make it: a line that falls out of the unit shows here.
	g.run("systemd-analyze", "security", "--no-pager", "--threshold=30", "perfdoctor-exporter.service")
}

// sandbox runs the probes as a unit with all of the service's settings but its program, and as a unit with none of
// them.
func (g *guest) sandbox(t *testing.T) {
	service := g.run("cat", "/usr/lib/systemd/system/perfdoctor-exporter.service")
	g.run("sh", "-c", "echo secret >/home/.diary && echo secret >/tmp/other")
	g.write("/run/systemd/system/control.service",
		"[Service]\nType=oneshot\nStateDirectory=control\nExecStart=/bin/sh /probe.sh /var/lib/control/out\n")
	g.write("/run/systemd/system/probe.service", probeUnit(service, "/bin/sh /probe.sh /var/lib/perfdoctor/out",
		`(NoExecPaths|ExecPaths)=.*`))
	g.write("/run/systemd/system/exec.service", probeUnit(service, "/bin/sh -c true", `-`))
	g.run("systemctl", "daemon-reload")
	g.run("systemctl", "start", "control.service", "probe.service")
	control := g.run("cat", "/var/lib/control/out")
	if strings.Contains(control, "denied") || !strings.HasSuffix(control, "done\n") {
		t.Fatalf("root without a sandbox cannot do all of it, so the probes show nothing:\n%s", control)
	}
	want := strings.ReplaceAll(control, "allowed", "denied")
	if diff := cmp.Diff(want, g.run("cat", "/var/lib/perfdoctor/out")); diff != "" {
		t.Errorf("the sandbox has a hole (-want +got):\n%s", diff)
	}
	t.Logf("%d probes, each allowed to root and denied to the service", strings.Count(want, "denied"))
	if out, err := g.try("systemctl", "start", "exec.service"); err == nil {
		t.Errorf("it can execute a shell: %s", out)
	}
	if status := g.run("systemctl", "show", "--property", "ExecMainStatus", "--value",
		"exec.service"); strings.TrimSpace(status) != "203" {
		t.Errorf("the shell was not refused but ended with %s", status) // 203: EXIT_EXEC of systemd.exec(5)
	}
}

// clean removes what the probes needed.
func (g *guest) clean() {
	g.t.Helper()
	g.run("systemctl", "reset-failed")
	g.run("sh", "-c", "rm -rf /run/systemd/system/probe.service /run/systemd/system/control.service "+
		"/run/systemd/system/exec.service "+
		"/tmp/other /var/lib/control /home/.diary")
	g.run("systemctl", "daemon-reload")
}

// probeUnit is the service with another program. It leaves out the socket and the settings that match without.
func probeUnit(service, program, without string) string {
	service = regexp.MustCompile(`(?m)^(ExecStart|Type|Restart|RestartSec|Requires|After|`+without+`)=?.*\n`).
		ReplaceAllString(service, "")
	return strings.Replace(service, "[Service]\n", "[Service]\nType=oneshot\nExecStart="+program+"\n", 1)
}

func (g *guest) write(path, text string) {
	g.t.Helper()
	g.run("sh", "-c", `mkdir -p "${0%/*}" && printf %s "$1" >"$0"`, path, text)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	must(t, err)
	must(t, os.WriteFile(to, data, 0o644))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
