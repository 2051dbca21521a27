package e2e

import (
	"strconv"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/lab/labtest"
)

// TestSNATOnOneCore has a gateway whose packets are all steered to CPU 1. Each packet walks 20,000 rules.
func TestSNATOnOneCore(t *testing.T) {
	child := saturatedGateway(t)
	w := want{verdict: []string{"snat-single-core"}, subject: "1", text: []string{"softirq"}, forbidden: portChecks}
	t.Run("gateway", func(t *testing.T) {
		expect(t, w.complaints, "--pid", pid(child))
	})
	t.Run("host", func(t *testing.T) {
		w.verdict = append(w.verdict, "softirq-imbalance")
		expect(t, w.complaints)
	})
}

// saturatedGateway makes clients that reach a server through a gateway, and returns a process on the gateway.
func saturatedGateway(t *testing.T) *lab.Child {
	t.Helper()
	l := labtest.New(t)
	loaded, gateway, server := newHost(t, l, "loaded"), newHost(t, l, "gateway"), newHost(t, l, "server")
	unloaded, outside := newHost(t, l, "unloaded"), newHost(t, l, "outside")
	link := func(h *lab.Host, network int) {
		t.Helper()
		prefix := "10." + strconv.Itoa(network) + ".0."
		dev, hostDev, err := l.Link(gateway, h, prefix+"1/24", prefix+"2/24")
		must(t, err)
		must(t, gateway.RPS(dev, "2"))
		must(t, h.RPS(hostDev, "1"))
		must(t, h.Route("default", prefix+"1"))
	}
	must(t, gateway.Forward())
	link(loaded, 93)
	link(unloaded, 94)
	link(server, 95)
	link(outside, 96)
	must(t, gateway.Masquerade("eth2"))
	must(t, gateway.LinearRules(20_000))
	// The server closes first. Otherwise half of all ports waited at the client after 13 s, and connect() searched on
	// both CPUs then.
	_, err := server.StartServer("10.95.0.2:9000", lab.ServeOptions{CloseFirst: true, Requests: 1, Duration: loadTime})
	must(t, err)
	client, err := loaded.StartClient("10.95.0.2:9000", lab.ClientOptions{
		Concurrency: 400, Requests: 1,
		Duration: loadTime,
	})
	must(t, err)
	eventually(t, "connections through the gateway", 10*time.Second, func() bool { return client.Stats().Conns > 400 })
	child, err := gateway.StartChild(nil, lab.ChildOptions{Mode: lab.ModeSleep, Duration: loadTime})
	must(t, err)
	return child
}
