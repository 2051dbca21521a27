package lab

import (
	"testing"
	"time"
)

// TestDelayLine: each direction has its delay, so an answer comes after two of them. The line carries many packets at
// once.
func TestDelayLine(t *testing.T) {
	const delay = 20 * time.Millisecond
	l := forTest(t)
	client, server := newHost(t, l, "client"), newHost(t, l, "server")
	_, _, err := l.DelayLine(client, server, "10.90.0.1/24", "10.90.0.2/24", delay)
	must(t, err)
	_, err = server.Listen(serverAddr, ServeOptions{})
	must(t, err)
	load, err := client.Connect(serverAddr, ClientOptions{Count: 40, Concurrency: 8, KeepAlive: true})
	must(t, err)
	got := load.Wait()
	if got.Units != 40 || len(got.Errors) != 0 {
		t.Errorf("got %+v, want 40 requests and no error", got)
	}
	// Each worker's first request includes the handshake. The upper bound is what a busy machine may add.
	if p50 := got.Latency.P50; p50 < 2*delay || p50 > 4*delay {
		t.Errorf("half of the requests took %v, want about %v", p50, 2*delay)
	}
	if most := 3 * 40 / 8 * 2 * delay; got.Elapsed > most {
		t.Errorf("40 requests of 8 workers took %v: one after the other, want less than %v", got.Elapsed, most)
	}
	if _, _, err := l.DelayLine(client, server, "", "", maxDelay+1); err == nil {
		t.Error("a delay above the maximum: no error")
	}
}
