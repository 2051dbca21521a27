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
	"github.com/perfdoctor/perfdoctor/internal/lab/labtest"
)

// A count is what a server itself counted until a moment.
type count struct {
	at time.Time
	n  float64
}

// counts are a server's own count of requests over time, asked on one connection.
type counts struct {
	mu   sync.Mutex
	list []count
}

// watch asks a server for its count, ten times a second until the test ends. ask is what is sent, and found the number
// in what comes back.
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

// rate is how many requests a second there were between two moments; between two readings the count is a straight line.
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

// TestRequests: the requests of a recording are those that the server counted itself, within 2 %. nginx closes a
// connection after 1,000 requests, so that most are of connections that have ended when one looks.
func TestRequests(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, host *lab.Host) (pid int, own *counts){
		"nginx": loadedNginx, "redis": loadedRedis,
	} {
		t.Run(name, func(t *testing.T) {
			pid, own := prepare(t, newHost(t, labtest.New(t), "server"))
			time.Sleep(time.Second)
			recording := recordingName(t)
			out, _ := output(t, "diagnose", "--pid", strconv.Itoa(pid), "--duration", "6s", "--save", recording,
				"-o", "json")
			time.Sleep(300 * time.Millisecond) // a count after the window
			var report struct {
				Window struct {
					Started time.Time
				}
			}
			must(t, json.Unmarshal(out, &report))
			compared, _ := output(t, "compare", recording, recording, "-o", "json")
			var c comparisonJSON
			must(t, json.Unmarshal(compared, &c))
			first, last := counted(t, recording)
			want, got := own.rate(t, report.Window.Started.Add(first), report.Window.Started.Add(last)),
				c.number(t, "requests").Before.Mean
			t.Logf("%.0f requests a second, the server counted %.0f", got, want)
			if math.Abs(got-want) > 0.02*want || want < 1000 {
				t.Errorf("%.0f requests a second, and the server counted %.0f", got, want)
			}
		})
	}
}

// counted is when a recording has the first and the last number of requests: both ended and living connections were
// counted.
func counted(t *testing.T, recording string) (first, last time.Duration) {
	t.Helper()
	z, err := zip.OpenReader(recording)
	must(t, err)
	defer z.Close()
	f, err := z.Open("samples.jsonl")
	must(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	began := time.Duration(0)
	for lines.Scan() {
		var at struct{ T float64 }
		must(t, json.Unmarshal(lines.Bytes(), &at))
		moment := time.Duration(at.T * float64(time.Second))
		if began == 0 && bytes.Contains(lines.Bytes(), []byte(`"set_state"`)) {
			began = moment
		}
		if bytes.Contains(lines.Bytes(), []byte(`"tcp_listener_data_segments"`)) && began > 0 {
			if first == 0 {
				first = moment
			}
			last = moment
		}
	}
	must(t, lines.Err())
	return first, last
}

func loadedNginx(t *testing.T, host *lab.Host) (pid int, own *counts) {
	t.Helper()
	testenv.Need(t, testenv.Tool("nginx"), testenv.Tool("wrk"))
	dir := t.TempDir()
	text := fmt.Sprintf(nginxConf, dir)
	text = strings.Replace(text, "keepalive_requests 1000000;", "keepalive_requests 1000;", 1)
	text = strings.Replace(text, "location / {",
		"location = /status { stub_status; keepalive_requests 1000000; }\n\t\tlocation / {", 1)
	conf := filepath.Join(dir, "nginx.conf")
	must(t, os.WriteFile(conf, []byte(text), 0o600))
	nginx := start(t, host, "nginx", "-p", dir, "-c", conf, "-e", filepath.Join(dir, "error.log"))
	awaitPort(t, host, 8080)
	start(t, host, "wrk", "-t", "1", "-c", "8", "-d", "60", "http://127.0.0.1:8080/")
	// " 291 291 4012 ": accepted, handled, requests (ngx_http_stub_status_module)
	return nginx.Pid, watch(t, host, "127.0.0.1:8080", "GET /status HTTP/1.1\r\nHost: x\r\n\r\n",
		regexp.MustCompile(`^ \d+ \d+ (\d+)`))
}

func loadedRedis(t *testing.T, host *lab.Host) (pid int, own *counts) {
	t.Helper()
	testenv.Need(t, testenv.Tool("redis-server"), testenv.Tool("redis-benchmark"))
	redis := start(t, host, "redis-server", "--port", "6390", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--dir", t.TempDir())
	awaitPort(t, host, 6390)
	start(t, host, "redis-benchmark", "-p", "6390", "-c", "8", "-n", "1000000000", "-t", "get", "-q")
	return redis.Pid, watch(t, host, "127.0.0.1:6390", "INFO stats\r\n",
		regexp.MustCompile(`^total_commands_processed:(\d+)`))
}
