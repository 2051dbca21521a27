package exporter

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// record makes a window of two samples. Each gets the appender and its number.
func record(samples ...func(*recording.Appender)) *recording.Recording {
	b := recording.NewBuilder()
	for _, s := range samples {
		a := b.Appender()
		s(a)
		a.Commit()
		time.Sleep(time.Microsecond) // readings have whole microseconds
	}
	return b.Done(recording.Meta{Interval: 5, Duration: 15})
}

// text returns the families as they are served.
func text(t *testing.T, families []*dto.MetricFamily) string {
	t.Helper()
	var out strings.Builder
	for _, mf := range families {
		if _, err := expfmt.MetricFamilyToText(&out, mf); err != nil {
			t.Fatal(err)
		}
	}
	var lines []string
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func processes(cpu map[string]float64) func(*recording.Appender) {
	return func(a *recording.Appender) {
		a.None(metric.ProcessCPU)
		for pid, v := range cpu {
			a.Counter(metric.ProcessCPU, v, pid, "worker", "user", "host")
		}
	}
}

// The sum over processes keeps rising when one of them ends. Otherwise Prometheus would take its end for a reset of
// all.
func TestFoldedCountersOnlyRise(t *testing.T) {
	l := newLedger(HostName, 10, nil, func(string, int) {})
	windows := []*recording.Recording{
		record(processes(map[string]float64{"1": 100, "2": 1000}), processes(map[string]float64{"1": 103, "2": 1004})),
		record(processes(map[string]float64{"1": 103, "2": 1004}), processes(map[string]float64{"1": 105})),
		record(processes(map[string]float64{"1": 105}), processes(map[string]float64{"1": 106, "3": 50})),
	}
	for i, want := range []string{"7", "9", "10"} {
		got := text(t, l.add(windows[i]))
		if diff := cmp.Diff(`perfdoctor_process_cpu_seconds_total{comm="worker",member="host",mode="user"} `+want+"\n",
			got); diff != "" {
			t.Errorf("window %d (-want +got):\n%s", i, diff)
		}
	}
}

func TestGaugesFold(t *testing.T) {
	l := newLedger("pod a/b/c", 2, map[string]bool{"tcp_destination_rtt_seconds": true}, func(string, int) {})
	rec := record(func(a *recording.Appender) {
		for i, rtt := range []float64{0.001, 0.005, 0.002, 0.003} {
			destination := fmt.Sprintf("10.0.0.%d:443", i)
			a.Gauge(metric.DestinationRTT, rtt, destination)
			a.Gauge(metric.DestinationMin, rtt, destination)
			a.Gauge(metric.SynSentRetrans, float64(i+1), destination)
		}
	})
	want := `perfdoctor_tcp_destination_rtt_seconds{destination="10.0.0.1:443",target="pod a/b/c"} 0.005
perfdoctor_tcp_destination_rtt_seconds{destination="10.0.0.3:443",target="pod a/b/c"} 0.003
perfdoctor_tcp_destination_rtt_seconds{destination="other",target="pod a/b/c"} 0.002
perfdoctor_tcp_destination_min_rtt_seconds{destination="10.0.0.1:443"} 0.005
perfdoctor_tcp_destination_min_rtt_seconds{destination="10.0.0.3:443"} 0.003
perfdoctor_tcp_destination_min_rtt_seconds{destination="other"} 0.001
perfdoctor_tcp_destination_syn_sent_retransmitting{destination="10.0.0.2:443"} 3
perfdoctor_tcp_destination_syn_sent_retransmitting{destination="10.0.0.3:443"} 4
perfdoctor_tcp_destination_syn_sent_retransmitting{destination="other"} 3
`
	if diff := cmp.Diff(want, text(t, l.add(rec))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Of two series of equal size, neither takes the other's place. A much larger one does, and what was counted stays
// where it was.
func TestPlaces(t *testing.T) {
	l := newLedger(HostName, 1, nil, func(string, int) {})
	window := func(a, b float64) string {
		group := func(n float64) func(*recording.Appender) {
			return func(ap *recording.Appender) {
				ap.Counter(metric.CgroupCPU, n*a, "/a", "")
				ap.Counter(metric.CgroupCPU, n*b, "/b", "")
			}
		}
		return text(t, l.add(record(group(0), group(1))))
	}
	series := func(name, value string) string {
		return fmt.Sprintf("perfdoctor_cgroup_cpu_seconds_total{cgroup=%q} %s\n", name, value)
	}
	for i, step := range []struct {
		a, b float64
		want string
	}{
		{5, 4, series("/a", "5") + series("other", "4")},
		{5, 9, series("/a", "10") + series("other", "13")},
		{1, 9, series("/b", "9") + series("other", "14")},
		{5, 9, series("/b", "18") + series("other", "19")},
	} {
		if diff := cmp.Diff(step.want, window(step.a, step.b)); diff != "" {
			t.Errorf("window %d (-want +got):\n%s", i, diff)
		}
	}
}

// 10,000 destinations and 2,000 control groups that come and go leave a bounded number of series, of values that are
// kept. The series say how many were folded.
func TestCardinality(t *testing.T) {
	const most = 50
	dropped := map[string]int{}
	l := newLedger(HostName, most, nil, func(family string, n int) { dropped[family] += n })
	for window := range 60 {
		sample := func(n float64) func(*recording.Appender) {
			return func(a *recording.Appender) {
				for i := range 500 { // the collector itself tells no more apart
					destination := fmt.Sprintf("10.%d.%d.%d:443", (window*500+i)>>16&255, (window*500+i)>>8&255,
						(window*500+i)&255)
					a.Gauge(metric.DestinationSockets, float64(i+1), "10.0.0.1", destination, "ESTABLISHED")
				}
				for i := range 500 {
					a.Counter(metric.CgroupCPU, n*float64(i+1), fmt.Sprintf("/pod%d", (window*37+i)%2000), "")
				}
			}
		}
		series := 0
		for _, mf := range l.add(record(sample(0), sample(1))) {
			series += len(mf.GetMetric())
		}
		if series > 2*(most+1) {
			t.Fatalf("window %d has %d series", window, series)
		}
		for name, f := range l.families {
			if len(f.members) > most || len(f.cells) > most+1 {
				t.Fatalf("window %d: %s keeps %d values and %d series", window, name, len(f.members), len(f.cells))
			}
		}
	}
	for _, family := range []string{"perfdoctor_tcp_destination_sockets", "perfdoctor_cgroup_cpu_seconds_total"} {
		if n := dropped[family]; n < 60*400 {
			t.Errorf("%s: only %d values were counted as dropped", family, n)
		}
	}
}

func TestHistograms(t *testing.T) {
	flow := []string{"target", "client", "10.0.0.5:443", "1", "curl"}
	sample := func(fast, slow, beyond, seconds float64) func(*recording.Appender) {
		return func(a *recording.Appender) {
			a.Counter(metric.ConnectDurations, fast, append(flow, "1.6384e-05")...)
			a.Counter(metric.ConnectDurations, slow, append(flow, "0.0671089")...)
			a.Counter(metric.ConnectDurations, beyond, append(flow, "+Inf")...)
			a.Counter(metric.ConnectSeconds, seconds, flow...)
		}
	}
	h := newHistograms(HostName)
	h.add(record(sample(10, 0, 0, 1), sample(12, 1, 0, 1.07)))
	families := h.add(record(sample(12, 1, 0, 1.07), sample(12, 1, 3, 91.07)))
	want := `perfdoctor_tcp_connect_duration_seconds_bucket{target="host",le="1.6384e-05"} 2
perfdoctor_tcp_connect_duration_seconds_bucket{target="host",le="0.0671089"} 3
perfdoctor_tcp_connect_duration_seconds_bucket{target="host",le="+Inf"} 6
perfdoctor_tcp_connect_duration_seconds_sum{target="host"} 90.07
perfdoctor_tcp_connect_duration_seconds_count{target="host"} 6
`
	if diff := cmp.Diff(want, text(t, families)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	native := families[0].GetMetric()[0].GetHistogram()
	// 4^-8 s are 15.3 µs, 4^-2 s are 0.0625 s; the rest is in the next bucket.
	var index, count int64
	got := map[int64]int64{}
	at := 0
	for _, span := range native.GetPositiveSpan() {
		index += int64(span.GetOffset())
		for range span.GetLength() {
			count += native.GetPositiveDelta()[at]
			got[index] = count
			index++
			at++
		}
	}
	if diff := cmp.Diff(map[int64]int64{-8: 2, -2: 1, -1: 3}, got); diff != "" || native.GetSchema() != -1 {
		t.Errorf("schema %d, buckets by their power of four (-want +got):\n%s", native.GetSchema(), diff)
	}
}
