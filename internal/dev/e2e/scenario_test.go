package e2e

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// scenarios writes one scenario, whose text begins after its name, and returns the directory for --dir.
func scenarios(t *testing.T, name, text string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, name, "scenario.yaml"), []byte("name: "+name+"\n"+text), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, name, "README.md"), []byte("# "+name+"\n"), 0o600))
	return dir
}

// leak is a fault that shows at once, its fix, and a placebo.
const leak = `title: a leak
vm: {mode: allowed}
hosts: {host: }
processes:
  leak:
    host: host
    open_files: {count: 600, per_second: 30, limit: 300}
    await: {units: 110}
measure: leak
diagnose: {target: leak, duration: %s}
expect:
  verdict: %s
  subject: "${pid leak}"
cures:
  close:
    title: it keeps a few
    change: {processes: {leak: {open_files: {count: 20, per_second: null}, await: {units: 20}}}}
    verdict: none
`

// outcome is the part of scenario run -o json that the test reads.
type outcome struct {
	Status, Reason string
	Phases         []struct {
		Name, Verdict string
		Assertions    []struct {
			What, Got string
			Held      bool
		}
	}
}

func runScenario(t *testing.T, args ...string) (code int, stdout []byte) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(perfdoctor(t), append([]string{"scenario", "run"}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // the exit code is what counts
	t.Logf("%v: exit code %d\n%s%s", cmd.Args, cmd.ProcessState.ExitCode(), errs.String(), out.String())
	return cmd.ProcessState.ExitCode(), out.Bytes()
}

// TestScenario runs a fault and its fix. It first expects what is there and then what is not.
func TestScenario(t *testing.T) {
	testenv.Need(t, testenv.Root)
	before := traces(t)
	keep := t.TempDir()
	dir := scenarios(t, "leak", fmt.Sprintf(leak, "5s", "fd-limit"))
	code, stdout := runScenario(t, "leak", "--dir", dir, "-o", "json", "--keep", keep)
	var results []outcome
	must(t, json.Unmarshal(stdout, &results))
	if code != 0 || len(results) != 1 || results[0].Status != "held" || len(results[0].Phases) != 2 {
		t.Fatalf("exit code %d, results %+v", code, results)
	}
	if got := results[0].Phases[0].Verdict + " " + results[0].Phases[1].Verdict; got != "fd-limit none" {
		t.Errorf("verdicts %q", got)
	}
	for _, name := range []string{"leak-as-is.zip", "leak-close.zip"} {
		cmd := exec.Command(perfdoctor(t), "diagnose", "--from", filepath.Join(keep, name), "--check", "fd-limit")
		if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() != 3 {
			t.Errorf("%s: %v", name, err)
		}
	}
	out, _ := output(t, "compare", filepath.Join(keep, "leak-as-is.zip"), filepath.Join(keep, "leak-close.zip"), "-o",
		"json")
	var c comparisonJSON
	must(t, json.Unmarshal(out, &c))
	if n := c.number(t, "requests"); n.Before.Mean < 5 { // 30 are asked for
		t.Errorf("the recording has not what the load counted: %+v", n)
	}
	wrong := scenarios(t, "leak", fmt.Sprintf(leak, "2s", "close-wait-leak"))
	code, stdout = runScenario(t, "leak", "--dir", wrong, "-o", "junit", "--only", "as-is")
	var doc struct {
		Suites []struct {
			Failures int `xml:"failures,attr"`
		} `xml:"testsuite"`
	}
	must(t, xml.Unmarshal(stdout, &doc))
	if code != 3 || len(doc.Suites) != 1 || doc.Suites[0].Failures == 0 {
		t.Errorf("a wrong expectation: exit code %d, %+v", code, doc)
	}
	if diff := cmp.Diff(before, traces(t)); diff != "" {
		t.Errorf("the machine is not as before (-before +after):\n%s", diff)
	}
}

// TestScenarioBroken has a program that ends at once. perfdoctor fails, and prints what the program printed.
func TestScenarioBroken(t *testing.T) {
	testenv.Need(t, testenv.Root)
	before := traces(t)
	code, stdout := runScenario(t, "bad", "--dir", scenarios(t, "bad", `title: a program that ends
vm: {mode: allowed}
hosts: {host: }
processes:
  server: {host: host, run: {command: [sh, -c, "echo no such page >&2; exit 4"]}, await: {listen: 80}}
diagnose: {target: server}
expect: {verdict: none}
`))
	if code != 1 || !bytes.Contains(stdout, []byte("no such page")) {
		t.Errorf("exit code %d, output %s", code, stdout)
	}
	if diff := cmp.Diff(before, traces(t)); diff != "" {
		t.Errorf("the machine is not as before (-before +after):\n%s", diff)
	}
}

// survivors is a scenario whose program has a child that no death signal reaches.
const survivors = `title: a program with a child of its own
vm: {mode: allowed}
hosts: {one: , two: }
links: {wire: {ends: {one: 10.91.0.1/24, two: 10.91.0.2/24}}}
cgroups: {box/inner: {quota: 50ms}}
processes:
  shell: {host: one, cgroup: box/inner, run: {command: [sh, -c, "sleep 3600 & echo $! > child; wait"]}}
  server: {host: two, serve: {listen: 10.91.0.2:9000}, await: {listen: 9000}}
diagnose: {target: shell, warmup: 60s}
expect: {verdict: none}
`

// TestScenarioKilled kills the program in the middle, and has its leftovers removed.
func TestScenarioKilled(t *testing.T) {
	testenv.Need(t, testenv.Root)
	before := traces(t)
	cmd := exec.Command(perfdoctor(t), "scenario", "run", "survivors", "--dir", scenarios(t, "survivors", survivors))
	must(t, cmd.Start())
	var child int
	eventually(t, "the scenario runs", 20*time.Second, func() bool {
		files, err := filepath.Glob(filepath.Join(os.TempDir(), fmt.Sprintf("pd-survivors-%d-*/shell/child",
			cmd.Process.Pid)))
		must(t, err)
		if len(files) == 0 {
			return false
		}
		text, err := os.ReadFile(files[0])
		must(t, err)
		child, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	if err := unix.Kill(child, 0); err != nil {
		t.Fatalf("the program's child did not survive, so this test shows nothing: %v", err)
	}
	out, err := exec.Command(perfdoctor(t), "scenario", "clean").CombinedOutput()
	t.Logf("scenario clean:\n%s", out)
	must(t, err)
	if err := unix.Kill(child, 0); err == nil && !zombie(child) {
		t.Errorf("pid %d still runs", child)
	}
	if diff := cmp.Diff(before, traces(t)); diff != "" {
		t.Errorf("the machine is not as before (-before +after):\n%s", diff)
	}
}

// zombie reports whether the process has ended and waits for a parent that does not reap it (proc_pid_stat(5)).
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}

// TestScenarioInterrupted ends a run with Ctrl-C. The run removes everything by itself.
func TestScenarioInterrupted(t *testing.T) {
	testenv.Need(t, testenv.Root)
	before := traces(t)
	var errs bytes.Buffer
	cmd := exec.Command(perfdoctor(t), "scenario", "run", "survivors", "--dir", scenarios(t, "survivors", survivors))
	cmd.Stderr = &errs
	must(t, cmd.Start())
	eventually(t, "the scenario runs", 20*time.Second, func() bool {
		files, err := filepath.Glob(filepath.Join(os.TempDir(), fmt.Sprintf("pd-survivors-%d-*/shell/child",
			cmd.Process.Pid)))
		must(t, err)
		return len(files) > 0
	})
	must(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait() // the exit code is what counts
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
	if diff := cmp.Diff(before, traces(t)); diff != "" {
		t.Errorf("the machine is not as before (-before +after):\n%s", diff)
	}
}

// runs begin the names of everything that the scenarios of these tests make.
var runs = []string{"pd-leak-", "pd-bad-", "pd-survivors-"}

// traces is what these scenarios could leave on the machine: control groups, directories, devices, named namespaces and
// mounts with their names, and settings that are not per namespace. Other programs come and go meanwhile.
func traces(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, run := range runs {
		for _, pattern := range []string{
			"/sys/fs/cgroup/" + run + "*", "/sys/fs/cgroup/*/" + run + "*", filepath.Join(os.TempDir(), run+"*"),
			"/var/run/netns/" + run + "*",
		} {
			names, err := filepath.Glob(pattern)
			must(t, err)
			found = append(found, names...)
		}
	}
	aliases, err := filepath.Glob("/sys/class/net/*/ifalias")
	must(t, err)
	for _, path := range append(aliases, "/proc/self/mounts") {
		text, err := os.ReadFile(path) // a device may be gone by now
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) &&
			!errors.Is(err, unix.EINVAL) {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if slices.ContainsFunc(runs, func(run string) bool { return strings.Contains(line, run) }) {
				found = append(found, path+": "+line)
			}
		}
	}
	for _, path := range []string{
		"/proc/sys/net/core/netdev_max_backlog", "/proc/sys/net/core/somaxconn",
		"/proc/sys/net/ipv4/ip_local_port_range", "/proc/sys/net/ipv4/tcp_tw_reuse", "/proc/sys/net/ipv4/ip_forward",
	} {
		text, err := os.ReadFile(path)
		must(t, err)
		found = append(found, path+": "+string(text))
	}
	return found
}
