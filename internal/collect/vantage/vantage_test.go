package vantage_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/collect/vantage"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

const ms = time.Millisecond

func listen(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func TestPing(t *testing.T) {
	plan := vantage.Plan{
		Name: metric.VantageOutside, Destination: listen(t), Duration: 500 * ms, Interval: 100 * ms,
		Version: "test",
	}
	rec, err := plan.Ping(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rtts := rec.Gauge(metric.VantageRTT, "vantage", metric.VantageOutside, "destination", plan.Destination.String())
	if len(rtts) != 1 || len(rtts[0].Points) < 2 || rtts[0].Min() <= 0 || rtts[0].Max() > 0.5 {
		t.Errorf("round trips %v; want one series of several, above 0", rtts)
	}
	if sent := rec.Counter(metric.VantagePings); len(sent) != 1 ||
		int(sent[0].Points[len(sent[0].Points)-1].Value) != len(rtts[0].Points) {
		t.Errorf("pings %v; want as many as round trips, %d", sent, len(rtts[0].Points))
	}
	if lost := rec.Counter(metric.VantageUnanswered); len(lost) != 1 ||
		lost[0].Points[len(lost[0].Points)-1].Value != 0 {
		t.Errorf("unanswered %v; want 0", lost)
	}
	if d := rec.Meta.Duration; d < 0.4 || d > 5 || rec.Meta.Version != "test" {
		t.Errorf("meta %+v", rec.Meta)
	}
}

// TestPingUnanswered: a listener with a full queue drops each further SYN, as a lossy path does.
func TestPingUnanswered(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	shortQueue(t, raw)
	to := l.Addr().(*net.TCPAddr).AddrPort()
	for range 2 { // a queue of 0 takes one
		c, err := net.DialTimeout("tcp", to.String(), 100*ms)
		if err == nil {
			defer c.Close()
		}
	}
	rec, err := vantage.Plan{Name: metric.VantageNeighbour, Destination: to, Duration: 500 * ms, Interval: 100 *
		ms}.Ping(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if lost := rec.Counter(metric.VantageUnanswered); len(lost) != 1 || lost[0].Points[0].Value != 1 {
		t.Errorf("unanswered %v; want the first", lost)
	}
	if rtts := rec.Gauge(metric.VantageRTT); len(rtts) != 0 {
		t.Errorf("round trips %v; want none", rtts)
	}
}

// shortQueue makes a listener's queue as short as possible: a second listen(2) changes it.
func shortQueue(t *testing.T, raw syscall.RawConn) {
	t.Helper()
	var failed error
	err := raw.Control(func(fd uintptr) { failed = unix.Listen(int(fd), 0) })
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
}

func TestPingRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to := l.Addr().(*net.TCPAddr).AddrPort()
	_ = l.Close()
	_, err = vantage.Plan{Name: metric.VantageHere, Destination: to, Duration: 100 * ms, Interval: 100 * ms}.Ping(
		t.Context())
	if err == nil || !strings.Contains(err.Error(), "nobody listens there") {
		t.Errorf("error %v; want that nobody listens", err)
	}
}

func TestPingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	_, err := vantage.Plan{
		Name: metric.VantageHere, Destination: listen(t), Duration: time.Minute,
		Interval: time.Second,
	}.Ping(ctx)
	if err != nil || time.Since(began) > 10*time.Second {
		t.Errorf("error %v after %v", err, time.Since(began))
	}
}

func TestPlanCheck(t *testing.T) {
	to := netip.MustParseAddrPort("192.0.2.1:80")
	for name, plan := range map[string]vantage.Plan{
		"vantage":     {Name: "there", Destination: to, Duration: time.Second, Interval: 100 * ms},
		"destination": {Name: metric.VantageHere, Duration: time.Second, Interval: 100 * ms},
		"interval":    {Name: metric.VantageHere, Destination: to, Duration: time.Second, Interval: ms},
		"duration":    {Name: metric.VantageHere, Destination: to, Duration: 2 * time.Hour, Interval: 100 * ms},
		"short":       {Name: metric.VantageHere, Destination: to, Duration: 100 * ms, Interval: time.Second},
	} {
		if _, err := plan.Ping(t.Context()); !errors.Is(err, vantage.ErrPlan) {
			t.Errorf("%s: error %v, want ErrPlan", name, err)
		}
	}
}

// TestAdd: round trips from 10:00:02 to :08 meet a diagnosis from 10:00:04 to :09. It keeps those within.
func TestAdd(t *testing.T) {
	diagnosis := open(t, "2026-11-20T10:00:04Z", 5, `{"t":0.000000,"m":{"load1":[[1]]}}`)
	other := open(t, "2026-11-20T10:00:02Z", 6, `{"t":0.000000,"m":{"vantage_rtt_seconds":[["outside","192.0.2.1:80",0.1]],"vantage_pings_total":[["outside","192.0.2.1:80",1]]}}
{"t":3.000000,"m":{"vantage_rtt_seconds":[["outside","192.0.2.1:80",0.2]],"vantage_pings_total":[["outside","192.0.2.1:80",2]]}}
{"t":6.000000,"m":{"vantage_rtt_seconds":[["outside","192.0.2.1:80",0.3]],"vantage_pings_total":[["outside","192.0.2.1:80",3]]}}
`)
	with, err := vantage.Add(diagnosis, other)
	if err != nil {
		t.Fatal(err)
	}
	got := with.Gauge(metric.VantageRTT)
	if len(got) != 1 || len(got[0].Points) != 2 || got[0].Points[0] != (recording.Point{At: time.Second, Value: 0.2}) ||
		got[0].Points[1] != (recording.Point{At: 4 * time.Second, Value: 0.3}) {
		t.Errorf("round trips %+v; want 0.2 s at 1 s and 0.3 s at 4 s", got)
	}
	if diagnosis.Recorded(metric.VantageRTT) {
		t.Error("the diagnosis itself was changed")
	}
	path := t.TempDir() + "/both.zip"
	if err := with.Save(path); err != nil {
		t.Fatal(err)
	}
	back, err := recording.Open(path)
	if err != nil || len(back.Gauge(metric.VantageRTT)) != 1 {
		t.Errorf("read back: %v", err)
	}
}

func TestAddRefuses(t *testing.T) {
	diagnosis := open(t, "2026-11-20T10:00:04Z", 5, `{"t":0.000000,"m":{"load1":[[1]]}}`)
	before := open(t, "2026-11-20T09:00:00Z", 6,
		`{"t":0.000000,"m":{"vantage_rtt_seconds":[["outside","192.0.2.1:80",0.1]],"vantage_pings_total":[["outside","192.0.2.1:80",1]]}}`)
	if _, err := vantage.Add(diagnosis, before); !errors.Is(err, vantage.ErrApart) || !strings.Contains(err.Error(),
		"192.0.2.1:80") {
		t.Errorf("an hour before: error %v, want ErrApart", err)
	}
	if _, err := vantage.Add(diagnosis, diagnosis); !errors.Is(err, recording.ErrFormat) {
		t.Errorf("without a round trip: error %v, want ErrFormat", err)
	}
}

// open gives a recording of these samples.
func open(t *testing.T, started string, seconds float64, samples string) *recording.Recording {
	t.Helper()
	path := t.TempDir() + "/r.txtar"
	meta := `{"schema": 1, "perfdoctor": "test", "started": "` + started + `", "duration_seconds": ` +
		strconv.FormatFloat(seconds, 'g', -1, 64) +
		`, "interval_seconds": 1, "asked_seconds": 5, "target": {"kind": "host"}, "collectors": [], "cost": {}}`
	if err := os.WriteFile(path, []byte("-- meta.json --\n"+meta+"\n-- samples.jsonl --\n"+samples+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	rec, err := recording.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}
