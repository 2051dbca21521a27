package e2e

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/lab/labtest"
)

// podExporter starts an exporter like a pod on a node with cgroup v2: in a control group, and in a cgroup namespace
// with that group as its root.
func podExporter(t *testing.T, rights ...string) (address string, said *bytes.Buffer) {
	t.Helper()
	pod, err := labtest.New(t).Cgroup("pod")
	must(t, err)
	address, said = freeAddress(t), &bytes.Buffer{}
	args := append([]string{"-c", `read go && exec unshare --cgroup -- "$@"`, "sh"}, rights...)
	args = append(args, perfdoctor(t), "exporter", "--web.listen-address", address, "--window", "5s", "--interval",
		"1s")
	cmd := exec.Command("sh", args...)
	cmd.Stderr = said
	ready, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	must(t, pod.Add(cmd.Process.Pid))
	_, err = io.WriteString(ready, "go\n")
	must(t, err)
	return address, said
}

func page(t *testing.T, address string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "" // it starts
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	return string(text)
}

// TestFleetPod has a throttled group beside the pod's. With CAP_SYS_ADMIN the exporter finds it; without it, it says
// what it lacks.
func TestFleetPod(t *testing.T) {
	needFleet(t, testenv.Tool("unshare"), testenv.Tool("setpriv"))
	outer, _ := limited(t, lab.SpinOptions{Threads: 1})
	sees, _ := podExporter(t)
	lacks, said := podExporter(t, "setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin")
	until(t, "the throttled group is found from the pod", func() bool {
		for line := range strings.Lines(page(t, sees)) {
			if strings.HasPrefix(line, `perfdoctor_finding{check="cpu-throttled"`) &&
				strings.Contains(line, outer.Path()) {
				return true
			}
		}
		return false
	})
	until(t, "the exporter without the right has a window", func() bool {
		return strings.Contains(page(t, lacks), "\nperfdoctor_cpu_seconds_total{")
	})
	if strings.Contains(page(t, lacks), outer.Path()) {
		t.Error("without CAP_SYS_ADMIN it sees the group as well, so this test shows nothing")
	}
	if !strings.Contains(said.String(), "CAP_SYS_ADMIN") {
		t.Errorf("it does not say what it lacks: %s", said)
	}
}
