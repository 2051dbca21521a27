// Package lab makes test hosts on one machine, for tests that need real network and CPU faults.
//
// A [Host] is a network namespace, joined to others with veth pairs and bridges. A [Cgroup] limits CPU and memory.
// Load runs in this process ([Host.Listen], [Host.Connect]) or in its own process ([Host.StartChild]), bounded by
// count and by time.
//
// # What is left behind
//
// Close removes everything. When the process is killed before it can close:
//   - namespaces have no name in /var/run/netns: an open file descriptor and one thread keep them alive, so the kernel
//     frees them, with the devices, addresses and rules inside, when the process and its children are gone;
//   - children carry PR_SET_PDEATHSIG=SIGKILL and so die with the thread that started them, which lives as long as the
//     host;
//   - cgroup directories stay, empty. They are named pd-<name>-<pid>, and the next [New] removes those whose pid is
//     gone.
package lab

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"sync"
)

// namePattern keeps names usable as part of a cgroup directory and of a device alias.
var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_]{0,31}$`)

// Lab owns hosts, cgroups, processes and loads, and removes them on Close. It is safe for concurrent use.
type Lab struct {
	run string // pd-<name>-<pid>: in the name of every cgroup and the alias of every device

	mu      sync.Mutex
	closed  bool
	cleanup []func() error // run backwards by Close
	hosts   map[string]*Host
	cgroups map[string]*Cgroup
}

// New makes an empty lab. The name is lower case letters, digits and underscores, and must be unique among the open
// labs of one process. New also removes the empty cgroups of earlier runs whose process is gone.
func New(name string) (*Lab, error) {
	if !namePattern.MatchString(name) {
		return nil, fmt.Errorf("lab name %q: want %s", name, namePattern)
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("a lab needs root: it makes network namespaces and cgroups")
	}
	if _, ok := os.LookupEnv(childEnv); ok { // otherwise a forgotten exit makes children start children forever
		return nil, errors.New("this process is a lab's child: main or TestMain must exit with the code of " +
			"lab.RunIfChild")
	}
	Sweep()
	return &Lab{
		run:     fmt.Sprintf("pd-%s-%d", name, os.Getpid()),
		hosts:   map[string]*Host{},
		cgroups: map[string]*Cgroup{},
	}, nil
}

// Name returns pd-<name>-<pid>: the name of the lab's cgroup directory, and the start of every device's alias.
func (l *Lab) Name() string { return l.run }

// Close stops the loads and processes, and removes the cgroups, devices and namespaces, newest first. It continues
// after an error and returns all errors. A second call does nothing and returns nil.
func (l *Lab) Close() error {
	l.mu.Lock()
	l.closed = true
	steps := l.cleanup
	l.cleanup = nil
	l.mu.Unlock()
	var errs []error
	for _, step := range slices.Backward(steps) {
		errs = append(errs, step())
	}
	return errors.Join(errs...)
}

// onClose registers the removal of something just made. If the lab is already closed, onClose removes it at once and
// returns an error.
func (l *Lab) onClose(remove func() error) error {
	l.mu.Lock()
	if !l.closed {
		l.cleanup = append(l.cleanup, remove)
		l.mu.Unlock()
		return nil
	}
	l.mu.Unlock()
	return errors.Join(fmt.Errorf("lab %s is closed", l.run), remove())
}
