package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/lab/vm/guest"
)

// MachineSysctl writes a key of the whole machine, such as net.core.netdev_max_backlog; Close writes the old value
// back. It returns an error outside a guest of package vm: a lab must not change a user's machine.
func (l *Lab) MachineSysctl(key, value string) error {
	if !guest.Inside() {
		return fmt.Errorf("sysctl %s is the whole machine's: it is set in a virtual machine only", key)
	}
	path := "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
	if path != filepath.Clean(path) {
		return fmt.Errorf("sysctl %q: not the name of a key", key)
	}
	old, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("sysctl %s: this kernel or its loaded modules have no such key: %w", key, err)
	}
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		return fmt.Errorf("sysctl %s=%s: %w", key, value, err)
	}
	return l.onClose(func() error { return os.WriteFile(path, old, 0) })
}
