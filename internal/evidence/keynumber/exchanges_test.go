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

// TestFailuresThatBeginLater: the value of a series at its first reading counts, because its programs counted before.
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

// TestExchangesOf: exchanges by endpoint, over the time in which they were counted, including a bucket that begins
// later. If all were counted, the number in progress is known.
func TestExchangesOf(t *testing.T) {
	server := Exchanges{Side: "server", Endpoint: "192.0.2.1:80", Count: 1100, PerSecond: 220, P50: 0.001, P99: 0.5}
	client := Exchanges{Side: "client", Endpoint: "192.0.2.9:5432", Count: 3, PerSecond: 0.6}
	all := ExchangesOf(exchanged(t, 1))
	for i, want := range []float64{220 * (0.9*0.001 + 0.1*0.5), 3 * 5 / 2.5} {
		if got := all[i].InProgress; !all[i].Timed || got < 0.95*want || got > 1.05*want {
			t.Errorf("%s: %v under way, want %v", all[i].Endpoint, got, want)
		}
	}
	if diff := cmp.Diff([]Exchanges{server, client}, ExchangesOf(exchanged(t, 0.125))); diff != "" {
		t.Errorf("counted in turns: -want +got\n%s", diff)
	}
	for _, n := range Of(exchanged(t, 1)) {
		if n.Name == "exchange_p50" && n.Estimate.Mean != 0.001 || n.Name == "exchange_p99" && n.Estimate.Mean != 0.5 {
			t.Errorf("%s = %+v", n.Name, n.Estimate)
		}
	}
}

// exchanged has exchanges that were counted for a part of the time.
func exchanged(t *testing.T, part float64) *recording.Recording {
	t.Helper()
	return recorded(t, func(second int, a *recording.Appender) {
		a.Counter(metric.BPFRuns, 1, "arrive")
		a.Counter(metric.ExchangesCounted, part*float64(second))
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
}
