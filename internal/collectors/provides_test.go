// Package collectors_test tests what all collectors promise.
package collectors_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/lab/labtest"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func TestMain(m *testing.M) {
	if code, child := lab.RunIfChild(); child {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// TestNeverSilent runs all collectors on this machine. Whatever a collector provides is recorded, or the recording says
// why not.
func TestNeverSilent(t *testing.T) {
	local := host.Local()
	t.Run("host", func(t *testing.T) {
		target, err := local.Resolve(t.Context(), host.Selector{})
		if err != nil {
			t.Fatal(err)
		}
		neverSilent(t, collect.Env{Host: local, Target: target})
	})
	t.Run("own network namespace", func(t *testing.T) {
		h, err := labtest.New(t).Host("target")
		if err != nil {
			t.Fatal(err)
		}
		child, err := h.StartServer("127.0.0.1:80", lab.ServeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		target, err := local.Resolve(t.Context(), host.Selector{PID: child.Pid})
		if err != nil {
			t.Fatal(err)
		}
		neverSilent(t, collect.Env{Host: local, Target: target})
	})
}

func neverSilent(t *testing.T, env collect.Env) {
	t.Helper()
	rec, err := collect.Run(t.Context(), collect.Options{
		Env: env, Collectors: collectors.All(collectors.Options{}), Interval: 200 * time.Millisecond, Duration: 600 *
			time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range rec.Meta.Collectors {
		if c.Status != recording.StatusOK && c.Reason == "" {
			t.Errorf("collector %s is %s without a reason", c.Name, c.Status)
		}
	}
	measured := 0
	for _, c := range collectors.All(collectors.Options{}) {
		for _, m := range c.Provides {
			reason, _ := rec.Why(m)
			switch {
			case rec.Recorded(m):
				measured++
			case strings.HasPrefix(reason, "the recording has no"):
				t.Errorf("collector %s: %s is not recorded, and nothing says why", c.Name, m.Describe().Name)
			default:
				t.Logf("%s: %s", m.Describe().Name, reason)
			}
		}
	}
	if measured < 60 {
		t.Errorf("only %d metrics are recorded", measured)
	}
	for _, u := range rec.Meta.Unsupported {
		if m, ok := metric.ByName(u.Metric); !ok || rec.Recorded(m) || u.Reason == "" {
			t.Errorf("said to be missing: %+v", u)
		}
	}
}

// sharedMetrics are read for the target in every sample, and for the host's other processes only at the start and the
// end. Or they are the cost of each set of BPF programs, or about scripts and .NET.
var sharedMetrics = []metric.Metric{
	metric.ScriptWallProfileSamples,
	metric.ProcessCPU, metric.ProcessChildrenCPU, metric.ProcessStart, metric.ProcessFDs, metric.ProcessFDLimit,
	metric.BPFRuns, metric.BPFSeconds, metric.BPFMeasured,
}

// TestDeclarations: names are unique, and every metric has one collector, except for the shared ones.
func TestDeclarations(t *testing.T) {
	names, provider := map[string]bool{}, map[string]string{}
	for _, c := range collectors.All(collectors.Options{}) {
		if names[c.Name] || c.Doc == "" || c.Overhead == "" || c.Open == nil || len(c.Provides) == 0 {
			t.Errorf("collector %q is declared twice or not whole", c.Name)
		}
		names[c.Name] = true
		for _, m := range c.Provides {
			name := m.Describe().Name
			if by := provider[name]; by != "" && !slices.Contains(sharedMetrics, m) {
				t.Errorf("%s is provided by %s and %s", name, by, c.Name)
			}
			provider[name] = c.Name
		}
	}
}

// TestOrder: the two collectors of wait stacks are next to each other, wherever they are listed.
func TestOrder(t *testing.T) {
	for what, list := range map[string][]collect.Collector{
		"all": collectors.All(collectors.Options{}), "standing": collectors.Standing(true),
	} {
		i := slices.IndexFunc(list, func(c collect.Collector) bool { return c.Name == "wait-stacks" })
		if i < 1 || list[i-1].Name != "bpf-scheduler" {
			t.Errorf("%s: wait-stacks is at %d, want it behind bpf-scheduler", what, i)
		}
	}
}
