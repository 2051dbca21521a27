package load_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rsa"
	"crypto/tls"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/lab/load"
)

func TestMain(m *testing.M) {
	if code, child := lab.RunIfChild(); child {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve runs a server until the test ends, or until the returned function is called for the server's results.
func serve(t testing.TB, p load.ServerPlan, d load.Dialer) (addr string, stop func() load.ServerStats) {
	t.Helper()
	s, stop := start(t, p, d)
	return s.Addr().String(), stop
}

func start(t testing.TB, p load.ServerPlan, d load.Dialer) (s *load.Server, stop func() load.ServerStats) {
	t.Helper()
	if p.Listen == "" {
		p.Listen = "127.0.0.1:0"
	}
	s, err := load.Listen(p, d)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var stats load.ServerStats
	go func() {
		defer close(done)
		stats = s.Run(ctx)
	}()
	stop = func() load.ServerStats {
		cancel()
		<-done
		return stats
	}
	t.Cleanup(func() { stop() })
	return s, stop
}

func run(t testing.TB, p load.Plan, d load.Dialer) load.Result {
	t.Helper()
	got, err := load.Run(context.Background(), p, d)
	must(t, err)
	checkSums(t, got)
	return got
}

// checkSums checks what holds for every result.
func checkSums(t testing.TB, r load.Result) {
	t.Helper()
	var requests, conns, errors uint64
	var length time.Duration
	for _, s := range r.Seconds {
		requests += s.Requests
		conns += s.Conns
		length += s.For
		for _, n := range s.Errors {
			errors += n
		}
	}
	if requests != r.Requests || conns != r.Conns || errors != r.ErrorCount() || r.Latency.Count() != r.Requests {
		t.Errorf("seconds have %d requests, %d connections, %d errors, latencies of %d; the result %+v",
			requests, conns, errors, r.Latency.Count(), r)
	}
	if last := r.Seconds[len(r.Seconds)-1]; last.At != length || length > r.Elapsed+time.Second {
		t.Errorf("the last second ends at %v, all are %v long, the load %v", last.At, length, r.Elapsed)
	}
}

// TestExactCounts: not one request, connection or byte more or less, in each way to use connections.
func TestExactCounts(t *testing.T) {
	const count = 120
	// A server slow enough that each of several workers gets its turn.
	turns := load.ServerPlan{ServiceTime: time.Millisecond}
	tcpTurns := load.ServerPlan{ServiceTime: time.Millisecond, Protocol: load.TCP}
	tests := []struct {
		name   string
		server load.ServerPlan
		plan   load.Plan
		conns  uint64
	}{
		{"http kept", turns, load.Plan{Connections: 3}, 3},
		{"http short", load.ServerPlan{}, load.Plan{Connections: 3, RequestsPerConn: 1}, count},
		{"http 5 each", load.ServerPlan{}, load.Plan{RequestsPerConn: 5}, count / 5},
		{
			"http reset",
			load.ServerPlan{},
			load.Plan{Connections: 2, RequestsPerConn: 1, Close: load.ClientResets},
			count,
		},
		{"http server closes", load.ServerPlan{RequestsPerConn: 10}, load.Plan{}, count / 10},
		{"http open loop", load.ServerPlan{}, load.Plan{Rate: 400, Connections: 4, RequestsPerConn: 1}, count},
		{"tcp kept", tcpTurns, load.Plan{Protocol: load.TCP, Connections: 3}, 3},
		{"tcp short", load.ServerPlan{Protocol: load.TCP}, load.Plan{Protocol: load.TCP, RequestsPerConn: 1}, count},
		{
			"tcp server closes",
			load.ServerPlan{Protocol: load.TCP, RequestsPerConn: 4},
			load.Plan{Protocol: load.TCP, RequestsPerConn: 4, Close: load.ServerCloses},
			count / 4,
		},
		{
			"tcp sizes",
			load.ServerPlan{Protocol: load.TCP, RequestBytes: 5, ResponseBytes: 70_000},
			load.Plan{Protocol: load.TCP, RequestBytes: 5, ResponseBytes: 70_000},
			1,
		},
		{"connect", load.ServerPlan{Protocol: load.TCP}, load.Plan{Protocol: load.Connect, Connections: 2}, count},
		{"tls", load.ServerPlan{TLS: load.ECDSAKey}, load.Plan{TLS: load.FullTLS, RequestsPerConn: 20}, 6},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server, stop := start(t, test.server, nil)
			test.plan.Target, test.plan.Count = server.Addr().String(), count
			got := run(t, test.plan, nil)
			if got.Requests != count || got.ErrorCount() != 0 || got.Unfinished != 0 || got.Retries != 0 {
				t.Errorf("got %+v, want %d requests", got, count)
			}
			if got.Conns != test.conns {
				t.Errorf("%d connections, want %d", got.Conns, test.conns)
			}
			if want := count * requestBytes(test.plan); got.BytesSent != want {
				t.Errorf("%d bytes sent, want %d", got.BytesSent, want)
			}
			awaitConns(t, server.Stats, got.Conns)
			answered := uint64(count)
			if test.plan.Protocol == load.Connect {
				answered = 0
			}
			if s := stop(); s.Conns != got.Conns || s.Requests != answered || len(s.Errors) > 0 {
				t.Errorf("server %+v, client %d connections", s, got.Conns)
			}
		})
	}
}

