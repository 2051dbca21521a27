package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// contained is a scenario with a container of a real Docker engine, long enough to be looked at and killed.
const contained = `title: a container with a quota
vm: {mode: never, reason: a guest has no container engine}
needs: {tools: [dockerd, docker]}
hosts: {box: {engine: docker}, world: }
links: {wire: {ends: {box: 10.92.0.1/24, world: 10.92.0.2/24}}}
processes:
  pd-e2e-shop:
    host: box
    container: {cpus: 0.2, memory: 256MiB, publish: [8080]}
    spin: {threads: 1}
    await: {units: 1}
diagnose: {target: pd-e2e-shop, warmup: 240s}
expect: {verdict: none}
`

// startContained runs the scenario until its container runs, and returns the container's id.
func startContained(t *testing.T, errs *bytes.Buffer) (cmd *exec.Cmd, id string) {
	t.Helper()
	cmd = exec.Command(perfdoctor(t), "scenario", "run", "contained", "--dir", scenarios(t, "contained", contained))
	cmd.Stdout, cmd.Stderr = errs, errs
	must(t, cmd.Start())
	t.Cleanup(func() { // errors say that the test has done it
		_, _ = cmd.Process.Kill(), cmd.Wait()
		_ = exec.Command(perfdoctor(t), "scenario", "clean").Run()
	})
	pattern := filepath.Join(os.TempDir(), fmt.Sprintf("pd-contained-%d-*/docker.box/pd-e2e-shop.id", cmd.Process.Pid))
	eventually(t, "the container runs", 40*time.Second, func() bool {
		files, err := filepath.Glob(pattern)
		must(t, err)
		if len(files) == 0 {
			return false
		}
		text, err := os.ReadFile(files[0])
		must(t, err)
		id = string(text)
		groups, err := filepath.Glob(fmt.Sprintf("/sys/fs/cgroup/cpu/pd-contained-%d/docker-box/%s/cgroup.procs",
			cmd.Process.Pid, id))
		must(t, err)
		v2, err := filepath.Glob(fmt.Sprintf("/sys/fs/cgroup/pd-contained-%d/docker-box/%s/cgroup.procs",
			cmd.Process.Pid, id))
		must(t, err)
		return id != "" && len(groups)+len(v2) > 0
	})
	time.Sleep(time.Second) // the engine puts the process into its group before it is the program
	return cmd, id
}

// TestDockerContainer diagnoses a container by Docker's name for it, as its user does. Then it kills the scenario that
// runs the engine and has the rest removed.
func TestDockerContainer(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.Tool("dockerd"), testenv.Tool("docker"), testenv.Tool("nft"),
		testenv.Tool("ip"))
	before := machine(t)
	var said bytes.Buffer
	cmd, id := startContained(t, &said)
	d := expect(t, want{
		verdict: []string{"cpu-throttled"}, severity: []string{"critical"}, subject: id,
		text: []string{"0.2 CPUs"}, forbidden: []string{"cpu-throttled-burst", "cpu-saturated"},
	}.complaints, "--container", "pd-e2e-shop")
	if !strings.Contains(d.text, "container docker pd-e2e-shop") {
		t.Errorf("the report does not name its target: %s", d.text)
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	if !slices.ContainsFunc(machine(t), func(line string) bool { return strings.Contains(line, "pd-contained-") }) {
		t.Fatal("nothing is left after SIGKILL, so this test shows nothing")
	}
	out, err := exec.Command(perfdoctor(t), "scenario", "clean").CombinedOutput()
	t.Logf("scenario clean:\n%s", out)
	must(t, err)
	if diff := cmp.Diff(before, machine(t)); diff != "" {
		t.Errorf("the machine is not as before (-before +after):\n%s", diff)
	}
}

// TestDockerInterrupted ends the scenario with Ctrl-C. The scenario removes everything by itself.
func TestDockerInterrupted(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.Tool("dockerd"), testenv.Tool("docker"), testenv.Tool("nft"),
		testenv.Tool("ip"))
	before := machine(t)
	var said bytes.Buffer
	cmd, _ := startContained(t, &said)
	must(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait() // the exit code is what counts
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(said.String(), "interrupted") {
		t.Errorf("exit code %d, %s", code, said.String())
	}
	if diff := cmp.Diff(before, machine(t)); diff != "" {
		t.Errorf("the machine is not as before (-before +after):\n%s", diff)
	}
}

