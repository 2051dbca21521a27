package ebpf

import (
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/metric"
)

// BenchmarkConnections is where the figures of bpf-connections' Overhead come from: short connections on loopback, with the
// programs and without, in turns.
func BenchmarkConnections(b *testing.B) {
	h := newHost(b)
	if err := h.Sysctl("net.ipv4.tcp_tw_reuse", "1"); err != nil {
		b.Fatal(err)
	}
	addr := listen(b, h, "127.0.0.1:0", lab.ServeOptions{Duration: 5 * time.Minute})
	const turn = 2000
	var with, without time.Duration
	var turns, runs, seconds float64
	one := func() time.Duration {
		began := time.Now()
		connect(b, h, addr, lab.ClientOptions{Count: turn, Concurrency: 2, Requests: 1, CloseFirst: true})
		return time.Since(began)
	}
	for b.Loop() {
		without += one()
		o := openNamed(b, connectionsName, inHost(b, h))
		with += one()
		rec := o.done()
		o.close()
		runs += total(rec, metric.BPFRuns)
		seconds += total(rec, metric.BPFSeconds)
		turns++
	}
	b.ReportMetric(seconds/runs*1e9, "ns/run")
	b.ReportMetric(seconds/turns/turn*1e9, "bpf-ns/connection")
	b.ReportMetric(turns*turn/with.Seconds(), "connections/s")
	b.ReportMetric(without.Seconds()/with.Seconds(), "throughput-ratio")
}