// awaitConns waits until the server has accepted n connections, because a client can be done while they are in the
// queue.
func awaitConns(t testing.TB, stats func() load.ServerStats, n uint64) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); stats().Conns < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the server accepted %d connections, want %d", stats().Conns, n)
		}
	}
}

func requestBytes(p load.Plan) uint64 {
	switch p.Protocol {
	case load.Connect:
		return 0
	case load.TCP:
		return uint64(cmp.Or(p.RequestBytes, 64))
	default:
		return uint64(len("GET / HTTP/1.1\r\nHost: \r\nUser-Agent: perfdoctor-load\r\n\r\n") + len(p.Target))
	}
}

// TestCoordinatedOmission: a server stops for 300 ms in the middle. Of an open loop's requests 30 % fall due meanwhile.
// The first 1 % of all wait 290 ms or more, the first 10 % wait 200 ms. A closed loop makes one request in that time.
// With 2 connections most of the wait is for a free one, with 100 for the answer.
func TestCoordinatedOmission(t *testing.T) {
	const ms = time.Millisecond
	stall := load.ServerPlan{Stall: load.Stall{After: 300 * ms, For: 300 * ms}}
	plan := load.Plan{Duration: 1000 * ms, Connections: 1}

	plan.Target, _ = serve(t, stall, nil)
	closed := run(t, plan, nil)
	t.Logf("closed loop: %v", closed)
	if closed.Latency.Quantile(0.99) > 150*ms || closed.Latency.Max() < 250*ms {
		t.Error("closed loop: want the stop in the maximum only")
	}
	for _, connections := range []int{2, 100} {
		plan.Target, _ = serve(t, stall, nil)
		plan.Rate, plan.Connections = 200, connections
		open := run(t, plan, nil)
		t.Logf("open loop, %d connections: %v", connections, open)
		if open.Requests != 200 || open.Unfinished != 0 {
			t.Errorf("%d connections: %d unfinished, want all 200 answered", connections, open.Unfinished)
		}
		if open.Latency.Quantile(0.99) < 270*ms || open.Latency.Quantile(0.9) < 170*ms {
			t.Errorf("%d connections: want the stop in p99 and p90", connections)
		}
	}
}

