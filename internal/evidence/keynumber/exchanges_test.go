package keynumber

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// recorded has six readings, a second apart.
func recorded(t *testing.T, each func(second int, a *recording.Appender)) (rec *recording.Recording) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { // the clock is set forward by what waits
		b := recording.NewBuilder()
		for second := range 6 {
			a := b.Appender()
			each(second, a)
			a.Commit()
			time.Sleep(time.Second)
		}
		rec = b.Done(recording.Meta{})
	})
	return rec
}

// TestFailuresThatBeginLater: what a series had at its first reading counts, since its programs counted before.
func TestFailuresThatBeginLater(t *testing.T) {
	flow := []string{metric.NetNSTarget, "client", "192.0.2.1:80", "7", "curl"}
	rec := recorded(t, func(second int, a *recording.Appender) {
		a.Counter(metric.BPFRuns, 1, "set_state")
		a.Counter(metric.ConnectAttempts, float64(1000+100*second), flow...)
		a.Counter(metric.ConnectDurations, float64(2000+1000*second), append(flow, "0.001")...)
		if second >= 3 {
			a.Counter(metric.ConnectFailures, float64(10*second), append(flow, "ECONNREFUSED")...)
			a.Counter(metric.ConnectDurations, float64(50*second), append(flow, "1")...)
		}
	})
	s := NewSource(rec, Told{})
	s.SlowAs(0.001, 0)
	for name, want := range map[string]float64{
		"connects_failed_share": 50. / 500, "slow_connects": 250. / 5250,
	} {
		if e, ok := s.Estimate(name); !ok || e.Mean != want {
			t.Errorf("%s = %+v, want %v", name, e, want)
		}
	}
}

// TestExchangesOf: by endpoint, over the time in which they were counted, a bucket that begins later included.
func TestExchangesOf(t *testing.T) {
	rec := recorded(t, func(second int, a *recording.Appender) {
		a.Counter(metric.BPFRuns, 1, "arrive")
		a.Info(metric.TargetListenPorts, "0.0.0.0:80", "7", "web")
		at := func(side, endpoint string, bound, n float64) {
			a.Counter(metric.ExchangeDurations, n, side, endpoint, strconv.FormatFloat(bound, 'g', -1, 64))
		}
		if second == 0 {
			return
		}
		at("server", "192.0.2.1:80", 0.001, float64(198*second))
		at("server", "192.0.2.1:80", 0.5, float64(22*second))
		if second == 5 {
			a.Counter(metric.ExchangeDurations, 3, "client", "192.0.2.9:5432", "+Inf")
		}
	})
	want := []Exchanges{
		{Side: "server", Endpoint: "192.0.2.1:80", Count: 1100, PerSecond: 220, P50: 0.001, P99: 0.5},
		{Side: "client", Endpoint: "192.0.2.9:5432", Count: 3, PerSecond: 0.6},
	}
	if diff := cmp.Diff(want, ExchangesOf(rec)); diff != "" {
		t.Error(diff)
	}
	for _, n := range Of(rec) {
		if n.Name == "exchange_p50" && n.Estimate.Mean != 0.001 || n.Name == "exchange_p99" && n.Estimate.Mean != 0.5 {
			t.Errorf("%s = %+v", n.Name, n.Estimate)
		}
	}
}
