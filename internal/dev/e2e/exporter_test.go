package e2e

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
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
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/lab/labtest"
)

// startTime is how long a program may take until it answers, on a busy machine.
const startTime = time.Minute

// scraped is an exporter with TLS and a password.
type scraped struct {
	address    string
	dir        string
	authority  string // file
	client     *http.Client
	user, pass string
}

// startExporter runs an exporter with short windows until the test ends.
func startExporter(t *testing.T, flags ...string) *scraped {
	t.Helper()
	s := &scraped{dir: t.TempDir(), user: "prometheus", pass: "a password of the test"}
	key := s.certify(t)
	hash, err := bcrypt.GenerateFromPassword([]byte(s.pass), bcrypt.MinCost)
	must(t, err)
	config := filepath.Join(s.dir, "web.yml")
	must(t, os.WriteFile(config,
		fmt.Appendf(nil, "tls_server_config:\n  cert_file: %s\n  key_file: %s\nbasic_auth_users:\n  %s: %s\n",
			s.authority, key, s.user, hash), 0o600))
	flags = append([]string{
		"exporter", "--window", "5s", "--interval", "1s", "--web.listen-address", "127.0.0.1:0",
		"--web.config.file", config,
	}, flags...)
	s.address = startLogged(t, regexp.MustCompile(`msg="Listening on" address=(\S+)`), perfdoctor(t), flags...)
	return s
}

// startLogged runs a program until the test ends, and returns what the expression finds in its log.
func startLogged(t *testing.T, wanted *regexp.Regexp, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = startTime
	log, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	found, over := make(chan string, 1), make(chan string, 1)
	go func() {
		all := ""
		lines := bufio.NewScanner(log)
		for lines.Scan() {
			all += lines.Text() + "\n"
			if m := wanted.FindStringSubmatch(lines.Text()); m != nil && len(found) == 0 {
				found <- m[len(m)-1]
			}
		}
		over <- all
	}()
	t.Cleanup(func() {
		cancel()
		all := <-over
		_ = cmd.Wait() // it was ended
		if t.Failed() {
			t.Logf("%s:\n%s", program, all)
		}
	})
	select {
	case m := <-found:
		return m
	case <-time.After(startTime):
		t.Fatalf("%s did not begin to listen", program)
		return ""
	}
}

// certify makes a self-signed authority and returns the file of its key.
func (s *scraped) certify(t *testing.T) string {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "perfdoctor test"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	must(t, err)
	keyBytes, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	s.authority = filepath.Join(s.dir, "cert.pem")
	key := filepath.Join(s.dir, "key.pem")
	must(t, os.WriteFile(s.authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyBytes}), 0o600))
	pool := x509.NewCertPool()
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	pool.AddCert(cert)
	s.client = &http.Client{
		Timeout:   startTime,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}},
	}
	return key
}

// get requests a path, with a password if there is one.
func (s *scraped) get(t *testing.T, path, user, pass string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.address+path, nil)
	must(t, err)
	if user != "" {
		req.SetBasicAuth(user, pass)
	}
	resp, err := s.client.Do(req)
	must(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	must(t, err)
	must(t, resp.Body.Close())
	return resp.StatusCode
}

// A client without a password learns whether the exporter is alive, and nothing else. A client without TLS
// reads no metrics.
func TestExporterRefuses(t *testing.T) {
	t.Parallel()
	s := startExporter(t, "--target.max", "0")
	eventually(t, "a window", startTime, func() bool { return s.get(t, "/-/ready", "", "") == http.StatusOK })
	if status := s.get(t, "/-/healthy", "", ""); status != http.StatusOK {
		t.Errorf("health without a password: %d", status)
	}
	for _, path := range []string{
		"/", "/metrics", "/collectors", "/recordings", "/-/", "/-/healthy/../../metrics",
		"//metrics", "/none",
	} {
		for _, who := range [][2]string{{"", ""}, {s.user, "wrong"}, {"nobody", s.pass}} {
			if status := s.get(t, path, who[0], who[1]); status != http.StatusUnauthorized {
				t.Errorf("%s as %q: %d", path, who[0], status)
			}
		}
	}
	for _, path := range []string{"/", "/metrics", "/collectors"} {
		if status := s.get(t, path, s.user, s.pass); status != http.StatusOK {
			t.Errorf("%s with the password: %d", path, status)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.address+"/metrics", nil)
	must(t, err)
	req.SetBasicAuth(s.user, s.pass)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	must(t, resp.Body.Close())
	if resp.StatusCode == http.StatusOK {
		t.Error("it answers without TLS")
	}
}

// A control group that uses CPU time becomes a target with its own numbers and findings. It disappears when it has
// ended.
func TestExporterTargets(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root)
	l := labtest.New(t)
	group, err := l.Cgroup("busy")
	must(t, err)
	must(t, group.SetQuota(100*time.Millisecond, 30*time.Millisecond))
	s := startExporter(t, "--target.cpu", "0.02")
	child, err := newHost(t, l, "busy").StartChild(group, lab.ChildOptions{Mode: lab.ModeSpin, Duration: loadTime})
	must(t, err)
	target := fmt.Sprintf("target=%q", "cgroup "+group.Path())
	for _, want := range []string{
		`perfdoctor_check_assessed{check="cpu-throttled",` + target + `} 1`,
		fmt.Sprintf("perfdoctor_cgroup_cpu_quota{cgroup=%q,%s} 0.3", group.Path(), target),
	} {
		eventually(t, want, 2*startTime, func() bool { return strings.Contains(s.metrics(t), want) })
	}
	finding := regexp.MustCompile(
		`perfdoctor_finding\{check="cpu-throttled",severity="(warning|critical)",stage="limits",` +
			regexp.QuoteMeta(fmt.Sprintf("subject=%q} 1", "cgroup "+group.Path())))
	eventually(t, finding.String(), 2*startTime, func() bool { return finding.MatchString(s.metrics(t)) })
	_, err = child.Stop()
	must(t, err)
	eventually(t, "the target is gone", 2*startTime, func() bool { return !strings.Contains(s.metrics(t), target) })
}

