package e2e

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/lab"
)

// servers are programs that answer HTTP on port 8080, each with its first argument and a text that follows.
var servers = map[string][]string{
	"python": {"python3", "-c", `
from http.server import *
class H(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        self.send_response(200); self.send_header('Content-Length', '2'); self.end_headers(); self.wfile.write(b'ok')
    def log_message(self, *a): pass
ThreadingHTTPServer(('', 8080), H).serve_forever()`},
	"node": {"node", "-e", `require('http').createServer((q, r) => r.end('ok')).listen(8080, '0.0.0.0')`},
}

// TestLedger: the account of the threads' time adds up to their wall-clock time within 2 %, by the test's own count.
// The shares of running and ready time match the kernel's counts for each thread within 2 % of the whole. At most 5 %
// has no explanation.
func TestLedger(t *testing.T) {
	perfdoctor(t) // it is built before the load begins
	for _, name := range []string{"nginx", "redis", "python", "node"} {
		t.Run(name, func(t *testing.T) {
			_, host := pair(t)
			var pid int
			switch name {
			case "nginx":
				pid, _ = loadedNginx(t, host, host, "127.0.0.1")
			case "redis":
				pid, _ = loadedRedis(1)(t, host, host, "127.0.0.1")
			default:
				pid = loadedServer(t, host, servers[name])
			}
			time.Sleep(time.Second)
			ledger, own := accounts(t, pid)
			parts, all := map[string]float64{}, 0.0
			for _, pool := range ledger.Time.Pools {
				for part, n := range pool.Parts {
					parts[part] += n
					all += n
				}
			}
			t.Logf("%.1f s, and %.1f s by the test; ran %.2f and %.2f s, ready %.2f and %.2f s; %v", all, own.wall,
				parts["user"]+parts["system"], own.ran, parts["ready"], own.ready, parts)
			if math.Abs(all-own.wall) > 0.02*own.wall || own.wall < 5 {
				t.Errorf("the parts add up to %v s, and the threads were there for %v s", all, own.wall)
			}
			if math.Abs(parts["user"]+parts["system"]-own.ran) > 0.02*own.wall {
				t.Errorf("%v s in user and system, and threads ran for %v s", parts["user"]+parts["system"], own.ran)
			}
			if math.Abs(parts["ready"]-own.ready) > 0.02*own.wall {
				t.Errorf("%v s ready, and threads waited for a CPU for %v s", parts["ready"], own.ready)
			}
			if parts["unexplained"] > 0.05*all {
				t.Errorf("%v s of %v s are unexplained", parts["unexplained"], all)
			}
		})
	}
}

func loadedServer(t *testing.T, host *lab.Host, command []string) (pid int) {
	t.Helper()
	testenv.Need(t, testenv.Tool(command[0]), testenv.Tool("wrk"))
	server, err := host.Start(exec.Command(command[0], command[1:]...))
	must(t, err)
	awaitPort(t, host, 8080)
	start(t, host, "wrk", "-t", "1", "-c", "8", "-d", "60", "http://127.0.0.1:8080/")
	return server.Pid
}

// ledgerJSON is the account in a report.
type ledgerJSON struct {
	Window struct {
		Started time.Time
		Seconds float64
	}
	Time struct {
		Pools []struct{ Parts map[string]float64 }
	} `json:"thread_time"`
}

// seen is the time of threads in seconds: how long they existed, ran, and waited for a CPU.
type seen struct{ wall, ran, ready float64 }

// accounts diagnoses a process, and meanwhile reads schedstat of its threads ten times a second: what they spent
// between the readings, over as long as the window was.
func accounts(t *testing.T, pid int) (l ledgerJSON, own seen) {
	t.Helper()
	cmd := exec.Command(perfdoctor(t), "diagnose", "--pid", strconv.Itoa(pid), "--duration", "6s", "-o", "json")
	var out bytes.Buffer
	cmd.Stdout = &out
	must(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it says by its status what it found
		close(ended)
	}()
	var looks []look
	for done := false; !done; {
		select {
		case <-ended:
			done = true
		case <-time.After(100 * time.Millisecond):
			looks = append(looks, lookAt(pid))
		}
	}
	must(t, json.Unmarshal(out.Bytes(), &l))
	from, span := l.Window.Started, 0.0
	to := from.Add(time.Duration(l.Window.Seconds * float64(time.Second)))
	for i := 1; i < len(looks); i++ {
		a, b := looks[i-1], looks[i]
		if a.at.Before(from) || b.at.After(to) {
			continue
		}
		d := b.at.Sub(a.at).Seconds()
		span += d
		for tid, was := range a.threads {
			if is, ok := b.threads[tid]; ok {
				own = seen{own.wall + d, own.ran + is[0] - was[0], own.ready + is[1] - was[1]}
			}
		}
	}
	scale := l.Window.Seconds / span
	return l, seen{own.wall * scale, own.ran * scale, own.ready * scale}
}

// A look is how long each thread of a process and its children had run and been ready, in seconds.
type look struct {
	at      time.Time
	threads map[string][2]float64
}

func lookAt(pid int) look {
	l := look{time.Now(), map[string][2]float64{}}
	l.add(strconv.Itoa(pid))
	return l
}

func (l look) add(pid string) {
	tasks, err := filepath.Glob("/proc/" + pid + "/task/*")
	if err != nil {
		return
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task + "/schedstat")
		fields := strings.Fields(string(text))
		if err != nil || len(fields) < 2 {
			continue // it has ended
		}
		ran, _ := strconv.ParseFloat(fields[0], 64)
		ready, _ := strconv.ParseFloat(fields[1], 64)
		l.threads[filepath.Base(task)] = [2]float64{ran / 1e9, ready / 1e9}
		children, _ := os.ReadFile(task + "/children")
		for _, child := range strings.Fields(string(children)) {
			l.add(child)
		}
	}
}
