package load_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/lab/labtest"
	"github.com/perfdoctor/perfdoctor/internal/lab/load"
)

const serverAddr = "10.90.0.2:9000"

// pair is a client with the given local ports and a server, joined by a veth pair, 10.90.0.1 and 10.90.0.2.
func pair(t *testing.T, ports string) (client, server *lab.Host) {
	t.Helper()
	l := labtest.New(t)
	client, err := l.Host("client")
	must(t, err)
	server, err = l.Host("server")
	must(t, err)
	_, _, err = l.Link(client, server, "10.90.0.1/24", "10.90.0.2/24")
	must(t, err)
	must(t, client.Sysctl("net.ipv4.ip_local_port_range", ports))
	must(t, client.Sysctl("net.ipv4.tcp_tw_reuse", "0"))
	// When the machine stalls for an RTO, the server's second FIN ends in a RST, which would free a port in TIME_WAIT.
	must(t, client.Sysctl("net.ipv4.tcp_rfc1337", "1"))
	return client, server
}

const (
	ports50  = "40000 40049"
	portsAll = "20000 60000"
)

func TestErrno(t *testing.T) {
	tests := []struct {
		name     string
		plan     load.Plan
		requests uint64
		want     map[string]uint64
	}{
		{
			"refused",
			load.Plan{Target: "10.90.0.2:9001", Protocol: load.Connect, Count: 5},
			0,
			map[string]uint64{"ECONNREFUSED": 5},
		},
		{
			"ports used up",
			load.Plan{Target: serverAddr, Protocol: load.TCP, RequestsPerConn: 1, Count: 70, Connections: 4},
			50,
			map[string]uint64{"EADDRNOTAVAIL": 20},
		},
		{
			"bound",
			load.Plan{Target: serverAddr, Protocol: load.TCP, RequestsPerConn: 1, Count: 60, BindIP: "10.90.0.1"},
			50,
			map[string]uint64{"EADDRINUSE": 10},
		},
		{
			"bound without port",
			load.Plan{
				Target: serverAddr, Protocol: load.TCP, RequestsPerConn: 1, Count: 60, BindIP: "10.90.0.1",
				BindNoPort: true,
			},
			50,
			map[string]uint64{"EADDRNOTAVAIL": 10},
		},
		{
			"resets use up none",
			load.Plan{Target: serverAddr, Protocol: load.TCP, RequestsPerConn: 1, Count: 70, Close: load.ClientResets},
			70, nil,
		},
		{
			"no answer to SYN",
			load.Plan{
				Target: "10.90.0.2:9002", Protocol: load.Connect, Count: 3, Connections: 3, Timeout: 300 *
					time.Millisecond,
			},
			0,
			map[string]uint64{"ETIMEDOUT": 3},
		},
		{
			"no such source",
			load.Plan{Target: serverAddr, Count: 2, BindIP: "10.90.0.7"},
			0,
			map[string]uint64{"EADDRNOTAVAIL": 2},
		},
		{"no route", load.Plan{Target: "10.99.0.1:80", Count: 2}, 0, map[string]uint64{"ENETUNREACH": 2}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			client, server := pair(t, ports50)
			must(t, server.DropSYN(9002))
			serve(t, load.ServerPlan{Listen: serverAddr, Protocol: load.TCP}, server.Socket)
			got := run(t, test.plan, client.Socket)
			if got.Requests != test.requests || got.Conns != test.requests {
				t.Errorf("%d requests, %d connections, want %d", got.Requests, got.Conns, test.requests)
			}
			if diff := cmp.Diff(test.want, got.Errors); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

// timeWaits counts a host's TIME_WAIT sockets, state 06 in /proc/net/tcp.
func timeWaits(t *testing.T, h *lab.Host) int {
	t.Helper()
	n := 0
	must(t, h.Do(func() error {
		data, err := os.ReadFile("/proc/thread-self/net/tcp")
		for line := range bytes.Lines(data) {
			if field := bytes.Fields(line); string(field[3]) == "06" {
				n++
			}
		}
		return err
	}))
	return n
}

// awaitTimeWaits counts them when there are n, or after some time: the second side of the last connection may close
// after the load has ended.
func awaitTimeWaits(t *testing.T, h *lab.Host, n int) int {
	t.Helper()
	got := timeWaits(t, h)
	for deadline := time.Now().Add(2 * time.Second); got < n && time.Now().Before(deadline); got = timeWaits(t, h) {
		time.Sleep(time.Millisecond)
	}
	return got
}

// TestWhoClosesFirst: TIME_WAIT is on the side that the plan says, with any protocol.
func TestWhoClosesFirst(t *testing.T) {
	const count = 40
	spoken := map[string]struct {
		server load.ServerPlan
		plan   load.Plan
	}{
		"tcp":  {load.ServerPlan{Protocol: load.TCP}, load.Plan{Protocol: load.TCP}},
		"http": {},
		"tls":  {load.ServerPlan{TLS: load.ECDSAKey}, load.Plan{TLS: load.FullTLS}},
	}
	closers := map[load.Closer]struct{ client, server int }{
		load.ClientCloses: {count, 0}, load.ServerCloses: {0, count}, load.ClientResets: {0, 0},
	}
	for name, protocol := range spoken {
		for closer, want := range closers {
			pairOf := protocol
			t.Run(name+" "+string(closer), func(t *testing.T) {
				client, server := pair(t, portsAll)
				pairOf.server.Listen = serverAddr
				pairOf.plan.Target, pairOf.plan.Count = serverAddr, count
				pairOf.plan.RequestsPerConn, pairOf.plan.Close = 1, closer
				if closer == load.ServerCloses && pairOf.plan.Protocol == load.TCP {
					pairOf.server.RequestsPerConn = 1
				}
				serve(t, pairOf.server, server.Socket)
				got := run(t, pairOf.plan, client.Socket)
				if got.Requests != count || got.ErrorCount() != 0 {
					t.Errorf("got %+v", got)
				}
				c, s := awaitTimeWaits(t, client, want.client), awaitTimeWaits(t, server, want.server)
				if c != want.client || s != want.server {
					t.Errorf("TIME_WAIT: client %d, server %d; want %d, %d", c, s, want.client, want.server)
				}
			})
		}
	}
}

// lockedBuffer is written by the goroutine that listens to a child.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestChild runs the same plan in a process of its own, in the host.
func TestChild(t *testing.T) {
	client, server := pair(t, ports50)
	answering, err := server.StartChild(nil, lab.ChildOptions{
		Mode: lab.ModeAnswer, Answer: &load.ServerPlan{Listen: serverAddr, Protocol: load.TCP},
	})
	must(t, err)
	var live lockedBuffer
	child, err := client.StartChild(nil, lab.ChildOptions{Mode: lab.ModeLoad, Load: &load.Plan{
		Target: serverAddr, Protocol: load.TCP, Rate: 50, Duration: 1200 * time.Millisecond, RequestsPerConn: 1,
		Live: &live,
	}})
	must(t, err)
	stats, err := child.Wait()
	must(t, err)
	if !stats.Done || stats.Load == nil {
		t.Fatalf("no result in the last report: %+v", stats)
	}
	got := *stats.Load
	checkSums(t, got)
	want := map[string]uint64{"EADDRNOTAVAIL": 10}
	if diff := cmp.Diff(want, got.Errors); diff != "" || got.Requests != 50 {
		t.Errorf("%d requests, errors (-want +got):\n%s", got.Requests, diff)
	}
	if diff := cmp.Diff(want, stats.Errors); diff != "" {
		t.Errorf("errors in the last report (-want +got):\n%s", diff)
	}
	if stats.Units != 50 || stats.Conns != 50 || stats.Latency.P99 != got.Latency.Quantile(0.99) {
		t.Errorf("the last report %+v does not agree with the result %v", stats, got)
	}
	if text := live.String(); !strings.HasPrefix(text, "1s: ") || strings.Count(text, "\n") != 1 {
		t.Errorf("live lines %q", text)
	}
	s, err := answering.Stop()
	must(t, err)
	if s.Units != 50 || s.Conns != 50 || s.Addr != serverAddr {
		t.Errorf("server %+v, want 50 requests", s)
	}
}

// TestChildRefusesBadPlan: the plan's mistakes are in the error, not in an empty result.
func TestChildRefusesBadPlan(t *testing.T) {
	client, _ := pair(t, ports50)
	for _, test := range []struct {
		options lab.ChildOptions
		want    string
	}{
		{lab.ChildOptions{Mode: lab.ModeLoad}, "no plan"},
		{lab.ChildOptions{Mode: lab.ModeLoad, Load: &load.Plan{Target: serverAddr}}, "no end"},
		{lab.ChildOptions{Mode: lab.ModeAnswer, Answer: &load.ServerPlan{Listen: "x"}}, "want ip:port"},
	} {
		if _, err := client.StartChild(nil, test.options); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want %q", err, test.want)
		}
	}
}

// TestChildStops: if stopped on request, the result covers the time until then.
func TestChildStops(t *testing.T) {
	client, server := pair(t, portsAll)
	serve(t, load.ServerPlan{Listen: serverAddr}, server.Socket)
	child, err := client.StartChild(nil, lab.ChildOptions{Mode: lab.ModeLoad, Load: &load.Plan{
		Target: serverAddr, Duration: time.Minute, Connections: 2,
	}})
	must(t, err)
	for deadline := time.Now().Add(10 * time.Second); child.Stats().Units == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	stats, err := child.Stop()
	must(t, err)
	if stats.Load == nil || stats.Load.Requests == 0 || stats.Load.Elapsed > 30*time.Second || len(stats.Errors) != 0 {
		t.Errorf("got %+v, want a result without errors", stats)
	}
}

func TestIPv6(t *testing.T) {
	host, _ := pair(t, portsAll)
	serve(t, load.ServerPlan{Listen: "[::1]:9000"}, host.Socket)
	got := run(t, load.Plan{Target: "[::1]:9000", Count: 5, RequestsPerConn: 1, BindIP: "::1", BindNoPort: true},
		host.Socket)
	if got.Requests != 5 || got.ErrorCount() != 0 {
		t.Errorf("got %v, want 5 requests", got)
	}
}

// nginxConf closes the connection after each tenth answer, and has a file longer than its buffers.
const nginxConf = `
daemon off; master_process off; pid nginx.pid; error_log error.log;
events {}
http {
  access_log off; keepalive_requests 10;
  client_body_temp_path t; proxy_temp_path t; fastcgi_temp_path t; uwsgi_temp_path t; scgi_temp_path t;
  server { listen 10.90.0.2:9000; location = /busy { return 503; } location / { root .; } }
}
`

// TestNginx checks counts and order of closing against another server.
func TestNginx(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.Tool("nginx"))
	client, server := pair(t, portsAll)
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	must(t, os.WriteFile(dir+"/nginx.conf", []byte(nginxConf), 0o644))
	must(t, os.WriteFile(dir+"/page", make([]byte, 100_000), 0o644))
	_, err := server.Start(exec.Command("nginx", "-p", dir, "-c", dir+"/nginx.conf", "-e", dir+"/error.log"))
	must(t, err)
	awaitListener(t, client)
	tests := []struct {
		name            string
		plan            load.Plan
		requests, conns uint64
		want            map[string]uint64
		closed          int // TIME_WAIT at the client: where nginx closes first, only the connection left at the end
	}{
		{"kept", load.Plan{Path: "/page", Count: 95}, 95, 10, nil, 1},
		{"short", load.Plan{Path: "/page", Count: 50, RequestsPerConn: 1}, 50, 50, nil, 50},
		{
			"server closes",
			load.Plan{Path: "/page", Count: 50, RequestsPerConn: 1, Close: load.ServerCloses},
			50, 50,
			nil, 0,
		},
		{"busy", load.Plan{Path: "/busy", Count: 20}, 0, 2, map[string]uint64{"HTTP 503": 20}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			before := timeWaits(t, client)
			test.plan.Target = serverAddr
			got := run(t, test.plan, client.Socket)
			if diff := cmp.Diff(test.want, got.Errors); diff != "" || got.Requests != test.requests ||
				got.Conns != test.conns {
				t.Errorf("%v; errors (-want +got):\n%s", got, diff)
			}
			if got.BytesReceived < test.requests*100_000 {
				t.Errorf("%d bytes received", got.BytesReceived)
			}
			if closed := awaitTimeWaits(t, client, before+test.closed) - before; closed != test.closed {
				t.Errorf("%d more TIME_WAIT at the client, want %d", closed, test.closed)
			}
		})
	}
}

func awaitListener(t *testing.T, client *lab.Host) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		got := run(t, load.Plan{Target: serverAddr, Protocol: load.Connect, Count: 1, Close: load.ClientResets},
			client.Socket)
		if got.Requests == 1 {
			return
		}
	}
	t.Fatal("nginx does not listen")
}
