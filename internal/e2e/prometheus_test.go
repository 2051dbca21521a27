package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/testenv"
)

// prometheusVar is set by `make check-prometheus`: the test below takes a minute or two, too much for every run of all tests.
const prometheusVar = "PERFDOCTOR_PROMETHEUS"

// Name and password of the exporter under test. The hash is of bcrypt's least cost: it is computed for each scrape.
const (
	user, password = "prometheus", "a secret of this test"
	passwordHash   = "$2a$04$V/yl0Dc004GfislkUhs3gOUrXkLnPcBoE17z/UqQIuZ1m5BEGce1m"
)

// shortWait stands for what the rules wait for, minutes that `promtool test rules` proves in no time: see internal/fleetgen.
const shortWait = 10 * time.Second

// A fleet is an exporter, and a Prometheus that scrapes it.
type fleet struct {
	t        *testing.T
	exporter string // host:port
	server   string // host:port
	client   *http.Client
}

// TestPrometheus lets a real Prometheus scrape the exporter with TLS and a password, makes the host sick and well again, and asks what a
// user would: whether the alert came and went, and whether each chart of the dashboard has data.
func TestPrometheus(t *testing.T) {
	if os.Getenv(prometheusVar) == "" {
		t.Skipf("%s is not set: make check-prometheus sets it", prometheusVar)
	}
	testenv.Need(t, testenv.Root, testenv.Tool("prometheus"), testenv.Tool("promtool"))
	f := startFleet(t)
	f.until("the exporter is scraped, and its first window is over", func() bool { return f.has(`perfdoctor_cpu_seconds_total`) })
	t.Run("closed", f.closed)
	t.Run("clean", f.clean)

	outer, _ := limited(t, lab.SpinOptions{Threads: 1})
	alert := fmt.Sprintf(`ALERTS{alertname="PerfdoctorCpuThrottled",subject=~".*%s.*",alertstate=%%q}`, regexp.QuoteMeta(outer.Path()))
	firing := fmt.Sprintf(alert, "firing")
	f.until("the alert fires", func() bool { return f.has(firing) })
	if waited := f.first(firing) - f.first(fmt.Sprintf(alert, "pending")); waited < shortWait.Seconds() {
		t.Errorf("it fired %v s after its beginning, and has to wait for %v", waited, shortWait)
	}
	t.Run("dashboard", f.dashboard)

	must(t, outer.SetQuota(100*time.Millisecond, 0)) // the limit is lifted
	f.until("the alert resolves after the cure", func() bool { return !f.has(fmt.Sprintf(alert, "pending")) && !f.has(firing) })
}

func startFleet(t *testing.T) *fleet {
	t.Helper()
	dir := t.TempDir()
	f := &fleet{t: t, exporter: freeAddress(t), server: freeAddress(t)}
	pool := f.certificate(dir)
	f.client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	web := file("web.yml", fmt.Sprintf("tls_server_config: {cert_file: cert.pem, key_file: key.pem}\nbasic_auth_users: {%s: %q}\n", user, passwordHash))
	rules, err := os.ReadFile("../../deploy/prometheus/perfdoctor.rules.yml")
	must(t, err)
	short := regexp.MustCompile(`(?m)^(\s+for: ).*$`).ReplaceAllString(string(rules), "${1}"+shortWait.String())
	fleetRules, err := filepath.Abs("../../deploy/prometheus/perfdoctor-fleet.rules.yml")
	must(t, err)
	config := file("prometheus.yml", fmt.Sprintf(`
global: {scrape_interval: 2s, evaluation_interval: 2s}
rule_files: [%s, %s]
scrape_configs:
  - job_name: perfdoctor
    scheme: https
    tls_config: {ca_file: %s/cert.pem}
    basic_auth: {username: %s, password: %s}
    static_configs: [{targets: [%q]}]
`, file("perfdoctor.rules.yml", short), fleetRules, dir, user, password, f.exporter))
	mustRun(t, exec.CommandContext(t.Context(), "promtool", "check", "config", config))
	f.start(exec.Command(perfdoctor(t), "exporter", "--web.listen-address", f.exporter, "--web.config.file", web, "--window", "5s", "--interval", "1s"))
	f.start(exec.Command("prometheus", "--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", f.server, "--log.level", "warn", "--enable-feature", "native-histograms"))
	return f
}

