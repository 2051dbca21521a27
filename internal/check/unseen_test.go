package check_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// TestLostSamplesNeedClearNumbers: a rate at its threshold is a warning if the whole window was seen. It is information
// if a sample is lost, whichever one it is. A rate far above the threshold is a warning either way.
func TestLostSamplesNeedClearNumbers(t *testing.T) {
	most := &check.Param{Name: "most", Default: 100, Unit: "switches/s", Why: "the test's"}
	rule := &check.Check{
		Name: "switches", Stage: check.Kernel, Needs: []metric.Metric{metric.ContextSwitches},
		Params: []*check.Param{most},
		Run: func(p *check.Pass) error {
			if rate, ok := p.Counter(metric.ContextSwitches)[0].Rate(); ok && rate >= p.Param(most).Number() {
				p.Report(check.Finding{Subject: check.Host, Severity: check.Warning})
			}
			return nil
		},
	}
	for _, c := range []struct {
		name string
		rate int
		lost int
		want check.Severity
	}{
		{"at the threshold, all seen", 100, -1, check.Warning},
		{"at the threshold, the first lost", 100, 0, check.Info},
		{"at the threshold, one lost", 100, 4, check.Info},
		{"at the threshold, the last lost", 100, 10, check.Info},
		{"just beyond what the lost one can hide", 111, 4, check.Warning},
		{"far above it, one lost", 300, 4, check.Warning},
	} {
		res := check.Run(readEachSecond(t, c.rate, c.lost), []*check.Check{rule}, check.Options{})
		if len(res.Findings) != 1 || res.Findings[0].Severity != c.want {
			t.Errorf("%s: %+v, want one at %s", c.name, res.Findings, c.want)
			continue
		}
		told := strings.Contains(strings.Join(res.Findings[0].Doubts, "\n"), "1 of 11 samples of cpu are lost")
		if told != (c.want == check.Info) {
			t.Errorf("%s: doubts %q", c.name, res.Findings[0].Doubts)
		}
		if res.Outcomes[0].Matters != told {
			t.Errorf("%s: the outcome matters: %v, want %v", c.name, res.Outcomes[0].Matters, told)
		}
	}
}

// TestThresholdNearTheWhole: a lost sample does not raise the threshold above the whole CPU.
func TestThresholdNearTheWhole(t *testing.T) {
	busy := &check.Param{Name: "busy", Default: 0.9, Unit: quantity.Ratio, Why: "the test's"}
	rule := &check.Check{
		Name: "busy", Stage: check.Kernel, Needs: []metric.Metric{metric.ContextSwitches},
		Params: []*check.Param{busy},
		Run: func(p *check.Pass) error {
			if rate, ok := p.Counter(metric.ContextSwitches)[0].Rate(); ok && rate/100 >= p.Param(busy).Number() {
				p.Report(check.Finding{Subject: check.Host, Severity: check.Warning})
			}
			return nil
		},
	}
	for percent, want := range map[int]check.Severity{90: check.Info, 95: check.Warning, 100: check.Warning} {
		res := check.Run(readEachSecond(t, percent, 4), []*check.Check{rule}, check.Options{})
		if len(res.Findings) != 1 || res.Findings[0].Severity != want {
			t.Errorf("%d %%: %+v, want one at %s", percent, res.Findings, want)
		}
	}
}

// readEachSecond makes a recording of ten seconds in which a counter rises by rate a second. One of its eleven samples
// is missing.
func readEachSecond(t *testing.T, rate, lost int) *recording.Recording {
	t.Helper()
	var samples strings.Builder
	for i := range 11 {
		if i != lost {
			fmt.Fprintf(&samples, `{"t":%d,"m":{"context_switches_total":[[%d]]}}`+"\n", i, i*rate)
		}
	}
	rec, err := recording.Read(fstest.MapFS{
		"meta.json": {Data: []byte(`{"schema": 1, "duration_seconds": 10, "interval_seconds": 1, "target": {"kind": "host"},
			"collectors": [{"name": "cpu", "status": "ok", "metrics": ["context_switches_total"]}]}`)},
		"samples.jsonl": {Data: []byte(samples.String())},
	})
	if err != nil {
		t.Fatal(err)
	}
	return rec
}
