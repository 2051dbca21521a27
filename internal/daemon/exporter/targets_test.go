package exporter

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// used writes the CPU seconds of a group and makes the group if necessary.
func used(t *testing.T, dir string, seconds float64) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "cpu.stat"), fmt.Appendf(nil, "usage_usec %.0f\nuser_usec 1\n",
		seconds*1e6), 0o600))
}

const containerID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestGroups(t *testing.T) {
	root := t.TempDir()
	pod :=
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11111111_2222_3333_4444_555555555555.slice/cri-containerd-" +
			containerID + ".scope"
	for _, p := range []string{"/system.slice/nginx.service/worker", pod, "/plain/leaf", "/docker/" + containerID +
		"/inner"} {
		used(t, root+p, 100)
		used(t, root+filepath.Dir(p), 100)
	}
	g := &groups{dir: root, file: "cpu.stat", last: map[string]usage{}}
	now := time.Unix(1000, 0)
	if list, all := g.look(now); len(list) > 0 || !all {
		t.Errorf("one reading says nothing: %v, %v", list, all)
	}
	used(t, root+pod, 115)
	used(t, root+"/system.slice/nginx.service", 101.5)
	used(t, root+"/docker/"+containerID, 103)
	used(t, root+"/plain/leaf", 100)
	list, _ := g.look(now.Add(15 * time.Second))
	for i := range list {
		list[i].cpus = math.Round(list[i].cpus*1e6) / 1e6
	}
	want := []busy{{pod, 1}, {"/docker/" + containerID, 0.2}, {"/system.slice/nginx.service", 0.1}}
	if diff := cmp.Diff(want, list, cmp.AllowUnexported(busy{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// 2,000 groups that come and go leave nothing behind.
func TestGroupsThatComeAndGo(t *testing.T) {
	root := t.TempDir()
	g := &groups{dir: root, file: "cpu.stat", last: map[string]usage{}}
	for round := range 20 {
		for i := range 100 {
			used(t, fmt.Sprintf("%s/job%d-%d", root, round, i), 1)
		}
		g.look(time.Unix(int64(round)*15, 0))
		if round > 0 {
			for i := range 100 {
				must(t, os.RemoveAll(fmt.Sprintf("%s/job%d-%d", root, round-1, i)))
			}
		}
		if len(g.last) > 300 || len(g.paths) > 300 {
			t.Fatalf("round %d: %d groups are remembered, %d looked at", round, len(g.last), len(g.paths))
		}
	}
}

func TestPodNames(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "web-7d9f_shop_nginx-"+containerID+".log"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "odd-"+containerID[1:]+"0.log"), nil, 0o600))
	for path, want := range map[string]string{
		"/kubepods.slice/cri-containerd-" + containerID + ".scope": "pod shop/web-7d9f/nginx",
		"/kubepods.slice/cri-containerd-" + containerID +
			".scope/inner": "cgroup /kubepods.slice/cri-containerd-" + containerID + ".scope/inner",
		"/kubepods.slice/cri-containerd-" + containerID[1:] +
			"0.scope": "cgroup /kubepods.slice/cri-containerd-" + containerID[1:] + "0.scope",
		"/system.slice/nginx.service": "cgroup /system.slice/nginx.service",
		"/kubepods.slice/cri-containerd-" + "f" + containerID[:63] +
			".scope": "cgroup /kubepods.slice/cri-containerd-f" + containerID[:63] + ".scope",
	} {
		if got := (PodNames{Logs: dir}).nameOf(t.Context(), slog.New(slog.DiscardHandler),
			host.Target{Name: path}); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// A target is asked what its collectors can answer, and nothing that the host's own windows answer.
func TestTargetChecks(t *testing.T) {
	list := []collect.Collector{
		{Name: "facts", Pace: collect.Once, Provides: []metric.Metric{metric.CPUsOnline}},
		{Name: "target-info", Pace: collect.Once, Provides: []metric.Metric{metric.TargetInfo}},
		{Name: "cgroup", Provides: []metric.Metric{metric.CgroupThrottled}},
	}
	needs := func(name string, ms ...metric.Metric) *check.Check { return &check.Check{Name: name, Needs: ms} }
	var got []string
	for _, c := range targetChecks([]*check.Check{
		needs("of the host", metric.CPUsOnline),
		needs("of the group", metric.CgroupThrottled, metric.CPUsOnline),
		needs("of the group and what is not read", metric.CgroupThrottled, metric.TCPOrphans),
		needs("of what the target is", metric.TargetInfo),
		needs("nothing"),
	}, list) {
		got = append(got, c.Name)
	}
	if diff := cmp.Diff([]string{"of the group", "of what the target is"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