// start runs a server until the test ends, and shows what it said when the test has failed.
func (f *fleet) start(cmd *exec.Cmd) {
	f.t.Helper()
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	must(f.t, cmd.Start())
	f.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // a process that has ended needs none
		timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
		if f.t.Failed() {
			f.t.Logf("%s said:\n%s", filepath.Base(cmd.Path), said.String())
		}
	})
}

func mustRun(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// certificate writes cert.pem, which signs itself, and key.pem.
func (f *fleet) certificate(dir string) *x509.CertPool {
	f.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(f.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(f.t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must(f.t, err)
	pool := x509.NewCertPool()
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: cert}, "key.pem": {Type: "PRIVATE KEY", Bytes: secret}} {
		text := pem.EncodeToMemory(block)
		pool.AppendCertsFromPEM(text)
		must(f.t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return pool
}

// get asks the exporter; without a name there is no password either.
func (f *fleet) get(path, name string) (status int, body []byte) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, "https://"+f.exporter+path, nil)
	must(f.t, err)
	if name != "" {
		req.SetBasicAuth(name, password)
	}
	resp, err := f.client.Do(req)
	must(f.t, err)
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	must(f.t, err)
	return resp.StatusCode, body
}

// closed asks without the password.
func (f *fleet) closed(t *testing.T) {
	for path, want := range map[string]int{"/metrics": http.StatusUnauthorized, "/": http.StatusUnauthorized, "/-/healthy": http.StatusOK} {
		if status, _ := f.get(path, ""); status != want {
			t.Errorf("%s without a password: %d, want %d", path, status, want)
		}
	}
}

// clean lets promtool read the metrics.
func (f *fleet) clean(t *testing.T) {
	status, page := f.get("/metrics", user)
	if status != http.StatusOK {
		t.Fatalf("/metrics: %d", status)
	}
	cmd := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
	cmd.Stdin = bytes.NewReader(page)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// A sample is one of an answer of Prometheus: a time in seconds, and a number as text.
type sample [2]any

// A series is one of an answer; it has values where a range was asked for.
type series struct {
	Values []sample `json:"values"`
}

// query asks Prometheus, which may not have started yet.
func (f *fleet) query(expr string) (found []series) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.server+"/api/v1/query?"+url.Values{"query": {expr}}.Encode(), nil)
	must(f.t, err)
	resp, err := f.client.Do(req)
	if err != nil {
		return nil // it starts
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusServiceUnavailable {
		return nil // it starts
	}
	var answer struct {
		Error string `json:"error"`
		Data  struct {
			Result json.RawMessage `json:"result"`
		} `json:"data"`
	}
	must(f.t, json.NewDecoder(resp.Body).Decode(&answer))
	if answer.Error != "" {
		f.t.Fatalf("%s: %s", expr, answer.Error)
	}
	must(f.t, json.Unmarshal(answer.Data.Result, &found))
	return found
}

func (f *fleet) has(expr string) bool {
	f.t.Helper()
	return len(f.query(expr)) > 0
}

// first is when an expression first had a sample, in seconds. It looks back five minutes.
func (f *fleet) first(expr string) float64 {
	f.t.Helper()
	least := 0.0
	for _, s := range f.query(expr + "[5m]") {
		at, ok := s.Values[0][0].(float64)
		if !ok {
			f.t.Fatalf("no time in %v", s.Values[0])
		}
		if least == 0 || at < least {
			least = at
		}
	}
	if least == 0 {
		f.t.Fatalf("%s never had a sample", expr)
	}
	return least
}

// until waits for what takes windows, scrapes and evaluations: ten to thirty seconds, on a busy machine more.
func (f *fleet) until(what string, reached func() bool) {
	f.t.Helper()
	began := time.Now()
	eventually(f.t, what, 3*time.Minute, func() bool {
		if reached() {
			return true
		}
		time.Sleep(500 * time.Millisecond)
		return false
	})
	f.t.Logf("%s: after %v", what, time.Since(began).Round(time.Second))
}

// dashboard asks each query of each panel as Grafana does.
func (f *fleet) dashboard(t *testing.T) {
	text, err := os.ReadFile("../../deploy/grafana/perfdoctor.json")
	must(t, err)
	var board struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	must(t, json.Unmarshal(text, &board))
	asked := 0
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "1m", "$job", ".+", "$instance", ".+").Replace(target.Expr)
			if !f.has(expr) {
				t.Errorf("panel %q has no data: %s", p.Title, expr)
			}
			asked++
		}
	}
	if asked < 15 {
		t.Errorf("only %d queries: this test looks at the wrong text", asked)
	}
	t.Logf("%d queries, each with data", asked)
}