// metrics scrapes once.
func (s *scraped) metrics(t *testing.T) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.address+"/metrics", nil)
	must(t, err)
	req.SetBasicAuth(s.user, s.pass)
	resp, err := s.client.Do(req)
	must(t, err)
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	must(t, resp.Body.Close())
	return string(body)
}

// A real Prometheus scrapes it with TLS and a password, and gets its histograms in both forms.
func TestPrometheusScrapes(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root, testenv.BPF, testenv.Tool("prometheus"))
	s := startExporter(t, "--deep")
	config := filepath.Join(s.dir, "prometheus.yml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, `
scrape_configs:
- job_name: perfdoctor
  scrape_interval: 1s
  scheme: https
  tls_config: {ca_file: %s}
  basic_auth: {username: %s, password: %s}
  static_configs: [{targets: [%q]}]
`, s.authority, s.user, s.pass, s.address), 0o600))
	const api = "127.0.0.1:0"
	l, err := net.Listen("tcp", api)
	must(t, err)
	free := l.Addr().String()
	must(t, l.Close())
	startLogged(t, regexp.MustCompile(`(Server is ready|Start listening)`), "prometheus", "--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(s.dir, "data"), "--web.listen-address="+free,
		"--enable-feature=native-histograms")
	for _, query := range []string{
		`up{job="perfdoctor"} == 1`,
		`perfdoctor_window_seconds{target="host"} >= 5`,
		`time() - perfdoctor_window_end_timestamp_seconds{target="host"} < 60`,
		`count(perfdoctor_check_assessed{target="host"} == 1) > 20`,
		`sum(perfdoctor_cpu_seconds_total) > 0`,
		`perfdoctor_collector_success{collector="bpf-connections",target="host"} == 1`,
		`sum(rate(perfdoctor_bpf_program_runs_total[1m])) > 0`,
		`perfdoctor_build_info{version="e2e"} == 1`,
		`process_resident_memory_bytes{job="perfdoctor"} > 0`,
		// Prometheus itself reconnects only when it must. The queries are connections of this test.
		`histogram_count(perfdoctor_tcp_connect_duration_seconds{target="host"}) > 0`,
		`histogram_count(perfdoctor_cpu_wait_duration_seconds{target="host"}) > 0`, // with --deep
		`histogram_sum(perfdoctor_cpu_wait_duration_seconds{target="host"}) > 0`,
		`sum(histogram_count(perfdoctor_softirq_duration_seconds{target="host"})) > 0`,
	} {
		eventually(t, query, startTime, func() bool { return holds(t, free, query) })
	}
}

// holds tells whether a query has a result, over a connection of its own.
func holds(t *testing.T, address, query string) bool {
	t.Helper()
	client := &http.Client{Timeout: startTime, Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://"+address+"/api/v1/query?query="+url.QueryEscape(query), nil)
	must(t, err)
	resp, err := client.Do(req)
	if err != nil {
		return false // it does not listen yet
	}
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	if resp.StatusCode == http.StatusServiceUnavailable {
		return false
	}
	must(t, json.NewDecoder(resp.Body).Decode(&answer))
	if answer.Status != "success" {
		t.Fatalf("%s: %s", query, answer.Error)
	}
	return len(answer.Data.Result) > 0
}