// TestUnfinished: requests that a stopped server never answers are counted, not lost.
func TestUnfinished(t *testing.T) {
	addr, _ := serve(t, load.ServerPlan{Stall: load.Stall{For: time.Minute}}, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	got, err := load.Run(ctx, load.Plan{Target: addr, Rate: 100, Duration: time.Second, Connections: 5}, nil)
	must(t, err)
	due := uint64(got.Elapsed/(10*time.Millisecond)) + 1 // at 0, 10, ... ms
	if got.Requests != 0 || got.ErrorCount() != 0 || got.Unfinished < 30 || got.Unfinished+2 < due ||
		got.Unfinished > due {
		t.Errorf("got %+v, want %d unfinished requests", got, due)
	}
}

func TestTimeout(t *testing.T) {
	addr, _ := serve(t, load.ServerPlan{ServiceTime: 5 * time.Second}, nil)
	got := run(t, load.Plan{Target: addr, Count: 2, Connections: 2, Timeout: 100 * time.Millisecond}, nil)
	if diff := gocmp.Diff(map[string]uint64{"ETIMEDOUT": 2}, got.Errors); diff != "" || got.Requests != 0 {
		t.Errorf("%d requests, errors (-want +got):\n%s", got.Requests, diff)
	}
}

// TestSteps: the series shows the profile, and live lines appear while it runs.
func TestSteps(t *testing.T) {
	addr, _ := serve(t, load.ServerPlan{}, nil)
	var live bytes.Buffer
	got := run(t, load.Plan{
		Target: addr, Live: &live,
		Steps: []load.Step{
			{100, time.Second}, {400, time.Second}, {0, 500 * time.Millisecond}, {100, 100 * time.Millisecond},
		},
	}, nil)
	if got.Requests != 510 || len(got.Seconds) != 3 {
		t.Fatalf("got %+v, want 100 + 400 + 10 requests in three seconds", got)
	}
	for i, want := range []float64{100, 400, 10} {
		// late answers fall over the edge of a second
		if n := float64(got.Seconds[i].Requests); math.Abs(n-want) > 0.25*want+10 {
			t.Errorf("second %d: %v requests, want %v", i+1, n, want)
		}
	}
	lines := strings.Split(strings.TrimSpace(live.String()), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "1s: ") || !strings.Contains(lines[1], " TPS, p50 ") {
		t.Errorf("live lines:\n%s", live.String())
	}
	if got.Elapsed < 2500*time.Millisecond || got.CPUUser+got.CPUSystem <= 0 {
		t.Errorf("elapsed %v, CPU %v + %v", got.Elapsed, got.CPUUser, got.CPUSystem)
	}
}

// TestResumption: the server's own count shows whether handshakes were short.
func TestResumption(t *testing.T) {
	tests := []struct {
		name     string
		session  load.Session
		noResume bool
		want     uint64
	}{{"full", load.FullTLS, false, 0}, {"resume", load.ResumeTLS, false, 19}, {"refused", load.ResumeTLS, true, 0}}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			addr, stop := serve(t, load.ServerPlan{TLS: load.RSAKey, NoResume: test.noResume}, nil)
			got := run(t, load.Plan{Target: addr, TLS: test.session, Count: 20, RequestsPerConn: 1}, nil)
			if s := stop(); got.Resumed != test.want || s.Resumed != test.want || got.Conns != 20 ||
				got.Requests != 20 {
				t.Errorf("client resumed %d of %d, server %d; want %d of 20", got.Resumed, got.Conns, s.Resumed,
					test.want)
			}
		})
	}
}

// TestKeys checks what a client sees of a server's key.
func TestKeys(t *testing.T) {
	for key, bits := range map[load.Key]int{load.RSAKey: 2048, load.RSA4096Key: 4096} {
		t.Run(string(key), func(t *testing.T) {
			addr, stop := serve(t, load.ServerPlan{TLS: key}, nil)
			defer stop()
			conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true}) // it signs its own certificate
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			public, ok := conn.ConnectionState().PeerCertificates[0].PublicKey.(*rsa.PublicKey)
			if !ok || public.N.BitLen() != bits {
				t.Errorf("the key is %T of %v, want RSA of %d bits", public, public, bits)
			}
		})
	}
}

// TestForeignServer: net/http answers in chunks, with statuses, and closes kept connections that are idle.
func TestForeignServer(t *testing.T) {
	var n atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "shop" || r.URL.Path != "/cart" {
			w.WriteHeader(http.StatusTeapot)
		}
		if n.Add(1)%10 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		for range 3 {
			_, _ = w.Write(make([]byte, 3000))
			_ = http.NewResponseController(w).Flush()
		}
	}))
	server.Config.IdleTimeout = 50 * time.Millisecond
	server.Start()
	defer server.Close()
	plan := load.Plan{Target: server.Listener.Addr().String(), Host: "shop", Path: "/cart", Count: 40}
	got := run(t, plan, nil)
	if diff := gocmp.Diff(map[string]uint64{"HTTP 503": 4}, got.Errors); diff != "" || got.Requests != 36 ||
		got.Conns != 1 {
		t.Errorf("%d requests on %d connections, errors (-want +got):\n%s", got.Requests, got.Conns, diff)
	}
	if got.BytesReceived < 36*9000 {
		t.Errorf("%d bytes received, want more than the bodies", got.BytesReceived)
	}
	plan.Count, plan.Connections, plan.Rate = 3, 1, 5 // one each 200 ms: the server has closed by then
	got = run(t, plan, nil)
	if got.Requests != 3 || got.Conns != 3 || got.Retries != 2 || got.ErrorCount() != 0 {
		t.Errorf("got %+v, want 3 requests on 3 connections, 2 sent again", got)
	}
}

