package hostile_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startExporter runs an exporter until the test ends, and returns its address and process id.
func startExporter(t *testing.T, args ...string) (address string, pid int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	args = append([]string{"exporter", "--window", "5s", "--interval", "1s", "--target.max", "0"}, args...)
	command := exec.CommandContext(ctx, program, args...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 2 * grace
	log, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	found, over := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(over)
		wanted := regexp.MustCompile(`msg="Listening on" address=(\S+)`)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if m := wanted.FindStringSubmatch(lines.Text()); m != nil && len(found) == 0 {
				found <- m[1]
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-over
		_ = command.Wait() // it was ended
	})
	select {
	case address = <-found:
	case <-over:
		t.Fatal("the exporter ended")
	case <-time.After(6 * grace):
		t.Fatal("the exporter does not listen")
	}
	return address, command.Process.Pid
}

// ask returns the status of an answer and its text.
func ask(t *testing.T, address, path, host string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		request.Host = host
	}
	client := &http.Client{Timeout: 2 * grace, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// Attack 14: a client that reaches the port reads the flight recorder's files.
func TestExporterRecordings(t *testing.T) {
	address, _ := startExporter(t, "--web.listen-address", "0.0.0.0:0", "--flight.dir", t.TempDir())
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"/recordings", "/recordings/", "/recordings/20260101T000000Z-h-c.zip",
		"//recordings",
	} {
		status, text := ask(t, "127.0.0.1:"+port, path, "")
		if status != http.StatusForbidden || !strings.Contains(text, "password") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

// Attack 14: the default address is this host's, and a name that leads there reads no recording.
func TestExporterDefaultAddress(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":9843")
	if err != nil {
		t.Skip("port 9843 is in use here:", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	address, _ := startExporter(t, "--flight.dir", t.TempDir())
	if address != "127.0.0.1:9843" {
		t.Errorf("it listens on %s", address)
	}
	if status, _ := ask(t, "127.0.0.1:9843", "/recordings", ""); status != http.StatusOK {
		t.Errorf("of this host: %d", status)
	}
	if status, _ := ask(t, "127.0.0.1:9843", "/recordings", "evil.example:9843"); status != http.StatusForbidden {
		t.Errorf("under another name: %d", status)
	}
}

// Attack 15: 500 connections that ask again and again and never read, 100 that never end their headers, 100 that never
// end a body, and 16 scrapers at a time.
func TestExporterSlowPeers(t *testing.T) {
	address, pid := startExporter(t, "--web.listen-address", "127.0.0.1:0")
	for begun := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		if status, _ := ask(t, address, "/-/ready", ""); status == http.StatusOK {
			break
		}
		if time.Since(begun) > 6*grace {
			t.Fatal("it is not ready")
		}
	}
	before := descriptors(t, pid)
	for i := range 700 {
		text := "GET /metrics HTTP/1.1\r\nHost: x\r\n"
		if i < 500 {
			text = strings.Repeat(text+"\r\n", 50)
		}
		if i >= 600 {
			text = "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nx"
		}
		c, err := (&net.Dialer{Timeout: grace}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	for range 16 {
		go scrapeAgain(ctx, address)
	}
	served, busy := 0, 0
	for ctx.Err() == nil {
		begun := time.Now()
		switch status, _ := ask(t, address, "/metrics", ""); status {
		case http.StatusOK:
			served++
		case http.StatusServiceUnavailable:
			busy++
		default:
			t.Errorf("status %d", status)
		}
		if took := time.Since(begun); took > 2*grace {
			t.Errorf("a scrape took %v", took)
		}
	}
	if served == 0 {
		t.Errorf("no scrape was served, %d were refused", busy)
	}
	// A client that reads nothing for 10 s is cut off. Some descriptors belong to other peers and to what the exporter
	// itself reads.
	for begun := time.Now(); descriptors(t, pid) > before+100; time.Sleep(200 * time.Millisecond) {
		if time.Since(begun) > 10*time.Second+2*grace {
			t.Fatalf("%d descriptors are still open, %d before the attack", descriptors(t, pid), before)
		}
	}
	if peak := peakOf(t, pid); peak > maxMemory {
		t.Errorf("%d MiB at its peak", peak>>20)
	} else {
		t.Logf("%d served, %d refused, %d MiB at its peak", served, busy, peak>>20)
	}
}

// descriptors counts the open files of a process.
func descriptors(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// scrapeAgain scrapes until the context is done.
func scrapeAgain(ctx context.Context, address string) {
	for ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
		if err != nil {
			return
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			continue
		}
		_, _ = io.Copy(io.Discard, answer.Body) // ended by the context
		_ = answer.Body.Close()
	}
}

// peakOf gives the largest resident memory of a process, in bytes.
func peakOf(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	if m == nil {
		t.Fatal("no VmHWM")
	}
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n * 1024
}
