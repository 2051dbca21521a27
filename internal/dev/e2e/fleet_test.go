package e2e

import (
	"encoding/json"
	"fmt"
	"math"
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

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/lab"
)

// fleetVar is set by `make check-fleet`: the tests of deploy take a minute or two, too much for every run of all tests.
const fleetVar = "PERFDOCTOR_FLEET"

func needFleet(t *testing.T, needs ...testenv.Requirement) {
	t.Helper()
	if os.Getenv(fleetVar) == "" {
		t.Skipf("%s is not set: make check-fleet sets it", fleetVar)
	}
	testenv.Need(t, append(needs, testenv.Root)...)
}

// shortWait stands for the waits of the rules. `promtool test rules` proves those minutes in no time: see
// internal/dev/fleetgen.
const shortWait = 10 * time.Second

// TestFleet lets a Prometheus with the rules of deploy scrape an exporter. It makes the host sick and well again, and
// asks what a user would: whether the alert came and went, and whether each chart of the dashboard has data.
func TestFleet(t *testing.T) {
	needFleet(t, testenv.Tool("prometheus"), testenv.Tool("promtool"))
	server := startPrometheus(t, startExporter(t))
	until(t, "the first window is scraped", func() bool { return holds(t, server, "perfdoctor_cpu_seconds_total") })

	outer, _ := limited(t, lab.SpinOptions{Threads: 1})
	alert := fmt.Sprintf(`ALERTS{alertname="PerfdoctorCpuThrottled",subject=~".*%s.*"`, regexp.QuoteMeta(outer.Path()))
	firing, pending := alert+`,alertstate="firing"}`, alert+`,alertstate="pending"}`
	until(t, "the alert fires", func() bool { return holds(t, server, firing) })
	if waited := beginning(t, server, firing) - beginning(t, server, pending); waited < shortWait.Seconds() {
		t.Errorf("it fired %v s after its beginning, and has to wait for %v", waited, shortWait)
	}
	chartsHaveData(t, server)

	must(t, outer.SetQuota(100*time.Millisecond, 0)) // the limit is lifted
	until(t, "the alert resolves after the cure", func() bool { return !holds(t, server, alert+"}") })
}

// startPrometheus starts a Prometheus with the rules of deploy that scrapes the exporter, and returns its address.
func startPrometheus(t *testing.T, s *scraped) string {
	t.Helper()
	rules, err := os.ReadFile("../../../deploy/prometheus/perfdoctor.rules.yml")
	must(t, err)
	short := regexp.MustCompile(`(?m)^(\s+for: ).*$`).ReplaceAll(rules, []byte("${1}"+shortWait.String()))
	must(t, os.WriteFile(filepath.Join(s.dir, "perfdoctor.rules.yml"), short, 0o600))
	across, err := filepath.Abs("../../../deploy/prometheus/perfdoctor-fleet.rules.yml")
	must(t, err)
	config := filepath.Join(s.dir, "prometheus.yml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 2s, evaluation_interval: 2s}
rule_files: [perfdoctor.rules.yml, %s]
scrape_configs:
- job_name: perfdoctor
  scheme: https
  tls_config: {ca_file: %s}
  basic_auth: {username: %s, password: %s}
  static_configs: [{targets: [%q]}]
`, across, s.authority, s.user, s.pass, s.address), 0o600))
	if out, err := exec.CommandContext(t.Context(), "promtool", "check", "config", config).
		CombinedOutput(); err != nil {
		t.Fatalf("promtool check config: %v\n%s", err, out)
	}
	server := freeAddress(t)
	startLogged(t, regexp.MustCompile(`(Server is ready|Start listening)`), "prometheus", "--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(s.dir, "data"), "--web.listen-address="+server,
		"--enable-feature=native-histograms")
	return server
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// beginning is when an expression first had a sample in the last five minutes, in seconds.
func beginning(t *testing.T, server, expr string) float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://"+server+"/api/v1/query?query="+url.QueryEscape(expr+"[5m]"), nil)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	var answer struct {
		Data struct {
			Result []struct {
				Values [][2]any // a time in seconds, and a number as text
			}
		}
	}
	must(t, json.NewDecoder(resp.Body).Decode(&answer))
	first := math.Inf(1)
	for _, series := range answer.Data.Result {
		if at, ok := series.Values[0][0].(float64); ok {
			first = min(first, at)
		}
	}
	if math.IsInf(first, 1) {
		t.Fatalf("%s never had a sample", expr)
	}
	return first
}

// until waits for events that take windows, scrapes and evaluations: ten to thirty seconds, more on a busy machine.
func until(t *testing.T, what string, reached func() bool) {
	t.Helper()
	began := time.Now()
	eventually(t, what, 3*time.Minute, func() bool {
		if reached() {
			return true
		}
		time.Sleep(500 * time.Millisecond)
		return false
	})
	t.Logf("%s: after %v", what, time.Since(began).Round(time.Second))
}

// chartsHaveData asks each query of each panel as Grafana does.
func chartsHaveData(t *testing.T, server string) {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/grafana/perfdoctor.json")
	must(t, err)
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	must(t, json.Unmarshal(text, &board))
	asked := 0
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "1m", "$job", ".+", "$instance", ".+").Replace(target.Expr)
			if !holds(t, server, expr) && !strings.Contains(expr, "perfdoctor_jvm_") { // no JVM runs here
				t.Errorf("panel %q has no data: %s", p.Title, expr)
			}
			asked++
		}
	}
	if asked < 15 {
		t.Errorf("only %d queries: this test looks at the wrong text", asked)
	}
	t.Logf("%d queries of the dashboard, each with data", asked)
}
