package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/testenv"
	"github.com/perfdoctor/perfdoctor/internal/vm"
)

// guestKernel is for --kernel.
const guestKernel = "6.12"

// needGuest skips the test where no guest can be booted.
func needGuest(t *testing.T) {
	t.Helper()
	emulator, ok := map[string]string{"amd64": "qemu-system-x86_64", "arm64": "qemu-system-aarch64"}[runtime.GOARCH]
	if !ok {
		t.Skipf("guests are amd64 or arm64, not %s", runtime.GOARCH)
	}
	testenv.Need(t, testenv.Tool(emulator))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if _, err := vm.FetchKernel(ctx, guestKernel, runtime.GOARCH); err != nil {
		t.Skipf("no kernel to boot: %v", err)
	}
}

// TestScenarioInGuest runs a scenario of the binary on a kernel's real cgroup v2, and brings its recordings back.
func TestScenarioInGuest(t *testing.T) {
	needGuest(t)
	keep := t.TempDir()
	args := []string{
		"quota-v2-by-ancestor", "--vm", "--kernel", guestKernel, "--only", "inner-quota", "-o", "json", "--keep", keep,
	}
	code, stdout := runScenario(t, args...)
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
	cmd := exec.Command(perfdoctor(t), "diagnose", "--from", filepath.Join(keep, "quota-v2-by-ancestor-as-is.zip"), "-o", "json")
	out, _ := cmd.Output() // the exit code of findings is an error
	must(t, json.Unmarshal(out, &report))
	if !strings.HasPrefix(report.Host.Kernel, guestKernel+".") || len(report.Findings) == 0 ||
		report.Findings[0].Check != "cpu-throttled" {
		t.Errorf("the recording that came back: %+v", report)
	}
	if code, stdout := runScenario(t, args...); code != 1 || !bytes.Contains(stdout, []byte("exists: choose another directory")) {
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
	needGuest(t)
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
		code, stdout := runScenario(t, "mine", "--dir", dir, "--vm", "--kernel", guestKernel, "-o", "json")
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
