// Package network collects what the kernel keeps per network namespace: protocol counters, settings, devices,
// connection tracking and packet filter rules. It reads the target's namespace and, if that is a different one,
// perfdoctor's own as well, where NAT for containers happens.
package network

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// Collectors lists this package's collectors.
func Collectors() []collect.Collector {
	return []collect.Collector{
		netstatCollector(), deviceCollector(), sysctlCollector(), conntrackCollector(),
		netfilterCollector(),
	}
}

// namespace is one network namespace to read: its netns label, and a process in it (0: perfdoctor itself).
type namespace struct {
	label string
	pid   int
}

// namespaces returns the namespaces to read. A target without a namespace of its own shares perfdoctor's, which is
// then read once, as the target's.
func namespaces(env collect.Env) []namespace {
	t := env.Target
	if len(t.PIDs) == 0 || t.Namespaces.Net.Same {
		return []namespace{{metric.NetNSTarget, 0}}
	}
	return []namespace{{metric.NetNSTarget, t.PIDs[0]}, {metric.NetNSHost, 0}}
}

// procDir returns the directory whose net/ shows the namespace. It is not /proc/net, which follows the reading
// thread.
func (n namespace) procDir(proc string) string {
	if n.pid == 0 {
		return filepath.Join(proc, "self")
	}
	return filepath.Join(proc, fmt.Sprint(n.pid))
}

// enter runs fn in the namespace.
func (n namespace) enter(env collect.Env, fn func() error) error {
	if n.pid == 0 {
		return fn()
	}
	return env.Host.InNetNS(n.pid, fn)
}

// gone reports whether an error means that the target has ended, and not that the kernel lacks the file: the
// namespace then has nothing more to say, and the runner ends the run.
func (n namespace) gone(proc string, err error) bool {
	if n.pid == 0 || err == nil {
		return false
	}
	// A process that ended and waits for its parent has no namespace left, and its net/ is empty (fs/proc/proc_net.c).
	_, serr := os.Stat(filepath.Join(n.procDir(proc), "net", "dev"))
	return errors.Is(serr, os.ErrNotExist) || errors.Is(serr, unix.ESRCH) || errors.Is(serr, unix.EINVAL)
}

// missingAll records that none of the metrics could be measured, by the kind of error.
func missingAll(a *recording.Appender, metrics []metric.Metric, err error) {
	st, reason, remedy := collect.Classify(err)
	for _, m := range metrics {
		a.Missing(m, st, reason, remedy)
	}
}
