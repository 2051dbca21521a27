package lab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Host is a network namespace with its own interfaces, routes, tcp sysctls, conntrack table and rules. It shares
// processors, memory, pids and file system with the machine.
type Host struct {
	lab  *Lab
	name string
	ns   int // open /proc/thread-self/ns/net: keeps the namespace alive
	keep *keeper
	nl   *netlink.Handle

	mu      sync.Mutex
	devices int // the number of the next ethN
}

// Host makes a host whose loopback is up. Names are unique in a lab.
func (l *Lab) Host(name string) (*Host, error) {
	if !namePattern.MatchString(name) {
		return nil, fmt.Errorf("host name %q: want %s", name, namePattern)
	}
	l.mu.Lock()
	_, taken := l.hosts[name]
	l.hosts[name] = nil // reserved, also while it is made
	l.mu.Unlock()
	if taken {
		return nil, fmt.Errorf("host %s: the lab has one of that name", name)
	}
	h := &Host{lab: l, name: name, ns: -1}
	if err := h.start(); err != nil {
		return nil, fmt.Errorf("host %s: %w", name, errors.Join(err, h.close()))
	}
	if err := l.onClose(h.close); err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.hosts[name] = h
	l.mu.Unlock()
	return h, nil
}

func (h *Host) start() error {
	keep, err := startKeeper(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare network namespace: %w", err)
		}
		ns, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open /proc/thread-self/ns/net: %w", err)
		}
		h.ns = ns
		h.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE) // a socket keeps the namespace it was made in
		return err
	})
	if err != nil {
		return err
	}
	h.keep = keep
	lo, err := h.nl.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	return h.nl.LinkSetUp(lo)
}

func (h *Host) close() error {
	if h.nl != nil {
		h.nl.Close()
	}
	if h.keep != nil {
		h.keep.stop()
	}
	if h.ns < 0 {
		return nil
	}
	return unix.Close(h.ns)
}

// Name returns the name given to [Lab.Host].
func (h *Host) Name() string { return h.name }

// NetNS returns a path of the namespace for other programs (nsenter --net=PATH). It is valid while the lab is open.
func (h *Host) NetNS() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.ns) }

// Inode returns the number of the namespace, as in the link /proc/<pid>/ns/net.
func (h *Host) Inode() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(h.ns, &st); err != nil {
		return 0, fmt.Errorf("host %s: stat namespace: %w", h.name, err)
	}
	return st.Ino, nil
}

// Do runs fn on a separate thread inside the namespace, and discards the thread. Sockets that fn makes stay in the
// namespace; goroutines that fn starts do not run in it. fn must not call t.FailNow.
func (h *Host) Do(fn func() error) error {
	result := make(chan error, 1)
	onOwnThread(func() {
		err := errors.New("the function ended its goroutine")
		defer func() { result <- err }()
		if err = unix.Setns(h.ns, unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("host %s: enter namespace: %w", h.name, err)
			return
		}
		err = errors.New("the function ended its goroutine")
		err = fn()
	})
	return <-result
}

// Route adds a route to dst (a CIDR, or "default") by the gateway via.
func (h *Host) Route(dst, via string) error {
	gateway := net.ParseIP(via)
	if gateway == nil {
		return fmt.Errorf("host %s: gateway %q is not an IP address", h.name, via)
	}
	target, err := destination(dst, gateway)
	if err != nil {
		return fmt.Errorf("host %s: %w", h.name, err)
	}
	if err := h.nl.RouteAdd(&netlink.Route{Dst: target, Gw: gateway}); err != nil {
		return fmt.Errorf("host %s: route %s via %s: %w", h.name, dst, via, err)
	}
	return nil
}

func destination(dst string, gateway net.IP) (*net.IPNet, error) {
	switch {
	case dst != "default":
		_, target, err := net.ParseCIDR(dst)
		return target, err
	case gateway.To4() != nil:
		return &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, nil
	default:
		return &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}, nil
	}
}

