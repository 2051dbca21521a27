package host

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// EnterHostCgroups restarts the program in the host's cgroup namespace, unless it is there already. From within
// another one, such as that of a container on a host with cgroup v2, the groups of other processes cannot be seen. If
// it restarts the program, it does not return. Otherwise the error says what is missing, and the program goes on as
// before.
//
// A namespace belongs to a thread, and a Go program has several: so it executes itself from the one thread that has
// entered.
func (h *Host) EnterHostCgroups() error {
	own, err := h.ownNamespace("cgroup")
	if err != nil || own == initCgroupNS {
		return err
	}
	path, first, err := h.hostCgroupNS()
	if err != nil || own == first {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("the host's cgroup namespace: %w", err)
	}
	defer f.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("enter the host's cgroup namespace, which needs CAP_SYS_ADMIN: %w", err)
	}
	if err := unix.Exec("/proc/self/exe", os.Args, os.Environ()); err != nil {
		return fmt.Errorf("start anew in the host's cgroup namespace: %w", err)
	}
	return nil
}

// hostCgroupNS finds the namespace of the visible processes. It asks process 1, which may be guarded from all others,
// and else process 2, the first of the kernel's own threads (kernel/kthread.c), which stay in the first namespaces.
func (h *Host) hostCgroupNS() (path string, ino uint64, err error) {
	path = filepath.Join(h.Proc, "1/ns/cgroup")
	if ino, err = readNamespace(path); err == nil {
		return path, ino, nil
	}
	threads := filepath.Join(h.Proc, "2/ns/cgroup")
	if ino, other := readNamespace(threads); other == nil && ino == initCgroupNS {
		return threads, ino, nil
	}
	return "", 0, fmt.Errorf("the host's cgroup namespace: %w: it needs the host's processes and CAP_SYS_PTRACE", err)
}
