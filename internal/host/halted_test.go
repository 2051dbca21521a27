package host

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFrozenStaysInside: the kernel writes the path of a group outside perfdoctor's cgroup namespace with "..", and
// what follows is a name that the target chose.
func TestFrozenStaysInside(t *testing.T) {
	sys := t.TempDir()
	for _, name := range []string{"evil/cgroup.events", "fs/cgroup/good/cgroup.events"} {
		file := filepath.Join(sys, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("populated 1\nfrozen 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := &Host{Sys: sys}
	for path, want := range map[string]bool{"/good": true, "/../../evil": false, "/..": false} {
		if got := h.frozen(cgroupLine{version: 2, path: path}); got != want {
			t.Errorf("%s: frozen %v, want %v", path, got, want)
		}
	}
}
