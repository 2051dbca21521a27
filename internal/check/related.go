package check

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// A scene is what a recording says about who belongs to whom. It answers whether the subjects of two findings can be
// related as cause and consequence.
type scene struct {
	target    string          // its pid; "" without one
	strangers map[string]bool // processes, by pid, that are not the target's
	listeners map[string]bool // addresses that the target listens on; nil if not recorded
	owners    map[string]bool // destinations with known owners of connections: true if the target is one
}

// sceneOf reads the recording. If a host is diagnosed as a whole, all of its processes are the target's.
func sceneOf(rec *recording.Recording) *scene {
	s := &scene{strangers: map[string]bool{}, owners: map[string]bool{}}
	if rec.Meta.Target.PID != 0 {
		s.target = strconv.Itoa(rec.Meta.Target.PID)
	}
	if rec.Meta.Target.Kind != "host" {
		for _, c := range rec.Counter(metric.ProcessCPU, "member", "host") {
			s.strangers[c.Label("pid")] = true
		}
		delete(s.strangers, s.target)
		if rec.Recorded(metric.TargetListenPorts) {
			s.listeners = map[string]bool{}
			for _, l := range rec.Info(metric.TargetListenPorts) {
				s.listeners[l.Label("listener")] = true
			}
		}
		for _, o := range rec.Gauge(metric.DestinationOwner) {
			if pid := o.Label("pid"); pid != "" {
				s.owners[o.Label("destination")] = s.owners[o.Label("destination")] || !s.strangers[pid]
			}
		}
	}
	return s
}

// beside reports whether the subject does not belong to the target: a process that is a stranger, an address on which
// another process listens, a destination to which only others have connections. What all processes of a host share,
// such as its CPUs and devices, belongs to the target, too.
func (s *scene) beside(subject Subject) bool {
	switch subject.Kind {
	case "pid":
		pid, _, _ := strings.Cut(subject.ID, " ") // "4021 (java)"
		return s.strangers[pid]
	case "listener":
		if strings.HasPrefix(subject.ID, "unix:") || strings.HasPrefix(subject.ID, "udp:") {
			return false // others' are not recorded
		}
		return s.listeners != nil && !s.listeners[subject.ID]
	case "destination":
		target, known := s.owners[subject.ID]
		return known && !target
	}
	return false
}

// related keeps a finding from explaining a finding about an unrelated subject:
//
//   - Two subjects of one kind are related if they are the same. One cgroup may also be inside the other. The
//     packets of every network namespace may pass the host's, so the host's is related to all. A target by its pid
//     stands for all of its processes, such as the workers of a server.
//   - A process that is not the target's is in none of the recorded cgroups, pools and locks: these all belong to the
//     target.
//   - A listener is related to a cgroup if the target listens there, and to a destination if a connection to the
//     destination reaches it: a full accept queue here explains connects to it, and no others.
//   - Packets to a loopback address pass lo and no other device.
//   - All other pairs of two kinds can be related. The host holds everything. Its CPUs and devices work for all
//     processes and namespaces. All recorded sockets are in one namespace, and their processes are not recorded.
func (s *scene) related(a, b Subject) bool {
	if a.Kind == b.Kind {
		return alike(a, b) || a.Kind == "pid" && (s.hasProcess(a, b) || s.hasProcess(b, a))
	}
	return s.canMeet(a, b) && s.canMeet(b, a)
}

// hasProcess reports whether the first process is the target, and the second one of its own.
func (s *scene) hasProcess(target, process Subject) bool {
	pid, _, _ := strings.Cut(target.ID, " ") // "4021 (java)"
	return s.target != "" && pid == s.target && !s.beside(process)
}

// alike reports whether what happens to one of two subjects of one kind happens to the other.
func alike(a, b Subject) bool {
	switch {
	case a.ID == b.ID:
		return true
	case a.Kind == "cgroup":
		return inside(a.ID, b.ID) || inside(b.ID, a.ID)
	case a.Kind == "netns":
		return a == HostNetNS || b == HostNetNS
	}
	return false
}

// inside reports whether a cgroup is below another.
func inside(path, other string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(other, "/")+"/")
}

// canMeet has the rules for two kinds, each in one order of the two.
func (s *scene) canMeet(a, b Subject) bool {
	switch a.Kind + " " + b.Kind {
	case "pid cgroup", "pid pool", "pid lock":
		pid, _, _ := strings.Cut(a.ID, " ") // "4021 (java)"
		return !s.strangers[pid]
	case "listener cgroup":
		return s.listeners == nil || s.listeners[a.ID]
	case "listener destination":
		return sameEndpoint(a.ID, b.ID)
	case "destination device", "listener device":
		device, _, _ := strings.Cut(b.ID, " ") // "eth1 receive"
		return !isLoopback(a.ID) || device == "lo"
	}
	return true
}

// sameEndpoint reports whether a connection to the destination can reach the listener, which may listen on all
// addresses.
func sameEndpoint(listener, destination string) bool {
	l, err1 := netip.ParseAddrPort(listener)
	d, err2 := netip.ParseAddrPort(destination)
	if err1 != nil || err2 != nil {
		return listener == destination
	}
	return l.Port() == d.Port() && (l.Addr().IsUnspecified() || l.Addr().Unmap() == d.Addr().Unmap())
}

func isLoopback(endpoint string) bool {
	e, err := netip.ParseAddrPort(endpoint)
	return err == nil && e.Addr().Unmap().IsLoopback()
}
