package e2e

import (
	"archive/zip"
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/lab"
)

// A count is what a server itself counted until a moment.
type count struct {
	at time.Time
	n  float64
}

// counts are a server's own counts of requests over time, read on one connection.
type counts struct {
	mu   sync.Mutex
	list []count
}

// watch asks a server for its count, ten times a second until the test ends. ask is what is sent, and found the number
// in the answer.
func watch(t *testing.T, host *lab.Host, address, ask string, found *regexp.Regexp) *counts {
	t.Helper()
	var conn net.Conn
	must(t, host.Do(func() (err error) {
		conn, err = net.Dial("tcp", address)
		return err
	}))
	t.Cleanup(func() { _ = conn.Close() })
	c := &counts{}
	go func() {
		lines := bufio.NewReader(conn)
		for c.next(conn, lines, ask, found) == nil { // until the test closes it
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return c
}

// next asks once.
func (c *counts) next(to io.Writer, lines *bufio.Reader, ask string, found *regexp.Regexp) error {
	if _, err := io.WriteString(to, ask); err != nil {
		return err
	}
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		m := found.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		n, err := strconv.ParseFloat(m[1], 64)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.list = append(c.list, count{time.Now(), n})
		return err
	}
}

// rate is the number of requests a second between two moments. Between two readings the count is a straight line.
func (c *counts) rate(t *testing.T, from, to time.Time) float64 {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	at := func(moment time.Time) float64 {
		for i := 1; i < len(c.list); i++ {
			x, y := c.list[i-1], c.list[i]
			if !moment.Before(x.at) && !moment.After(y.at) {
				return x.n + (y.n-x.n)*float64(moment.Sub(x.at))/float64(y.at.Sub(x.at))
			}
		}
		t.Fatalf("the server was not asked at %s, of %d times", moment, len(c.list))
		return 0
	}
	return (at(to) - at(from)) / to.Sub(from).Seconds()
}

// batch is how many commands redis-benchmark sends at once. They are answered together, and are one request.
const batch = 16

// TestRequests: the requests and the exchanges of a recording match the server's own count within 2 %. nginx closes a
// connection after 1,000 requests, so most are on connections that have ended when one looks. The programs share the
// CPUs, each with a network of its own: a count is the same at any rate.
func TestRequests(t *testing.T) {
	perfdoctor(t) // it is built before the load begins
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T, server, client *lab.Host, address string) (pid int, own *counts)
		veth    bool
		each    float64 // of what the server counts, in a request
	}{
		{"nginx", loadedNginx, false, 1},
		{"nginx over veth", loadedNginx, true, 1},
		{"redis", loadedRedis(1), false, 1},
		{"redis pipelined over veth", loadedRedis(batch), true, batch},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client, server := pair(t)
			address := "10.91.0.2"
			if !c.veth {
				client, address = server, "127.0.0.1"
			}
			pid, own := c.prepare(t, server, client, address)
			time.Sleep(time.Second)
			recording := recordingName(t)
			out, _ := output(t, "diagnose", "--pid", strconv.Itoa(pid), "--duration", "8s", "--save", recording,
				"-o", "json")
			time.Sleep(300 * time.Millisecond) // a count after the window
			var report measuredJSON
			must(t, json.Unmarshal(out, &report))
			within := func(what string, got float64, first, last time.Duration) {
				want := own.rate(t, report.Window.Started.Add(first), report.Window.Started.Add(last)) / c.each
				t.Logf("%.0f %s a second, the server counted %.0f", got, what, want)
				if math.Abs(got-want) > 0.02*want || want < 1000 {
					t.Errorf("%.0f %s a second, and the server counted %.0f", got, what, want)
				}
			}
			first, last := counted(t, recording, "set_state", "tcp_listener_data_segments")
			within("requests", report.number(t, "requests"), first, last)
			first, last = counted(t, recording, "arrive", "tcp_exchange_durations_total")
			within("exchanges", report.exchanges("server").PerSecond, first, last)
		})
	}
}

