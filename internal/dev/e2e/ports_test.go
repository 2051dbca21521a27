package e2e

import (
	"strconv"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/lab/labtest"
)

const serverAddr = "10.91.0.2:9000"

// accusations of the side that runs out of ports.
var portChecks = []string{"short-connection-ceiling", "local-port-exhaustion", "port-search-cliff"}

// pair is a client and a server host with a veth pair, 10.91.0.1 and 10.91.0.2.
func pair(t *testing.T) (client, server *lab.Host) {
	t.Helper()
	l := labtest.New(t)
	client, server = newHost(t, l, "client"), newHost(t, l, "server")
	_, _, err := l.Link(client, server, "10.91.0.1/24", "10.91.0.2/24")
	must(t, err)
	return client, server
}

func newHost(t *testing.T, l *lab.Lab, name string) *lab.Host {
	t.Helper()
	h, err := l.Host(name)
	must(t, err)
	return h
}

// ports sets the client's range. A port in TIME_WAIT is not used again.
func ports(t *testing.T, h *lab.Host, portRange string) {
	t.Helper()
	must(t, h.Sysctl("net.ipv4.ip_local_port_range", portRange))
	must(t, h.Sysctl("net.ipv4.tcp_tw_reuse", "0"))
	// If the machine stalls for an RTO, the server's second FIN ends in a RST, which would free a port in TIME_WAIT.
	must(t, h.Sysctl("net.ipv4.tcp_rfc1337", "1"))
}

// shortConnections starts a server and a client of it.
func shortConnections(t *testing.T, client, server *lab.Host, o lab.ClientOptions) *lab.Child {
	t.Helper()
	_, err := server.StartServer(serverAddr, lab.ServeOptions{Duration: loadTime})
	must(t, err)
	o.Duration = loadTime
	child, err := client.StartClient(serverAddr, o)
	must(t, err)
	return child
}

func pid(child *lab.Child) string { return strconv.Itoa(child.Pid) }

// TestPortCeilingAhead has ports left: only the rate shows where it ends. The scenario ports-exhausted has none.
func TestPortCeilingAhead(t *testing.T) {
	client, server := pair(t)
	ports(t, client, "40000 40999")
	child := shortConnections(t, client, server, lab.ClientOptions{Rate: 13, CloseFirst: true, Requests: 1})
	eventually(t, "a steady rate", 10*time.Second, func() bool { return child.Stats().Conns >= 20 })
	d := expect(t, want{
		verdict: []string{"short-connection-ceiling"}, severity: []string{"warning"}, subject: serverAddr,
		text: []string{"1000 ports / 60 s", pid(child)}, forbidden: []string{
			"local-port-exhaustion",
			"port-search-cliff",
		},
	}.complaints, "--pid", pid(child))
	if rate := d.measured(t, "per second"); rate < 12 || rate > 14 {
		t.Errorf("measured rate %v, want 13 connections/s", rate)
	}
}

// TestPortCeilingDefaultRange is on the cliff: more than half of the ports are used, and each connect() searches long.
func TestPortCeilingDefaultRange(t *testing.T) {
	client, server := pair(t)
	ports(t, client, "32768 60999")
	child := shortConnections(t, client, server, lab.ClientOptions{Concurrency: 8, CloseFirst: true, Requests: 1})
	eventually(t, "60 % of 28232 ports used", 40*time.Second, func() bool { return child.Stats().Conns >= 28232*6/10 })
	expect(t, want{
		verdict: []string{"short-connection-ceiling"}, subject: serverAddr,
		text: []string{"28232 ports / 60 s", "470.5 connections/s", pid(child)},
	}.complaints, "--pid", pid(child))
	t.Logf("client: %+v", child.Stats())
}

// TestSlowTrickle has thousands of TIME_WAIT, at a rate that can go on for ever: 3000 from a burst and 20 a second.
func TestSlowTrickle(t *testing.T) {
	client, server := pair(t)
	ports(t, client, "32768 60999")
	child := shortConnections(t, client, server, lab.ClientOptions{Rate: 20, CloseFirst: true, Requests: 1})
	burst, err := client.StartClient(serverAddr, lab.ClientOptions{
		Count: 3000, Concurrency: 4, CloseFirst: true,
		Requests: 1,
	})
	must(t, err)
	if s, err := burst.Wait(); err != nil || s.Conns != 3000 {
		t.Fatalf("burst: %+v, %v", s, err)
	}
	expect(t, quiet, "--pid", pid(child))
}