// globalSysctls returns the net.* keys that hold one value for the whole machine even if a child namespace shows
// them: net/core/sysctl_net_core.c (net_core_table), net/netfilter/nf_conntrack_standalone.c (max is read-only in a
// child, buckets resizes the one hash table).
func globalSysctls() []string {
	return []string{
		"net/core/netdev_max_backlog", "net/netfilter/nf_conntrack_max", "net/nf_conntrack_max",
		"net/netfilter/nf_conntrack_buckets", "net/netfilter/nf_conntrack_expect_max",
	}
}

// sysctlPath returns the path below /proc/sys of a key written with dots or, for device names with dots, with
// slashes.
func sysctlPath(key string) (string, error) {
	path := key
	if !strings.Contains(key, "/") {
		path = strings.ReplaceAll(key, ".", "/")
	}
	if path != filepath.Clean(path) || !strings.HasPrefix(path, "net/") {
		return "", fmt.Errorf("sysctl %s: only net.* keys are per namespace", key)
	}
	for _, global := range globalSysctls() {
		if path == global {
			return "", fmt.Errorf("sysctl %s: global, it would change the machine and not only this host", key)
		}
	}
	return path, nil
}

// Sysctl writes a per-namespace key, such as net.ipv4.tcp_tw_reuse. It refuses keys outside net.*, keys known to be
// global, and keys that are read-only in a child namespace: that is how the kernel marks global keys
// (ensure_safe_net_sysctl in net/sysctl_net.c, 5.12).
func (h *Host) Sysctl(key, value string) error {
	name, err := sysctlPath(key)
	if err != nil {
		return fmt.Errorf("host %s: %w", h.name, err)
	}
	path := "/proc/sys/" + name
	return h.Do(func() error {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("host %s: sysctl %s: no such key in a child namespace: %w", h.name, key, err)
		}
		if info.Mode().Perm()&0o222 == 0 {
			return fmt.Errorf("host %s: sysctl %s: read-only in a child namespace: global", h.name, key)
		}
		if err := os.WriteFile(path, []byte(value), 0); err != nil {
			return fmt.Errorf("host %s: sysctl %s=%s: %w", h.name, key, value, err)
		}
		return nil
	})
}

// Forward makes the host a router for IPv4, and for IPv6 if the kernel has it.
func (h *Host) Forward() error {
	if err := h.Sysctl("net.ipv4.ip_forward", "1"); err != nil {
		return err
	}
	err := h.Sysctl("net.ipv6.conf.all.forwarding", "1")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// RPS sets the mask of CPUs that process packets received on every queue of dev (hexadecimal, as rps_cpus in
// Documentation/networking/scaling.rst). "0" turns it off.
func (h *Host) RPS(dev, mask string) error {
	err := h.Do(func() error { return writeRPS(dev, mask) })
	if err != nil {
		return fmt.Errorf("host %s: rps of %s: %w", h.name, dev, err)
	}
	return nil
}

// writeRPS reaches the namespace's own /sys/class/net through a sysfs mount that is attached nowhere. sysfs shows the
// namespace of the process that mounted it (net/core/net-sysfs.c), and fsmount (5.2) needs no change of the mount
// table.
func writeRPS(dev, mask string) error {
	sys, err := detachedSysfs()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(sys) }()
	base := fmt.Sprintf("/proc/thread-self/fd/%d/class/net/%s/queues", sys, dev)
	queues, err := filepath.Glob(base + "/rx-*/rps_cpus")
	if err != nil {
		return err
	}
	if len(queues) == 0 {
		return errors.New("no such device, or it has no receive queue with rps_cpus (needs CONFIG_RPS)")
	}
	for _, queue := range queues {
		if err := os.WriteFile(queue, []byte(mask), 0); err != nil {
			return err
		}
	}
	return nil
}

func detachedSysfs() (int, error) {
	fs, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("fsopen sysfs: %w", err)
	}
	defer func() { _ = unix.Close(fs) }()
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("fsconfig sysfs: %w", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("fsmount sysfs: %w", err)
	}
	return mount, nil
}