// TestOthers: connections go to the targets in turn. If one refuses, they go to the others.
func TestOthers(t *testing.T) {
	one, stopOne := start(t, load.ServerPlan{}, nil)
	two, stopTwo := start(t, load.ServerPlan{}, nil)
	closed, stopClosed := start(t, load.ServerPlan{}, nil)
	stopClosed()
	got := run(t, load.Plan{
		Target: one.Addr().String(), Others: []string{closed.Addr().String(), two.Addr().String()},
		Count: 30, RequestsPerConn: 1,
	}, nil)
	if got.Requests != 30 || got.ErrorCount() != 0 {
		t.Errorf("got %+v, want 30 requests and no error", got)
	}
	// Of three turns the second is refused and becomes the third: one, two, one, two.
	if a, b := stopOne().Conns, stopTwo().Conns; a != 15 || b != 15 {
		t.Errorf("%d and %d connections, want 15 each", a, b)
	}
	for _, plan := range []load.Plan{
		{Target: closed.Addr().String(), Others: []string{closed.Addr().String()}, Count: 1},
		{Target: one.Addr().String(), Others: []string{"nowhere"}, Count: 1},
	} {
		got, err := load.Run(context.Background(), plan, nil)
		if refused := got.Errors["ECONNREFUSED"] == 1; refused == (err != nil) {
			t.Errorf("others %v: %+v, error %v; want ECONNREFUSED or an error", plan.Others, got, err)
		}
	}
}

// TestWorkersWaitForUpstream: two workers that ask a server of 20 ms answer two requests in 20 ms, however many arrive.
func TestWorkersWaitForUpstream(t *testing.T) {
	for _, protocol := range []load.Protocol{load.HTTP, load.TCP} {
		t.Run(string(protocol), func(t *testing.T) {
			behind, stopBehind := start(t, load.ServerPlan{ServiceTime: 20 * time.Millisecond, Protocol: protocol}, nil)
			proxy, stop := start(t, load.ServerPlan{Upstream: behind.Addr().String(), Workers: 2, Protocol: protocol},
				nil)
			got := run(t, load.Plan{
				Target: proxy.Addr().String(), Protocol: protocol, Count: 12, Connections: 6, RequestsPerConn: 1,
			}, nil)
			if got.Requests != 12 || got.ErrorCount() != 0 {
				t.Errorf("got %+v, want 12 requests and no error", got)
			}
			if least := 6 * 20 * time.Millisecond; got.Elapsed < least {
				t.Errorf("12 requests of two workers took %v, want %v or more", got.Elapsed, least)
			}
			if s := stop(); s.Conns != 12 || s.Requests != 12 || len(s.Errors) > 0 {
				t.Errorf("proxy %+v, want 12 connections with a request each", s)
			}
			if s := stopBehind(); s.Conns != 2 || s.Requests != 12 {
				t.Errorf("upstream %+v, want a connection of each worker for 12 requests", s)
			}
		})
	}
	// Two slots do the same for kept connections, which workers would not share.
	slots, _ := start(t, load.ServerPlan{ServiceTime: 20 * time.Millisecond, Slots: 2}, nil)
	if got := run(t, load.Plan{Target: slots.Addr().String(), Count: 12, Connections: 6},
		nil); got.Elapsed < 6*20*time.Millisecond {
		t.Errorf("12 requests through two slots took %v, want 120 ms or more", got.Elapsed)
	}
	// Without a bound each connection has its own to the upstream.
	behind, stopBehind := start(t, load.ServerPlan{}, nil)
	proxy, _ := start(t, load.ServerPlan{Upstream: behind.Addr().String()}, nil)
	run(t, load.Plan{Target: proxy.Addr().String(), Count: 12, RequestsPerConn: 4}, nil)
	if s := stopBehind(); s.Conns != 3 || s.Requests != 12 {
		t.Errorf("upstream %+v, want 3 connections for 12 requests", s)
	}
	if _, err := load.Listen(load.ServerPlan{Listen: "127.0.0.1:0", Upstream: "nowhere"}, nil); err == nil {
		t.Error("upstream nowhere: no error")
	}
}

