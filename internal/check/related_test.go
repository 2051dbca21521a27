package check

import (
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// TestRelated pins which findings may be cause and consequence by their subjects. It asks in both orders, because the
// question is the same.
func TestRelated(t *testing.T) {
	of := func(kind string) func(string) Subject {
		return func(id string) Subject { return Subject{Kind: kind, ID: id} }
	}
	listener, destination, cgroup, netns := of("listener"), of("destination"), of("cgroup"), of("netns")
	device, cpu, pool, lock := of("device"), of("cpu"), of("pool"), of("lock")
	for _, tc := range []struct {
		name string
		a, b Subject
		want bool
	}{
		{"same subject", destination("10.0.0.5:443"), destination("10.0.0.5:443"), true},
		{"two destinations", destination("10.0.0.5:443"), destination("10.0.0.6:443"), false},
		{"the target and one of its processes", pid("1 (a)"), pid("2 (a)"), true},
		{"the target and a process of others", pid("1 (a)"), pid("77 (other)"), false},
		{"two processes of the target", pid("2 (a)"), pid("3 (a)"), false},
		{"two CPUs", cpu("1"), cpu("2"), false},
		{"two pools", pool("a"), pool("b"), false},
		{"two devices", device("eth0 receive"), device("eth1 receive"), false},
		{"a cgroup and one inside it", cgroup("/a"), cgroup("/a/b"), true},
		{"the root and a cgroup", cgroup("/"), cgroup("/a"), true},
		{"two cgroups side by side", cgroup("/a"), cgroup("/ab"), false},
		{"the host's network namespace and another", HostNetNS, netns("of pid 1 (a)"), true},
		{"two network namespaces", netns("of pid 1 (a)"), netns("of pid 2 (a)"), false},

		{"host and CPU", Host, cpu("1"), true},
		{"host and process", Host, pid("1 (a)"), true},
		{"host and a process of others", Host, pid("77 (other)"), true},
		{"host and cgroup", Host, cgroup("/a"), true},
		{"host and pool", Host, pool("a"), true},
		{"host and lock", Host, lock("0x1"), true},
		{"host and device", Host, device("eth0 receive"), true},
		{"host and destination", Host, destination("10.0.0.5:443"), true},
		{"host and listener", Host, listener("10.0.0.5:443"), true},
		{"host and network namespace", Host, netns("of pid 1 (a)"), true},

		{"cgroup and the target", cgroup("/a"), pid("1 (a)"), true},
		{"cgroup and a process of others", cgroup("/a"), pid("77 (other)"), false},
		{"cgroup and pool", cgroup("/a"), pool("a"), true},
		{"cgroup and a listener of the target", cgroup("/a"), listener("0.0.0.0:80"), true},
		{"cgroup and a listener of others", cgroup("/a"), listener("0.0.0.0:81"), false},
		{"the target and its pool", pid("1 (a)"), pool("a"), true},
		{"a process of others and the target's pool", pid("77 (other)"), pool("a"), false},
		{"the target and its lock", pid("1 (a)"), lock("0x1"), true},
		{"a process of others and the target's lock", pid("77 (other)"), lock("0x1"), false},
		{"a process and a destination", pid("77 (other)"), destination("10.0.0.5:443"), true},
		{"listener on that address", listener("10.0.0.5:443"), destination("10.0.0.5:443"), true},
		{"listener on all addresses", listener("0.0.0.0:443"), destination("127.0.0.1:443"), true},
		{"listener on all addresses of both families", listener("[::]:443"), destination("127.0.0.1:443"), true},
		{"listener on another port", listener("0.0.0.0:8080"), destination("127.0.0.1:443"), false},
		{"listener on another address", listener("10.0.0.5:443"), destination("10.0.0.6:443"), false},
		{"network namespace and destination", netns("of pid 1 (a)"), destination("10.0.0.5:443"), true},
		{"network namespace and listener", netns("of pid 1 (a)"), listener("0.0.0.0:80"), true},
		{"network namespace and device", netns("of pid 1 (a)"), device("eth0 receive"), true},
		{"network namespace and CPU", netns("of pid 1 (a)"), cpu("1"), true},
		{"device and destination", device("eth0 receive"), destination("10.0.0.5:443"), true},
		{"device and a loopback destination", device("eth0 receive"), destination("127.0.0.1:443"), false},
		{"lo and a loopback destination", device("lo transmit"), destination("[::1]:443"), true},
		{"device and a loopback listener", device("eth0 receive"), listener("127.0.0.1:443"), false},
		{"device and CPU", device("eth0 receive"), cpu("1"), true},
		{"destination and CPU", destination("10.0.0.5:443"), cpu("1"), true},
		{"process and CPU", pid("77 (other)"), cpu("1"), true},
	} {
		s := sceneOf(recordingOfTarget("process"))
		if got := s.related(tc.a, tc.b); got != tc.want {
			t.Errorf("%s: related(%v, %v) = %v, want %v", tc.name, tc.a, tc.b, got, tc.want)
		}
		if got := s.related(tc.b, tc.a); got != tc.want {
			t.Errorf("%s: related(%v, %v) = %v, want %v", tc.name, tc.b, tc.a, got, tc.want)
		}
	}
	whole := sceneOf(recordingOfTarget("host"))
	if !whole.related(cgroup("/a"), pid("77 (other)")) || !whole.related(cgroup("/a"), listener("0.0.0.0:81")) {
		t.Error("of a host that was diagnosed as a whole, a process belongs to nobody")
	}
}

// recordingOfTarget has the target 1, which listens on port 80, and the process 77, which is not the target's.
func recordingOfTarget(kind string) *recording.Recording {
	b := recording.NewBuilder()
	a := b.Appender()
	a.Counter(metric.ProcessCPU, 1, "1", "a", "user", "target")
	a.Counter(metric.ProcessCPU, 1, "77", "other", "user", "host")
	a.Info(metric.TargetListenPorts, "0.0.0.0:80", "1", "a")
	a.Commit()
	return b.Done(recording.Meta{Target: recording.Target{Kind: kind, PID: 1, Name: "a"}})
}
