package cgroupfs

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFrozen: the kernel writes the path of a group outside perfdoctor's cgroup namespace with "..". The rest is a name
// that the target chose.
func TestFrozen(t *testing.T) {
	sys := t.TempDir()
	for name, text := range map[string]string{
		"evil/cgroup.events":                  "populated 1\nfrozen 1\n",
		"cgroup/good/cgroup.events":           "populated 1\nfrozen 1\n",
		"cgroup/awake/cgroup.events":          "populated 1\nfrozen 0\n",
		"cgroup/unified/beside/cgroup.events": "populated 1\nfrozen 1\n",
		"cgroup/freezer/old/freezer.state":    "FROZEN\n",
	} {
		file := filepath.Join(sys, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]bool{
		"0::/good": true, "0::/awake": false, "0::/beside": true, "0::/gone": false,
		"6:freezer:/old": true, "6:cpu,cpuacct:/old": false,
		"0::/../../evil": false, "0::/../evil": false, "0::/..": false, "": false, "0:": false,
	} {
		if got := Frozen(filepath.Join(sys, "cgroup"), line); got != want {
			t.Errorf("%s: frozen %v, want %v", line, got, want)
		}
	}
}
