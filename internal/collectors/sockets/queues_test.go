package sockets

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// own is this process as the target.
func own(t *testing.T) collect.Env {
	t.Helper()
	h := host.Local()
	target, err := h.Resolve(t.Context(), host.Selector{PID: os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	return collect.Env{Host: h, Target: target}
}

// TestUnixQueue: two clients that are not accepted have waited for the time between the two looks, and longer at the
// next sample.
func TestUnixQueue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	src, err := openUnix(t.Context(), own(t))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	name := []string{"listener", "unix:" + path}
	rec := record(t, src, 1)
	want(t, rec, metric.UnixQueue, 0, name...)
	want(t, rec, metric.UnixOldest, 0, name...)
	for range 2 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	rec = record(t, src, 2)
	want(t, rec, metric.UnixQueue, 2, name...)
	oldest := rec.Gauge(metric.UnixOldest, name...)[0].Points
	if again := unixAgain.Seconds(); oldest[0].Value < again || oldest[1].Value < 2*again {
		t.Errorf("the oldest waits for %v, want %v and twice that at least", oldest, again)
	}
}

// TestUnixOfRuntime: the sockets of a runtime for tools are not the program's.
func TestUnixOfRuntime(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"s", ".java_pid7.tmp", "dotnet-diagnostic-7-1-socket"} {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	src, err := openUnix(t.Context(), own(t))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	var seen []string
	for _, s := range record(t, src, 1).Gauge(metric.UnixQueue) {
		if name, here := strings.CutPrefix(s.Label("listener"), "unix:"+dir+"/"); here {
			seen = append(seen, name)
		}
	}
	if diff := cmp.Diff([]string{"s"}, seen); diff != "" {
		t.Errorf("listeners, -want +got:\n%s", diff)
	}
}

// TestUDPDrops: a socket of 4 KiB loses most of a hundred datagrams, and says how many.
func TestUDPDrops(t *testing.T) {
	const sent, bytes = 100, 1000
	l, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	src, err := udpCollector().Open(t.Context(), own(t))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	name := []string{"listener", l.LocalAddr().String()}
	c, err := net.Dial("udp4", l.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := record(t, src, 1)
	for range sent {
		if _, err := c.Write(make([]byte, bytes)); err != nil {
			t.Fatal(err)
		}
	}
	after := record(t, src, 1)
	read := 0
	if err := l.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, bytes); ; read++ {
		if _, err := l.Read(buf); err != nil {
			break // nothing is left
		}
	}
	if got := before.Counter(metric.UDPDrops, name...)[0].Points[0].Value; got != 0 {
		t.Errorf("%v were lost before any was sent", got)
	}
	if got := after.Counter(metric.UDPDrops, name...)[0].Points[0].Value; got != float64(sent-read) || read == 0 {
		t.Errorf("%v were lost, and of %d %d read", got, sent, read)
	}
	if queue := after.Gauge(metric.UDPQueue, name...)[0].Last(); queue < float64(read*bytes) {
		t.Errorf("%d datagrams wait in %v bytes", read, queue)
	}
}

// TestUnread: a request that the program has not read for a second is seen, until it reads it.
func TestUnread(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if _, err := client.Write([]byte("request")); err != nil {
		t.Fatal(err)
	}
	src, err := open(t.Context(), own(t))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	record(t, src, 1)
	time.Sleep((unreadAfter + 200) * time.Millisecond)
	name := []string{"listener", l.Addr().String()}
	want(t, record(t, src, 1), metric.ListenerUnread, 1, name...)
	if _, err := server.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	want(t, record(t, src, 1), metric.ListenerUnread, 0, name...)
	if _, err := server.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	if seen := record(t, src, 1).Gauge(metric.ListenerUnread, name...); len(seen) > 0 {
		t.Errorf("looked at a port that has just answered: %v", seen)
	}
}
