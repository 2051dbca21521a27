package hostile_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// costReport is what a report says of perfdoctor itself.
type costReport struct {
	Cost struct {
		CPU     float64 `json:"cpu_seconds"`
		Samples int     `json:"samples"`
		GivenUp []struct {
			What string `json:"what"`
			Why  string `json:"why"`
		} `json:"given_up"`
		Collectors []struct {
			Name   string `json:"name"`
			Status string `json:"status"`
			Reason string `json:"reason"`
		} `json:"collectors"`
	} `json:"cost"`
}

// TestBudget: a program with thousands of threads makes each sample of them expensive. Past the budget perfdoctor gives
// up samples, then collectors, and says so. Deep probes stay, because they take next to nothing of its own time.
func TestBudget(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.BPF)
	pid := trap(t, nil, "threads", "6000")
	const window = 10 * time.Second
	observed := func(budget string) (r costReport) {
		o := perfdoctor(t, window, "diagnose", "--pid", strconv.Itoa(pid), "--deep", "--interval", "200ms",
			"--duration", window.String(), "--budget", budget, "-o", "json")
		if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
			t.Errorf("%v: %s", err, o.stderr)
		}
		t.Logf("--budget %s: %.2f s of CPU time, %d samples, given up %+v", budget, r.Cost.CPU, r.Cost.Samples,
			r.Cost.GivenUp)
		return r
	}
	var free, tight costReport
	var both sync.WaitGroup // side by side, as most of it is waiting
	both.Go(func() { free = observed("0") })
	both.Go(func() { tight = observed("0.2") })
	both.Wait()
	if len(free.Cost.GivenUp) != 0 {
		t.Errorf("without a budget: %+v was given up", free.Cost.GivenUp)
	}
	if len(tight.Cost.GivenUp) == 0 || !strings.HasPrefix(tight.Cost.GivenUp[0].What, "samples") ||
		!strings.Contains(tight.Cost.GivenUp[0].Why, "0.2 % of") {
		t.Errorf("given up: %+v, want samples first, and why", tight.Cost.GivenUp)
	}
	if tight.Cost.Samples >= free.Cost.Samples {
		t.Errorf("%d samples with a budget, %d without one", tight.Cost.Samples, free.Cost.Samples)
	}
	for _, c := range tight.Cost.Collectors {
		if c.Name == "bpf-scheduler" && c.Status == "over budget" {
			t.Errorf("%+v, want what costs to be given up", c)
		}
	}
}

// TestStartIsWithinTheBudget: loading the programs alone does not exceed the budget, with the default one and a window
// of ten seconds.
func TestStartIsWithinTheBudget(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.BPF)
	o := perfdoctor(t, 10*time.Second, "diagnose", "-o", "json")
	var r costReport
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
		t.Fatalf("%v: %s", err, o.stderr)
	}
	if len(r.Cost.GivenUp) != 0 {
		t.Errorf("%.2f s of CPU time, given up: %+v", r.Cost.CPU, r.Cost.GivenUp)
	}
}
