package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"
)

// near allows the 0.1 % of three digits.
func near(got, want time.Duration) bool { return got >= want-want/1000 && got <= want+want/1000 }

func TestHistogram(t *testing.T) {
	var all, odd, even Histogram
	if all.Count() != 0 || all.Quantile(0.99) != 0 || all.Max() != 0 || all.Mean() != 0 {
		t.Error("an empty histogram has something")
	}
	for i := 1; i <= 10_000; i++ {
		d := time.Duration(i) * time.Millisecond
		all.record(d)
		if i%2 == 1 {
			odd.record(d)
		} else {
			even.record(d)
		}
	}
	for q, want := range map[float64]time.Duration{
		0.5: 5 * time.Second, 0.99: 9900 * time.Millisecond, 0.999: 9990 * time.Millisecond,
	} {
		if got := all.Quantile(q); !near(got, want) {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if !near(all.Max(), 10*time.Second) || !near(all.Mean(), 5000500*time.Microsecond) || all.Count() != 10_000 {
		t.Errorf("max %v, mean %v, count %d", all.Max(), all.Mean(), all.Count())
	}
	odd.Merge(even)
	odd.Merge(Histogram{})
	if !odd.hdr.Equals(all.hdr) {
		t.Errorf("merged %v, want %v", odd, all)
	}
}

func TestHistogramExport(t *testing.T) {
	var h Histogram
	for _, d := range []time.Duration{0, time.Microsecond, 3 * time.Millisecond, 2 * time.Hour} {
		h.record(d) // the last is beyond the highest
	}
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	var back Histogram
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if !back.hdr.Equals(h.hdr) || back.Count() != 4 || !near(back.Max(), highest) {
		t.Errorf("read %v of %s", back, text)
	}
	export, err := h.Export()
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := hdr.Decode(export)
	if err != nil || foreign.TotalCount() != 4 {
		t.Errorf("decoded %v, error %v", foreign, err)
	}
	for _, bad := range []string{`{"hdr":"AAAA"}`, `{"hdr":""}`, `7`} {
		if err := json.Unmarshal([]byte(bad), &back); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}

func TestResultMerge(t *testing.T) {
	a := Result{
		Elapsed: 2 * time.Second, Requests: 10, CPUUser: time.Second, Errors: map[string]uint64{"EOF": 1},
		Seconds: []Second{{At: time.Second, For: time.Second, Requests: 10, P99: 5, Errors: map[string]uint64{
			"EOF": 1,
		}}},
	}
	b := Result{
		Elapsed: time.Second, Requests: 5, CPUUser: time.Second, Errors: map[string]uint64{"EOF": 2, "EPIPE": 1},
		Seconds: []Second{{At: time.Second, For: time.Second, Requests: 4, P99: 7}, {At: 2 * time.Second, Requests: 1}},
	}
	a.Latency.record(time.Second)
	b.Latency.record(time.Millisecond)
	a.Merge(b)
	if a.Latency.Count() != 2 || a.ErrorCount() != 4 || a.CPUPerRequest() != 2*time.Second/15 || a.TPS() != 7.5 {
		t.Errorf("%+v", a)
	}
	a.Latency = Histogram{}
	want := Result{
		Elapsed: 2 * time.Second, Requests: 15, CPUUser: 2 * time.Second, Errors: map[string]uint64{
			"EOF":   3,
			"EPIPE": 1,
		},
		Seconds: []Second{
			{At: time.Second, For: time.Second, Requests: 14, P99: 7, Errors: map[string]uint64{"EOF": 1}},
			{At: 2 * time.Second, Requests: 1},
		},
	}
	if diff := cmp.Diff(want, a, cmp.AllowUnexported(Histogram{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLiveLine(t *testing.T) {
	tests := []struct {
		second Second
		want   string
	}{
		{
			Second{
				At: 3 * time.Second, For: time.Second, Requests: 9876, Conns: 12,
				Errors: map[string]uint64{"EADDRNOTAVAIL": 30, "EOF": 1},
				P50:    1234567, P99: 3456789, Max: 9876543,
			},
			"3s: 9876 TPS, p50 1.23ms, p99 3.46ms, max 9.88ms, 12 connections, 30 EADDRNOTAVAIL, 1 EOF",
		},
		{Second{At: 1500 * time.Millisecond, For: 500 * time.Millisecond}, "1.5s: 0 TPS"},
		{
			Second{At: 500 * time.Millisecond, For: 500 * time.Millisecond, Requests: 2, P50: 70 * time.Microsecond},
			"500ms: 4 TPS, p50 70µs, p99 0s, max 0s",
		},
	}
	for _, test := range tests {
		if got := test.second.String(); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func TestResultLine(t *testing.T) {
	r := Result{
		Elapsed: 2500 * time.Millisecond, Requests: 2, Conns: 4, Retries: 1, CPUUser: 22 * time.Microsecond,
		Errors: map[string]uint64{"EOF": 3},
	}
	r.Latency.record(time.Millisecond)
	r.Latency.record(3 * time.Millisecond)
	want := "2 requests in 2.5s: 1 TPS, p50 1ms p90 3ms p99 3ms p99.9 3ms max 3ms; 4 connections, 1 sent again; " +
		"11µs CPU each; 3 EOF"
	if got := r.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := (Result{Elapsed: time.Second, Errors: map[string]uint64{"EADDRNOTAVAIL": 7}}).String(); got !=
		"0 requests in 1s: 0 TPS; 0 connections; 7 EADDRNOTAVAIL" {
		t.Errorf("got %s", got)
	}
}

func TestErrorName(t *testing.T) {
	for want, err := range map[string]error{
		"ECONNRESET": fmt.Errorf("read: %w", &os.PathError{Err: syscall.ECONNRESET}),
		"ETIMEDOUT":  fmt.Errorf("read: %w", os.ErrDeadlineExceeded),
		"EOF":        errors.Join(errStale, io.EOF),
		"HTTP 503":   statusError(503),
		"strange":    errors.New("strange"),
	} {
		if got := ErrorName(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}

// A peer that puts something new into each error must not fill the memory.
func TestErrorNamesAreBounded(t *testing.T) {
	rec, err := newRecorder()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		rec.fail(fmt.Errorf("error %d", i))
	}
	got, err := rec.snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if got.ErrorCount() != 1000 || len(got.Errors) > 2*(maxErrorNames+1) { // the test may see a second end
		t.Errorf("%d errors of %d names", got.ErrorCount(), len(got.Errors))
	}
}
