package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/lab"
)

// TestFewerCapabilities takes the capabilities that BPF programs need away, one by one. What counters tell stays. Each
// lost collector says what it lacks, and so does preflight. CAP_SYS_ADMIN stands in for CAP_BPF and CAP_PERFMON, so it
// goes with them, and with it the right to enter a namespace: perfdoctor runs in the client's. The test runs alone,
// because a packet drop in another test's namespace would be the verdict.
func TestFewerCapabilities(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.BPF, testenv.Tool("setpriv"))
	client, server := pair(t)
	ports(t, client, "40000 40999")
	child := shortConnections(t, client, server, lab.ClientOptions{Concurrency: 4, CloseFirst: true, Requests: 1})
	eventually(t, "all 1000 ports used", 10*time.Second, func() bool { return child.Stats().Conns == 1000 })
	for _, c := range []struct {
		without     string // as setpriv writes it
		ok, missing []string
		names       string
	}{
		{without: "-sys_admin", ok: []string{"bpf-connections", "bpf-binds", "bpf-softirq"}},
		{
			without: "-sys_admin,-bpf", missing: []string{"bpf-connections", "bpf-binds", "bpf-softirq"},
			names: "CAP_BPF",
		},
		{
			without: "-sys_admin,-perfmon", missing: []string{"bpf-connections", "bpf-binds", "bpf-softirq"},
			names: "CAP_PERFMON",
		},
		{
			without: "-net_admin", ok: []string{"bpf-connections", "bpf-softirq"}, missing: []string{"bpf-binds"},
			names: "CAP_NET_ADMIN",
		},
	} {
		t.Run(c.without, func(t *testing.T) {
			d := run(t, within(t, client, c.without, "diagnose", "--duration", "2s", "--pid", pid(child), "-o", "json"))
			d.parse(t)
			w := want{
				verdict: []string{"short-connection-ceiling"}, severity: []string{"critical"},
				text: []string{"1000 ports / 60 s"},
			}
			for _, complaint := range w.complaints(d) {
				t.Error(complaint)
			}
			status, reason := collectorsOf(t, d.json)
			for _, name := range c.ok {
				if status[name] != "ok" {
					t.Errorf("%s: %s: %s", name, status[name], reason[name])
				}
			}
			for _, name := range c.missing {
				if status[name] != "denied" || !strings.Contains(reason[name], c.names) {
					t.Errorf("%s: %s: %q, want denied and %s named", name, status[name], reason[name], c.names)
				}
			}
			said := string(run(t, within(t, client, c.without, "preflight")).json)
			if c.names != "" && !strings.Contains(said, c.names+" is not in the effective set") {
				t.Errorf("preflight does not name %s:\n%s", c.names, said)
			}
		})
	}
}

// within prepares the program as a process of the host without some capabilities.
func within(t *testing.T, h *lab.Host, without string, args ...string) *exec.Cmd {
	t.Helper()
	program := perfdoctor(t)
	return exec.Command("nsenter", append([]string{
		"--net=" + h.NetNS(), "setpriv", "--bounding-set", without, "--",
		program,
	}, args...)...)
}

// collectorsOf returns status and reason of each collector.
func collectorsOf(t *testing.T, report []byte) (status, reason map[string]string) {
	t.Helper()
	var r struct {
		Cost struct {
			Collectors []struct{ Name, Status, Reason string } `json:"collectors"`
		} `json:"cost"`
	}
	must(t, json.Unmarshal(report, &r))
	status, reason = map[string]string{}, map[string]string{}
	for _, c := range r.Cost.Collectors {
		status[c.Name], reason[c.Name] = c.Status, c.Reason
	}
	return status, reason
}

// TestNothingLeftInKernel kills perfdoctor while its programs run. Programs, maps and links end with it. Pinned
// objects, or those attached to something that lives on, would keep them.
func TestNothingLeftInKernel(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.BPF)
	cmd := exec.Command(perfdoctor(t), "diagnose", "--duration", "60s")
	must(t, cmd.Start())
	loaded := map[string][]uint32{}
	eventually(t, "its programs are attached", 10*time.Second, func() bool {
		loaded = kernelObjects(t, cmd.Process.Pid)
		return len(loaded["link_id"]) >= 20 && len(loaded["prog_id"]) >= 20 && len(loaded["map_id"]) >= 10
	})
	must(t, cmd.Process.Signal(syscall.SIGKILL))
	_ = cmd.Wait() // it was killed
	// The kernel frees programs and maps after a grace period of RCU.
	eventually(t, "the kernel has nothing of it", 10*time.Second, func() bool {
		left := slices.ContainsFunc(loaded["prog_id"], func(id uint32) bool {
			p, err := cilium.NewProgramFromID(cilium.ProgramID(id))
			return err == nil && p.Close() == nil
		})
		left = left || slices.ContainsFunc(loaded["map_id"], func(id uint32) bool {
			m, err := cilium.NewMapFromID(cilium.MapID(id))
			return err == nil && m.Close() == nil
		})
		return !left && !slices.ContainsFunc(loaded["link_id"], func(id uint32) bool {
			l, err := link.NewFromID(link.ID(id))
			return err == nil && l.Close() == nil
		})
	})
}

// kernelObjects returns the BPF programs, maps and links that a process holds, by the name of their line in
// /proc/PID/fdinfo (kernel/bpf/syscall.c, bpf_prog_show_fdinfo and its like).
func kernelObjects(t *testing.T, pid int) map[string][]uint32 {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	must(t, err)
	out := map[string][]uint32{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // it was closed meanwhile
		}
		kind := ""
		for line := range strings.Lines(string(b)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			// A link's line also has the id of its program; its own comes first.
			if kind != "" || name != "prog_id" && name != "map_id" && name != "link_id" {
				continue
			}
			id, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
			must(t, err)
			kind = name
			out[kind] = append(out[kind], uint32(id))
		}
	}
	return out
}