// engines matches the names of a container engine: its own, its network's, its run-time's, and the scenario's. Docker's
// devices have seven digits (libnetwork's drivers/bridge), its networks the twelve first of their ids: others make a
// veth0 meanwhile.
var engines = regexp.MustCompile(
	`(?i)docker|containerd|runc|pd-contained-|\bveth[0-9a-f]{7}\b|\bbr-[0-9a-f]{12}\b|172\.17\.`)

// engineModules begin the names of the modules that an engine loads for its network and its file systems.
var engineModules = []string{
	"bridge", "br_netfilter", "overlay", "veth", "xt_", "nf_", "nft_", "nfnetlink",
	"ip_tables", "iptable_", "ip6",
}

// machine is what a container engine could change of the machine: control groups of all hierarchies, links, named
// namespaces, firewall rules, mounts, modules, settings of network and keys, files and processes of its own. It leaves
// out what other programs make meanwhile, such as a mount or a device.
func machine(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{
		"/sys/fs/cgroup/pd-contained-*", "/sys/fs/cgroup/*/pd-contained-*",
		filepath.Join(os.TempDir(), "pd-contained-*"),
		"/sys/class/net/*", "/var/run/netns/*", "/etc/docker/*", "/opt/*", "/run/*", "/run/containerd/*",
		"/run/docker/*", "/var/lib/docker*",
	} {
		names, err := filepath.Glob(pattern)
		must(t, err)
		found = append(found, names...)
	}
	for _, command := range [][]string{
		{"nft", "list", "ruleset"},
		{"ip", "netns"},
		{"ip", "rule"},
		{"ip", "route", "show", "table", "all"},
	} {
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", command, err, out)
		}
		found = append(found, strings.Split(string(out), "\n")...)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	must(t, err)
	found = append(found, strings.Split(string(mounts), "\n")...)
	found = slices.DeleteFunc(found, func(line string) bool { return !engines.MatchString(line) })
	found = append(found, modules(t)...)
	found = append(found, settings(t)...)
	return append(found, engineProcesses(t)...)
}

// modules are the names of modules that an engine may have loaded. A kernel without any has none.
func modules(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/modules")
	if !errors.Is(err, fs.ErrNotExist) {
		must(t, err)
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, " ")
		if slices.ContainsFunc(engineModules, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			found = append(found, "module "+name)
		}
	}
	return found
}

// settings are the sysctls of network and keys. A gauge among them is left out, and so are those of devices that are
// not an engine's.
func settings(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, root := range []string{"/proc/sys/net", "/proc/sys/kernel/keys"} {
		must(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist): // of a device that went away
				return nil
			case err == nil && entry.IsDir() && ofDevice(path) && !engines.MatchString(filepath.Base(path)):
				return fs.SkipDir
			case err != nil || entry.IsDir() || strings.HasSuffix(path, "/nf_conntrack_count"):
				return err
			}
			text, err := os.ReadFile(path)
			if err == nil { // some are for writing alone
				found = append(found, path+": "+strings.TrimSpace(string(text)))
			}
			return nil
		}))
	}
	if len(found) < 100 {
		t.Fatalf("only %d settings could be read: %v", len(found), found)
	}
	return found
}

// ofDevice tells whether a directory of /proc/sys/net has the settings of one network device.
func ofDevice(path string) bool {
	above, name := filepath.Base(filepath.Dir(path)), filepath.Base(path)
	return (above == "conf" || above == "neigh") && name != "all" && name != "default"
}

// engineProcesses are processes whose command line or control group is the scenario's.
func engineProcesses(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	must(t, err)
	var found []string
	for _, dir := range dirs {
		cmdline, _ := os.ReadFile(dir + "/cmdline") // no error counts: the process may end meanwhile
		groups, _ := os.ReadFile(dir + "/cgroup")
		if bytes.Contains(append(cmdline, groups...), []byte("pd-contained-")) {
			found = append(found, fmt.Sprintf("%s: %s", dir, bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
		}
	}
	slices.Sort(found)
	return found
}