// TestWholeConnections: several workers with a count of whole connections do not split any.
func TestWholeConnections(t *testing.T) {
	addr, stop := serve(t, load.ServerPlan{Protocol: load.TCP}, nil)
	got := run(t, load.Plan{Target: addr, Protocol: load.TCP, Connections: 4, RequestsPerConn: 3, Count: 30}, nil)
	if got.Requests != 30 || got.Conns != 10 || got.ErrorCount() != 0 {
		t.Errorf("%d requests on %d connections, %v: want 30 on 10", got.Requests, got.Conns, got.Errors)
	}
	if s := stop(); s.Conns != 10 {
		t.Errorf("the server saw %d connections, want 10", s.Conns)
	}
}

// TestKeptConnections: they stay open until the load's time is over, even if the server has closed them.
func TestKeptConnections(t *testing.T) {
	const length = 300 * time.Millisecond
	for _, server := range []load.ServerPlan{{Protocol: load.TCP}, {Protocol: load.Connect}, {HoldOpen: true}} {
		addr, stop := serve(t, server, nil)
		plan := load.Plan{Target: addr, Protocol: load.Connect, Count: 5, Close: load.ClientKeeps, Duration: length}
		got := run(t, plan, nil)
		if got.Conns != 5 || got.ErrorCount() != 0 || got.Elapsed < length {
			t.Errorf("%+v: %d connections, %v, for %v: want 5 for %v", server, got.Conns, got.Errors, got.Elapsed,
				length)
		}
		if s := stop(); s.Conns != 5 || len(s.Errors) != 0 {
			t.Errorf("%+v: the server saw %d connections, %v", server, s.Conns, s.Errors)
		}
	}
}

// TestAccepting: a server that accepts slowly, and one that never does. Connections are made anyway, up to the backlog.
func TestAccepting(t *testing.T) {
	plan := load.Plan{Protocol: load.Connect, Count: 3, Connections: 3}
	addr, stop := serve(t, load.ServerPlan{Protocol: load.TCP, NeverAccept: true}, nil)
	plan.Target = addr
	if got := run(t, plan, nil); got.Conns != 3 {
		t.Errorf("never accepted: %d connections, %v: want 3 in the queue", got.Conns, got.Errors)
	}
	if s := stop(); s.Conns != 0 {
		t.Errorf("%d were accepted", s.Conns)
	}
	const rate = 20
	begun := time.Now()
	server, stop := start(t, load.ServerPlan{Protocol: load.TCP, AcceptRate: rate}, nil)
	plan.Target = server.Addr().String()
	run(t, plan, nil)
	awaitConns(t, server.Stats, 3)
	if took := time.Since(begun); took < 3*time.Second/rate {
		t.Errorf("three were accepted in %v, at %d a second", took, rate)
	}
	stop()
}

// TestMappedAddress: an IPv4 address written as IPv6 is IPv4, for the client and its source as well as for the server.
func TestMappedAddress(t *testing.T) {
	addr, _ := serve(t, load.ServerPlan{Listen: "[::ffff:127.0.0.1]:0", Protocol: load.TCP}, nil)
	if !strings.HasPrefix(addr, "127.0.0.1:") {
		t.Errorf("it listens on %s", addr)
	}
	plan := load.Plan{
		Target: "[::ffff:127.0.0.1]:" + addr[strings.LastIndex(addr, ":")+1:], BindIP: "::ffff:127.0.0.2",
		Protocol: load.TCP, Count: 1,
	}
	if got := run(t, plan, nil); got.Requests != 1 || got.ErrorCount() != 0 {
		t.Errorf("%d answers, %v", got.Requests, got.Errors)
	}
}