// measuredJSON is what a report says of requests.
type measuredJSON struct {
	Window struct {
		Started time.Time
	}
	Numbers []struct {
		Name  string
		Value struct{ Mean float64 }
	}
	Exchanges []exchangesJSON
}

type exchangesJSON struct {
	Side, Endpoint string
	Exchanges      float64
	PerSecond      float64 `json:"per_second"`
	P50, P99       float64
}

func (m *measuredJSON) number(t *testing.T, name string) float64 {
	t.Helper()
	for _, n := range m.Numbers {
		if n.Name == name {
			return n.Value.Mean
		}
	}
	t.Fatalf("no number %s: %+v", name, m.Numbers)
	return 0
}

// exchanges returns the exchanges of the endpoint with the most.
func (m *measuredJSON) exchanges(side string) exchangesJSON {
	for _, e := range m.Exchanges {
		if e.Side == side {
			return e
		}
	}
	return exchangesJSON{}
}

// counted returns when a recording has the first and the last reading of a metric, from the first one of a program's
// runs on.
func counted(t *testing.T, recording, program, metric string) (first, last time.Duration) {
	t.Helper()
	z, err := zip.OpenReader(recording)
	must(t, err)
	defer z.Close()
	f, err := z.Open("samples.jsonl")
	must(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	began := false
	for lines.Scan() {
		var at struct{ T float64 }
		must(t, json.Unmarshal(lines.Bytes(), &at))
		moment := time.Duration(at.T * float64(time.Second))
		began = began || bytes.Contains(lines.Bytes(), []byte(`"`+program+`"`))
		if began && bytes.Contains(lines.Bytes(), []byte(`"`+metric+`"`)) {
			if first == 0 {
				first = moment
			}
			last = moment
		}
	}
	must(t, lines.Err())
	return first, last
}

func loadedNginx(t *testing.T, server, client *lab.Host, address string) (pid int, own *counts) {
	t.Helper()
	testenv.Need(t, testenv.Tool("nginx"), testenv.Tool("wrk"))
	dir := t.TempDir()
	text := fmt.Sprintf(nginxConf, dir)
	text = strings.Replace(text, "keepalive_requests 1000000;", "keepalive_requests 1000;", 1)
	text = strings.Replace(text, "listen 127.0.0.1:8080", "listen 8080", 1)
	text = strings.Replace(text, "location / {",
		"location = /status { stub_status; keepalive_requests 1000000; }\n\t\tlocation / {", 1)
	conf := filepath.Join(dir, "nginx.conf")
	must(t, os.WriteFile(conf, []byte(text), 0o600))
	nginx := start(t, server, "nginx", "-p", dir, "-c", conf, "-e", filepath.Join(dir, "error.log"))
	awaitPort(t, server, 8080)
	start(t, client, "wrk", "-t", "1", "-c", "8", "-d", "60", "http://"+address+":8080/")
	// " 291 291 4012 ": accepted, handled, requests (ngx_http_stub_status_module)
	return nginx.Pid, watch(t, server, "127.0.0.1:8080", "GET /status HTTP/1.1\r\nHost: x\r\n\r\n",
		regexp.MustCompile(`^ \d+ \d+ (\d+)`))
}

func loadedRedis(batch int) func(t *testing.T, server, client *lab.Host, address string) (pid int, own *counts) {
	return func(t *testing.T, server, client *lab.Host, address string) (pid int, own *counts) {
		t.Helper()
		testenv.Need(t, testenv.Tool("redis-server"), testenv.Tool("redis-benchmark"))
		redis := start(t, server, "redis-server", "--port", "6390", "--bind", "0.0.0.0", "--protected-mode", "no",
			"--save", "", "--appendonly", "no", "--dir", t.TempDir())
		awaitPort(t, server, 6390)
		start(t, client, "redis-benchmark", "-h", address, "-p", "6390", "-c", "8", "-P", strconv.Itoa(batch), "-n",
			"1000000000", "-t", "get", "-q")
		return redis.Pid, watch(t, server, "127.0.0.1:6390", "INFO stats\r\n",
			regexp.MustCompile(`^total_commands_processed:(\d+)`))
	}
}
