package checks

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// TestHealthy runs the whole suite over machines that have nothing wrong: no check may warn.
func TestHealthy(t *testing.T) {
	files, err := filepath.Glob("testdata/healthy/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no healthy recordings: %v", err)
	}
	for _, f := range files {
		rec, err := recording.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, finding := range check.Run(rec, Suite(), check.Options{Causes: Causes()}).Findings {
			if finding.Severity >= check.Warning {
				t.Errorf("%s: %s %s: %s", f, finding.Severity, finding.ID(), finding.Summary)
			}
		}
	}
}

// TestSNATExplainsItsConsequences keeps one cause above all that follows from a gateway's full core.
func TestSNATExplainsItsConsequences(t *testing.T) {
	rec, err := recording.Open("testdata/causes/snat-single-core.txtar")
	if err != nil {
		t.Fatal(err)
	}
	res := check.Run(rec, Suite(), check.Options{Causes: Causes()})
	if p := res.Principal(); p == nil || p.ID() != "snat-single-core cpu 1" {
		t.Fatalf("the principal finding is %v", p)
	}
	got := map[string]string{}
	for _, f := range res.Findings[1:] {
		got[f.ID()] = f.ExplainedBy
	}
	want := map[string]string{
		"softirq-imbalance cpu 1":                     "snat-single-core cpu 1",
		"softnet-drops cpu 1":                         "snat-single-core cpu 1",
		"nic-drops device vloaded transmit":           "snat-single-core cpu 1",
		"path-rtt-under-load destination 10.0.9.2:80": "snat-single-core cpu 1",
		"cpu-in-softirq host":                         "snat-single-core cpu 1",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("explained by, -want +got:\n%s", d)
	}
}

func TestCPUMask(t *testing.T) {
	for _, c := range []struct {
		cpus []int
		want string
	}{
		{nil, "0"},
		{[]int{0, 1}, "3"},
		{[]int{0, 2, 3}, "d"},
		{[]int{31}, "80000000"},
		{[]int{0, 32}, "1,00000001"},
		{[]int{-1, 64}, "1,00000000,00000000"},
	} {
		if got := cpuMask(c.cpus); got != c.want {
			t.Errorf("cpuMask(%v) = %q, want %q", c.cpus, got, c.want)
		}
	}
}

func TestDeviceOfLine(t *testing.T) {
	wantEach(t, "deviceOfLine", deviceOfLine, map[string]string{
		"virtio3-input.0":             "virtio3-input",
		"virtio3-config":              "",
		"eth0-TxRx-3":                 "eth0-TxRx",
		"nvme0q12":                    "nvme0q",
		"mlx5_comp12@pci:0000:3b:0.0": "mlx5_comp@pci:0000:3b:0.0",
		"IR-PCI-MSI 524289-edge eth1": "eth",
		"":                            "",
	})
}

func TestPoolOf(t *testing.T) {
	wantEach(t, "poolOf", poolOf, map[string]string{
		"GC Thread#12":    "GC Thread",
		"nginx":           "nginx",
		"pool-1-thread-7": "pool-1-thread",
		"http-nio-8080-e": "http-nio-8080-e",
		"7":               "7",
		"":                "",
	})
}

func TestIsLoopback(t *testing.T) {
	wantEach(t, "isLoopback", isLoopback, map[string]bool{
		"127.0.0.1:80": true, "[::1]:80": true, "[::ffff:127.0.0.1]:80": true, "10.0.0.5:443": false, "[2001:db8::1]:443": false, "": false,
	})
}

// wantEach holds a function of a name to what it must give for each.
func wantEach[V comparable](t *testing.T, name string, f func(string) V, want map[string]V) {
	t.Helper()
	for in, w := range want {
		if got := f(in); got != w {
			t.Errorf("%s(%q) = %v, want %v", name, in, got, w)
		}
	}
}
