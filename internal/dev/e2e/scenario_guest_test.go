package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// guestKernel is for --kernel.
const guestKernel = "6.12"

// runInGuest runs a scenario under guestKernel, and skips the test where no guest can be booted.
func runInGuest(t *testing.T, args ...string) (code int, stdout []byte) {
	t.Helper()
	emulator, ok := map[string]string{"amd64": "qemu-system-x86_64", "arm64": "qemu-system-aarch64"}[runtime.GOARCH]
	if !ok {
		t.Skipf("guests are amd64 or arm64, not %s", runtime.GOARCH)
	}
	testenv.Need(t, testenv.Tool(emulator))
	var out, errs bytes.Buffer
	cmd := exec.Command(perfdoctor(t), append([]string{
		"scenario", "run", "--vm", "--kernel", guestKernel, "-o",
		"json",
	}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // the exit code is what counts
	t.Logf("%v: exit code %d\n%s%s", cmd.Args, cmd.ProcessState.ExitCode(), errs.String(), out.String())
	if strings.Contains(errs.String(), "fetch Debian's kernel") {
		t.Skipf("no kernel to boot: %s", errs.String())
	}
	return cmd.ProcessState.ExitCode(), out.Bytes()
}

// TestScenarioInGuest runs a scenario of the binary on a kernel's real cgroup v2, and brings its recordings back. It is
// alone: an emulated CPU that shares the host's makes a diagnosis late.
func TestScenarioInGuest(t *testing.T) {
	keep := t.TempDir()
	args := []string{"quota-v2-by-ancestor", "--only", "inner-quota", "--keep", keep}
	code, stdout := runInGuest(t, args...)
	var results []struct {
		outcome
		Guest string
	}
	must(t, json.Unmarshal(stdout, &results))
	if code != 0 || len(results) != 1 || results[0].Status != "held" || len(results[0].Phases) != 2 {
		t.Fatalf("exit code %d, results %+v", code, results)
	}
	if !strings.HasPrefix(results[0].Guest, "kernel "+guestKernel+".") {
		t.Errorf("it ran in the guest %q", results[0].Guest)
	}
	var report struct {
		Host     struct{ Kernel string }
		Findings []struct{ Check string }
	}
	cmd := exec.Command(perfdoctor(t), "diagnose", "--from", filepath.Join(keep, "quota-v2-by-ancestor-as-is.zip"),
		"-o", "json")
	out, _ := cmd.Output() // the exit code of findings is an error
	must(t, json.Unmarshal(out, &report))
	if !strings.HasPrefix(report.Host.Kernel, guestKernel+".") || len(report.Findings) == 0 ||
		report.Findings[0].Check != "cpu-throttled" {
		t.Errorf("the recording that came back: %+v", report)
	}
	if code, stdout := runInGuest(t, args...); code != 1 ||
		!bytes.Contains(stdout, []byte("exists: choose another directory")) {
		t.Errorf("over the same recordings: exit code %d, %s", code, stdout)
	}
}

// wholeMachine is a scenario from a directory. It changes what a host's may not, on a kernel that lacks something.
const wholeMachine = `title: another backlog
vm: {mode: required, reason: netdev_max_backlog is global}
needs: {sysctls: [%s]}
sysctls: {net.core.netdev_max_backlog: 20000}
hosts: {host: }
processes: {service: {host: host, sleep: }}
diagnose: {target: service, duration: 1s}
expect: {verdict: none}
`

// TestScenarioOfUserInGuest takes a scenario from --dir into the guest.
func TestScenarioOfUserInGuest(t *testing.T) {
	t.Parallel()
	backlog, err := os.ReadFile("/proc/sys/net/core/netdev_max_backlog")
	must(t, err)
	for key, want := range map[string]struct {
		code   int
		status string
	}{
		"net.core.somaxconn":   {0, "held"},
		"net.ipv4.no_such_key": {2, "skipped"},
	} {
		dir := scenarios(t, "mine", strings.Replace(wholeMachine, "%s", key, 1))
		code, stdout := runInGuest(t, "mine", "--dir", dir)
		var results []outcome
		must(t, json.Unmarshal(stdout, &results))
		if code != want.code || len(results) != 1 || results[0].Status != want.status {
			t.Errorf("needs %s: exit code %d, results %+v", key, code, results)
		}
	}
	after, err := os.ReadFile("/proc/sys/net/core/netdev_max_backlog")
	must(t, err)
	if !bytes.Equal(backlog, after) {
		t.Errorf("the machine's netdev_max_backlog went from %s to %s", backlog, after)
	}
}
