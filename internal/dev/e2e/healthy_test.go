package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/lab/labtest"
)

// runsVar is the environment variable with the number of runs of each healthy program; 1 if not set.
const runsVar = "PERFDOCTOR_E2E_RUNS"

// healthy diagnoses a healthy program, and expects nothing at warning or above.
func healthy(t *testing.T, args ...string) {
	t.Helper()
	runs := 1
	if text := os.Getenv(runsVar); text != "" {
		var err error
		if runs, err = strconv.Atoi(text); err != nil || runs < 1 {
			t.Fatalf("%s=%q: want a number of runs", runsVar, text)
		}
	}
	for n := range runs {
		t.Run(fmt.Sprintf("run%d", n+1), func(t *testing.T) {
			expect(t, quiet, args...)
		})
	}
}

// TestHealthyKeepAlive is one connection at full speed. Its two ends take turns, and wake each other.
func TestHealthyKeepAlive(t *testing.T) {
	client, server := pair(t)
	_, err := server.StartServer(serverAddr, lab.ServeOptions{Duration: loadTime})
	must(t, err)
	child, err := client.StartClient(serverAddr, lab.ClientOptions{KeepAlive: true, Duration: loadTime})
	must(t, err)
	healthy(t, "--pid", pid(child))
}

// nginxConf serves a small answer from memory, on the loopback of its own namespace, with all files in one directory.
const nginxConf = `
daemon off;
user root;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log %[1]s/error.log;
events { worker_connections 512; }
http {
	access_log off;
	keepalive_requests 1000000;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen 127.0.0.1:8080;
		location / { return 200 "a small answer\n"; }
	}
}
`

func TestHealthyNginx(t *testing.T) {
	testenv.Need(t, testenv.Tool("nginx"), testenv.Tool("wrk"))
	host := newHost(t, labtest.New(t), "web")
	dir := t.TempDir()
	conf := filepath.Join(dir, "nginx.conf")
	must(t, os.WriteFile(conf, fmt.Appendf(nil, nginxConf, dir), 0o600))
	nginx := start(t, host, "nginx", "-p", dir, "-c", conf, "-e", filepath.Join(dir, "error.log"))
	awaitPort(t, host, 8080)
	start(t, host, "wrk", "-t", "1", "-c", "32", "-d", strconv.Itoa(int(loadTime.Seconds())), "http://127.0.0.1:8080/")
	time.Sleep(time.Second)
	healthy(t, "--pid", strconv.Itoa(nginx.Pid))
}

func TestHealthyRedis(t *testing.T) {
	testenv.Need(t, testenv.Tool("redis-server"), testenv.Tool("redis-benchmark"))
	host := newHost(t, labtest.New(t), "cache")
	redis := start(t, host, "redis-server", "--port", "6390", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--dir", t.TempDir())
	awaitPort(t, host, 6390)
	start(t, host, "redis-benchmark", "-p", "6390", "-P", "16", "-n", "1000000000", "-t", "get", "-q")
	time.Sleep(time.Second)
	healthy(t, "--pid", strconv.Itoa(redis.Pid))
}

// start runs a program in the host until the test ends.
func start(t *testing.T, host *lab.Host, name string, args ...string) *lab.Process {
	t.Helper()
	p, err := host.Start(exec.Command(name, args...))
	must(t, err)
	return p
}

// awaitPort waits until a program in the host listens on the port.
func awaitPort(t *testing.T, host *lab.Host, port int) {
	t.Helper()
	listening := fmt.Sprintf(":%04X 00000000:0000 0A ", port) // proc_pid_net(5); 0A is LISTEN, include/net/tcp_states.h
	eventually(t, fmt.Sprintf("a listener on port %d", port), 10*time.Second, func() bool {
		var table []byte
		must(t, host.Do(func() error {
			var err error
			table, err = os.ReadFile("/proc/thread-self/net/tcp")
			return err
		}))
		return bytes.Contains(table, []byte(listening))
	})
}
