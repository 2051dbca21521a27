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

// runInGuest runs a scenario under guestKernel, and skips the test if no guest can be booted.
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

// wholeMachine is a scenario from a directory. It changes settings that a host's scenario may not, on a kernel that
// lacks something.
const wholeMachine = `title: another backlog
vm: {mode: required, reason: netdev_max_backlog is global}
needs: {sysctls: [%s]}
sysctls: {net.core.netdev_max_backlog: 20000}
hosts: {host: }
processes: {service: {host: host, sleep: }}
diagnose: {target: service, duration: 1s}
expect: {verdict: none}
placebos:
  larger: {title: a larger one, change: {sysctls: {net.core.netdev_max_backlog: 30000}}, verdict: none}
`

// TestScenarioInGuest takes a scenario from --dir into the guest, and brings its recording back, once.
func TestScenarioInGuest(t *testing.T) {
	t.Parallel()
	backlog, err := os.ReadFile("/proc/sys/net/core/netdev_max_backlog")
	must(t, err)
	t.Run("needs", func(t *testing.T) { // ends when both have
		t.Run("net.core.somaxconn", func(t *testing.T) {
			t.Parallel()
			keep := t.TempDir()
			args := append(inGuestWith(t, "net.core.somaxconn"), "--keep", keep)
			result := heldInGuest(t, 0, "held", args)
			if len(result.Phases) != 2 {
				t.Errorf("phases %+v", result.Phases)
			}
			var report struct{ Host struct{ Kernel string } }
			out, _ := output(t, "diagnose", "--from", filepath.Join(keep, "mine-as-is.zip"), "-o", "json")
			must(t, json.Unmarshal(out, &report))
			if !strings.HasPrefix(report.Host.Kernel, guestKernel+".") {
				t.Errorf("the recording that came back: %s", out)
			}
			if code, stdout := runInGuest(t, args...); code != 1 ||
				!bytes.Contains(stdout, []byte("exists: choose another directory")) {
				t.Errorf("over the same recordings: exit code %d, %s", code, stdout)
			}
		})
		t.Run("net.ipv4.no_such_key", func(t *testing.T) {
			t.Parallel()
			heldInGuest(t, 2, "skipped", inGuestWith(t, "net.ipv4.no_such_key"))
		})
	})
	after, err := os.ReadFile("/proc/sys/net/core/netdev_max_backlog")
	must(t, err)
	if !bytes.Equal(backlog, after) {
		t.Errorf("the machine's netdev_max_backlog went from %s to %s", backlog, after)
	}
}

// inGuestWith are the arguments that run wholeMachine, which needs a sysctl.
func inGuestWith(t *testing.T, sysctl string) []string {
	t.Helper()
	dir := scenarios(t, "mine", strings.Replace(wholeMachine, "%s", sysctl, 1))
	return []string{"mine", "--dir", dir, "--only", "larger"}
}

// guestResult is the outcome of a scenario in a guest, and under which kernel.
type guestResult struct {
	outcome
	Guest string
}

// heldInGuest runs a scenario in a guest, and expects one result.
func heldInGuest(t *testing.T, wantCode int, wantStatus string, args []string) guestResult {
	t.Helper()
	code, stdout := runInGuest(t, args...)
	var results []guestResult
	must(t, json.Unmarshal(stdout, &results))
	if code != wantCode || len(results) != 1 || results[0].Status != wantStatus ||
		!strings.HasPrefix(results[0].Guest, "kernel "+guestKernel+".") {
		t.Fatalf("exit code %d, want %d and %s: %+v", code, wantCode, wantStatus, results)
	}
	return results[0]
}
