package ebpf

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

const softirqName = "bpf-softirq"

// softirqCount is the second source: what the kernel counts of a vector, on all CPUs.
func softirqCount(t *testing.T, vector string) float64 {
	t.Helper()
	b, err := os.ReadFile("/proc/softirqs")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if fields[0] != vector+":" {
			continue
		}
		sum := 0.0
		for _, f := range fields[1:] {
			n, err := strconv.ParseFloat(f, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		return sum
	}
	t.Fatalf("/proc/softirqs has no %s", vector)
	return 0
}

// TestSoftirqs compares counts with the kernel's own, and time with that of the ticks.
func TestSoftirqs(t *testing.T) {
	o := openNamed(t, softirqName, collect.Env{Host: host.Local(), Target: host.Target{Kind: host.KindHost}})
	h := newHost(t)
	addr := listen(t, h, "127.0.0.1:0", lab.ServeOptions{})
	read := func() (outer, inner, outer2 float64) {
		outer = softirqCount(t, "NET_RX")
		b := recording.NewBuilder()
		a := b.Appender()
		if err := o.src.Sample(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		a.Commit()
		return outer, total(b.Done(recording.Meta{}), metric.SoftirqRuns, "vector", "NET_RX"), softirqCount(t, "NET_RX")
	}
	lo1, n1, hi1 := read()
	began := time.Now()
	connect(t, h, addr, lab.ClientOptions{Count: 5003, Concurrency: 2, KeepAlive: true, CloseFirst: true})
	took := time.Since(began)
	lo2, n2, hi2 := read()
	// Others on this machine have softirqs, too: the kernel's count just before and just after must enclose ours.
	if got := n2 - n1; got < lo2-hi1 || got > hi2-lo1 || got < 5003 {
		t.Errorf("%v NET_RX softirqs, /proc/softirqs has %v to %v", got, lo2-hi1, hi2-lo1)
	}
	rec := o.done()
	seconds := total(rec, metric.SoftirqSeconds)
	t.Logf("%v softirqs NET_RX of 5003 requests; %.1f ms in softirqs, %.1f ms in hardware interrupts, in %v", n2-n1, seconds*1e3,
		total(rec, metric.HardirqSeconds)*1e3, took)
	if seconds <= 0 || total(rec, metric.SoftirqSeconds, "vector", "NET_RX") <= 0 || total(rec, metric.HardirqRuns) == 0 {
		t.Error("no time in interrupts")
	}
	for _, s := range rec.Counter(metric.SoftirqSeconds) {
		if v := s.Points[len(s.Points)-1].Value; v > 2*took.Seconds()+1 {
			t.Errorf("CPU %s %s: %v s", s.Label("cpu"), s.Label("vector"), v)
		}
	}
}
