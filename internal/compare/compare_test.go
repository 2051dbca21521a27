package compare

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// A program is the subject of the recordings of these tests.
type program struct {
	seconds   int
	requests  float64 // per second
	cpu       float64 // seconds per request
	scatter   float64 // of each second, as a share
	throttled float64 // share of the periods; no quota if negative
	timeWait  float64 // sockets
	methods   map[string]float64
	seed      uint64
	engine    string
	started   time.Time
	others    float64 // CPUs busy with something else; not recorded if 0
	latency   float64 // seconds that 98 of 100 requests take; the rest take three times as long; not recorded if 0
	summary   float64 // the same, as a load generator prints it at its end
	guest     bool    // in a virtual machine
	failing   float64 // share of the requests that fail; its clients count them if they count times
}

func shop(seed uint64) program {
	return program{
		seconds: 20, requests: 1000, cpu: 500e-6, scatter: 0.01, throttled: -1, seed: seed, engine: "a sampler",
		started: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
		methods: map[string]float64{
			"main.parse": 0.2, "main.price": 0.3, "main.discount": 0.15, "main.tax": 0.1,
			"main.render": 0.25,
		},
	}
}

// record plays the program and returns what would have been recorded of it.
func (p program) record(t *testing.T) *recording.Recording {
	t.Helper()
	rng := rand.New(rand.NewPCG(p.seed, 7))
	pid := 4000 + p.seed
	var lines []string
	requests, cpu, throttled := 0.0, 0.0, 0.0
	tails := times{}
	for i := range p.seconds + 1 {
		row := fmt.Sprintf(
			`{"t": %[1]d, "m": {"tcp_data_segments_sent_total": [["target", %.0[2]f]], "target_listen_info": [["10.0.0.1:80", `+
				`"%[4]d", "shop", 1]], "tcp_listener_data_segments": [["10.0.0.1:80", %.0[2]f]], "tcp_time_wait_sockets": `+
				`[["target", %[3]v]], "process_cpu_seconds_total": [["%[4]d", "shop", "user", "target", %[5]v]]`,
			i, requests, p.timeWait, pid, cpu)
		if p.throttled >= 0 {
			row += fmt.Sprintf(
				`, "cgroup_cpu_periods_total": [["/app-%[1]d", "0", %[2]v]], "cgroup_cpu_throttled_periods_total": [["/app-%[1]d", "0", %.0[3]f]]`,
				pid, 10*i, throttled)
		}
		if p.others > 0 { // two CPUs, whose ticks miss half of their work
			idle := float64(i) - (cpu+p.others*float64(i))/2
			row += fmt.Sprintf(`, "cpu_seconds_total": [["0", "user", %v], ["0", "idle", %v], ["1", "idle", %[2]v]]`,
				cpu/2, idle)
		}
		if p.latency > 0 {
			row += fmt.Sprintf(`, "load_requests_total": [["clients", %.0f]], "load_request_durations_total": [%s]`+
				`, "load_errors_total": [["clients", %.0f]]`, requests*(1-p.failing), tails.row(), requests*p.failing)
		}
		lines = append(lines, row+"}}")
		n := p.requests * (1 + p.scatter*rng.NormFloat64())
		tails.add(n, p.latency, rng)
		requests, cpu = requests+n, cpu+n*p.cpu*(1+p.scatter*rng.NormFloat64())
		throttled += 10 * p.throttled
	}
	files := fstest.MapFS{
		"meta.json": {
			Data: fmt.Appendf(nil, `{"schema": 1, "perfdoctor": "v1", "started": %q, "duration_seconds": %d, `+
				`"interval_seconds": 1, "asked_seconds": %[2]d, "target": {"kind": "process", "pid": %d, "name": "shop"}}`,
				p.started.Format(time.RFC3339), p.seconds, pid),
		},
	}
	if p.summary > 0 {
		lines = append(lines, fmt.Sprintf(
			`{"t": %d, "m": {"load_requests_per_second": [["wrk", %v]], "load_request_p99_seconds": [["wrk", %v]]}}`,
			p.seconds, p.requests, p.summary))
	}
	if p.guest {
		lines = append(lines, fmt.Sprintf(`{"t": %d, "m": {"host_info": [["6.18.44", "x86_64", "EPYC", "kvm", 1]]}}`,
			p.seconds))
	}
	if samples := p.samples(rng, cpu); len(p.methods) > 0 {
		files["profiles/cpu.txt"] = &fstest.MapFile{Data: []byte(samples)}
		lines = append(lines, fmt.Sprintf(`{"t": %d, "m": {"cpu_profile_samples": [[%d]]}}`, p.seconds, p.seconds))
	}
	files["samples.jsonl"] = &fstest.MapFile{Data: []byte(strings.Join(lines, "\n"))}
	rec, err := recording.Read(files)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// times counts requests by the bound of their time.
type times map[float64]float64

// add has a second's requests. One in fifty takes three times as long, more or less.
func (c times) add(n, latency float64, rng *rand.Rand) {
	c[latency] += 0.98 * n
	c[latency*(2.7+0.3*float64(rng.IntN(3)))] += 0.02 * n
}

func (c times) row() string {
	var list []string
	for _, bound := range slices.Sorted(maps.Keys(c)) {
		list = append(list, fmt.Sprintf(`["clients", "%.4g", %.0f]`, bound, c[bound]))
	}
	return strings.Join(list, ", ")
}

// samples draws a profile at 99 Hz. Shares may add up to more than one, if a method is more expensive than in the
// program it is compared with.
func (p program) samples(rng *rand.Rand, cpu float64) string {
	out := fmt.Sprintf("event: cpu\nengine: %s\ninterval: 10101010\nduration: %ds\nlost: 0\n\n", p.engine, p.seconds)
	names := slices.Sorted(maps.Keys(p.methods))
	for range int(cpu * 99) {
		at, sum := 0.0, 0.0
		for _, n := range names {
			sum += p.methods[n]
		}
		x := rng.Float64() * sum
		for _, n := range names {
			if at += p.methods[n]; x < at {
				if !strings.HasSuffix(n, "]") { // a whole stack
					n = "shop!" + n + "_[n]"
				}
				out += fmt.Sprintf("[];%s 1 10101010\n", n)
				break
			}
		}
	}
	return out
}

// backlog is a check of these tests about TIME_WAIT sockets. It has nothing to do with a quota.
func backlog() *check.Check {
	return &check.Check{
		Name: "time-wait", Stage: check.Connections, Needs: []metric.Metric{metric.TCPTimeWait},
		Run: func(p *check.Pass) error {
			for _, s := range p.Gauge(metric.TCPTimeWait) {
				severity := check.Warning
				if s.Max() > 1000 {
					severity = check.Critical
				}
				if s.Max() > 100 {
					p.Report(check.Finding{
						Subject:  check.Subject{Kind: "pid", ID: fmt.Sprint(p.Meta.Target.PID)},
						Severity: severity, Summary: "many",
					})
				}
			}
			return nil
		},
	}
}

func compared(t *testing.T, before, after program, requests ...float64) *Data {
	t.Helper()
	o := Options{Checks: []*check.Check{backlog()}}
	for i, n := range requests {
		o.Load[i].Requests = n
	}
	return Compare(before.record(t), after.record(t), o)
}

func number(t *testing.T, d *Data, name string) Number {
	t.Helper()
	for _, n := range d.Numbers {
		if n.Name == name {
			return n
		}
	}
	t.Fatalf("there is no %s among %d numbers", name, len(d.Numbers))
	return Number{}
}

// TestTheSameProgram: pairs of runs show no difference, twenty of twenty.
func TestTheSameProgram(t *testing.T) {
	for seed := range uint64(20) {
		if d := compared(t, shop(2*seed), shop(2*seed+1)); d.Verdict.Result != Same || d.Regressed() {
			t.Errorf("pair %d: %s", seed, d.Verdict.Summary)
		}
	}
}

// TestDearerMethod plants a regression of five percent of the program's CPU time in one method.
func TestDearerMethod(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		b, a := shop(100+seed), shop(200+seed)
		b.seconds, a.seconds = 60, 60
		a.methods["main.tax"] += 0.05
		a.cpu *= 1.05
		d := compared(t, b, a)
		if d.Verdict.Result != Worse || !d.Regressed() || len(d.Methods.Grown) != 1 || len(d.Methods.Shrunk) != 0 {
			t.Errorf("seed %d: %s, %+v", seed, d.Verdict.Summary, d.Methods)
			continue
		}
		if m := d.Methods.Grown[0]; m.Name != "main.tax" || m.Low > 1.5 || m.High < 1.5 || m.Extra < 0.02 ||
			m.Extra > 0.08 {
			t.Errorf("seed %d: %s", seed, m.Text())
		}
	}
}

// TestFivePercent compares recordings of a real program in Go (testdata/five-percent.txtar): the regression that was
// planted in one of its methods is named, and two runs of one program do not differ.
func TestFivePercent(t *testing.T) {
	ar, err := txtar.ParseFile("testdata/five-percent.txtar")
	if err != nil {
		t.Fatal(err)
	}
	files, err := txtar.FS(ar)
	if err != nil {
		t.Fatal(err)
	}
	recs := map[string]*recording.Recording{}
	for _, name := range []string{"before", "again", "after"} {
		dir, err := fs.Sub(files, name)
		if err != nil {
			t.Fatal(err)
		}
		if recs[name], err = recording.Read(dir); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if d := Compare(recs["before"], recs["again"], Options{}); d.Verdict.Result != Same || len(d.Methods.Grown)+len(
		d.Methods.Shrunk) > 0 {
		t.Errorf("the same twice: %s: %+v", d.Verdict.Summary, d.Methods)
	}
	d := Compare(recs["before"], recs["after"], Options{})
	if d.Verdict.Result != Worse || len(d.Methods.Grown) != 1 || d.Methods.Grown[0].Name != "main.tax" ||
		len(d.Methods.Shrunk) > 0 {
		t.Fatalf("dearer: %s: %+v", d.Verdict.Summary, d.Methods)
	}
	if x := d.Methods.Grown[0].Extra; x < 0.035 || x > 0.065 {
		t.Errorf("it grew by %v of all CPU time", x)
	}
	if d := Compare(recs["after"], recs["before"], Options{}); d.Verdict.Result != Improved ||
		len(d.Methods.Shrunk) != 1 {
		t.Errorf("the other way round: %s: %+v", d.Verdict.Summary, d.Methods)
	}
}

// TestManyCallees: all callees of a method grew a little, none of them for certain. The method itself is named; neither
// its callees nor its caller are.
func TestManyCallees(t *testing.T) {
	t.Parallel()
	b, a := shop(3), shop(4)
	for _, p := range []*program{&b, &a} {
		p.seconds, p.methods = 120, map[string]float64{}
		for _, name := range []string{"parse", "price", "render"} {
			p.methods["main.serve_[n];shop!main."+name] = 0.2
		}
		for i := range 10 {
			p.methods[fmt.Sprintf("main.serve_[n];shop!main.tax_[n];shop!main.rule%c", 'a'+i)] = 0.04
		}
	}
	d := compared(t, b, a)
	if len(d.Methods.Grown)+len(d.Methods.Shrunk) != 0 {
		t.Errorf("two runs of one program: %+v", d.Methods)
	}
	for name := range a.methods {
		if strings.Contains(name, "main.rule") {
			a.methods[name] *= 1.25
		}
	}
	a.cpu *= 1.1
	d = compared(t, b, a)
	if len(d.Methods.Shrunk) != 0 || d.Verdict.Result != Worse {
		t.Fatalf("%s: %+v", d.Verdict.Summary, d.Methods)
	}
	m := d.Methods.Grown[0]
	if m.Name != "main.tax" || !m.With || m.Low > 1.25 || m.High < 1.25 ||
		!strings.Contains(m.Text(), "with all that it calls") {
		t.Errorf("%s: %+v", m.Text(), m)
	}
	for _, m := range d.Methods.Grown[1:] { // the few that happen to be certain by themselves
		if !strings.Contains(m.Name, "main.rule") {
			t.Errorf("%s", m.Text())
		}
	}
}

// TestMethodThatIsGone: a method that has gone must not make all others grow.
func TestMethodThatIsGone(t *testing.T) {
	b, a := shop(1), shop(2)
	b.seconds, a.seconds = 60, 60
	delete(a.methods, "main.parse")
	a.cpu *= 0.8
	d := compared(t, b, a)
	if len(d.Methods.Grown) != 0 || len(d.Methods.Shrunk) != 1 || d.Methods.Shrunk[0].Name != "main.parse" {
		t.Errorf("%+v", d.Methods)
	}
	if d.Verdict.Result != Improved || number(t, d, "cpu_per_request").Result != Improved {
		t.Error(d.Verdict.Summary)
	}
}

// TestMethodOfAnotherName: work that moved is neither better nor worse. What the whole certainly does outweighs its
// parts.
func TestMethodOfAnotherName(t *testing.T) {
	b, a := shop(1), shop(2)
	b.seconds, a.seconds = 60, 60
	a.methods["main.price2"] = a.methods["main.price"]
	delete(a.methods, "main.price")
	d := compared(t, b, a)
	if d.Verdict.Result != Same || len(d.Methods.Grown) != 1 || len(d.Methods.Shrunk) != 1 ||
		d.Methods.Uncounted == "" {
		t.Errorf("as dear as before: %s, %+v", d.Verdict.Summary, d.Methods)
	}
	a.methods["main.price2"], a.cpu = 0.1, 0.8*b.cpu
	if d := compared(t, b, a); d.Verdict.Result != Improved || len(d.Methods.Grown) != 1 || d.Methods.Uncounted == "" {
		t.Errorf("cheaper: %s, %+v", d.Verdict.Summary, d.Methods)
	}
	a.methods["main.price2"], a.cpu = 0.5, 1.2*b.cpu
	if d := compared(t, b, a); d.Verdict.Result != Worse || len(d.Methods.Shrunk) != 1 || d.Methods.Uncounted == "" {
		t.Errorf("dearer: %s, %+v", d.Verdict.Summary, d.Methods)
	}
	b.requests, a.requests = 40, 40 // too few segments to stand for requests: only the methods are left
	b.cpu, a.cpu = 12e-3, 12e-3*1.2
	if d := compared(t, b, a); d.Verdict.Result != Worse || d.Methods.Net < 0.1 || d.Methods.Net > 0.3 {
		t.Errorf("dearer, without requests: %s, %+v", d.Verdict.Summary, d.Methods)
	}
}

// TestLessLoad: a finding that is gone is not fixed if hardly anything was done, and a new one was not hidden.
func TestLessLoad(t *testing.T) {
	b, a := shop(1), shop(2)
	b.timeWait, b.latency, a.latency = 500, 0.01, 0.01
	a.requests = b.requests / 4
	d := compared(t, b, a)
	if d.Verdict.Result != Same || d.Findings[0].Fate != Gone || !strings.Contains(d.Findings[0].Doubt,
		"only 25 % as much was done") {
		t.Errorf("%s: %+v", d.Verdict.Summary, d.Findings)
	}
}

func TestHeavierLoadIsNoRegression(t *testing.T) {
	b, a := shop(1), shop(2)
	a.requests *= 1.7
	d := compared(t, b, a)
	if d.Verdict.Result != Same || number(t, d, "requests").Result != Changed || len(d.Methods.Grown) != 0 {
		t.Errorf("%s; %+v", d.Verdict.Summary, d.Methods)
	}
	if !strings.Contains(strings.Join(d.Doubts, "\n"), "the load or what the program made of it differs") {
		t.Errorf("doubts: %q", d.Doubts)
	}
}

func TestThrottling(t *testing.T) {
	b, a := shop(1), shop(2)
	b.throttled, a.throttled = 0, 0.4
	if d := compared(t, b, a); number(t, d, "throttled_share").Result != Worse || d.Verdict.Result != Worse {
		t.Error(d.Verdict.Summary)
	}
	b.throttled = -1
	a.throttled = -1
	if n := number(t, compared(t, b, a), "throttled_share"); n.Result != Unknown || n.Reason == "" {
		t.Errorf("throttling that was not recorded: %+v", n)
	}
}

// TestRequestsThatAreKnown: half the requests for half as much CPU time again are three times the CPU time per request,
// whatever the network shows.
func TestRequestsThatAreKnown(t *testing.T) {
	a := shop(2)
	a.cpu *= 1.5
	d := compared(t, shop(1), a, 2000, 1000)
	n := number(t, d, "cpu_per_request")
	if n.Result != Worse || math.Abs(n.Before.Mean-250e-6) > 5e-6 || math.Abs(n.After.Mean-750e-6) > 15e-6 {
		t.Errorf("%s: %+v", n.Text(), n.Change)
	}
	for _, x := range d.Doubts {
		if strings.Contains(x, "requests are not known") {
			t.Errorf("doubt: %s", x)
		}
	}
}

// TestRecordedLoad: what a load generator counted is in the recording, and needs no flag.
func TestRecordedLoad(t *testing.T) {
	b, a := shop(1), shop(2)
	b.latency, a.latency = 0.01, 0.01
	d := compared(t, b, a)
	n := number(t, d, "request_p99")
	if d.Verdict.Result != Same || n.Result != Same || n.Before.Mean < 0.026 || n.Before.Mean > 0.034 ||
		n.Before.Samples < b.seconds-1 {
		t.Errorf("the same twice: %s: %s %+v", d.Verdict.Summary, n.Text(), n.Before)
	}
	if text := strings.Join(d.Doubts, "\n"); strings.Contains(text, "requests are not known") {
		t.Errorf("doubts: %s", text)
	}
	a.latency = 0.04
	if d := compared(t, b, a); d.Verdict.Result != Worse || number(t, d, "request_p50").Result != Worse ||
		number(t, d, "request_p99").Result != Worse {
		t.Errorf("four times as slow: %s", d.Verdict.Summary)
	}
	b.latency, a.latency = 50e-6, 200e-6
	if d := compared(t, b, a); d.Verdict.Result != Same {
		t.Errorf("both below a millisecond, where the wait for a CPU decides: %s", d.Verdict.Summary)
	}
	b.requests, b.seconds = 2, 60
	if n := number(t, compared(t, b, a), "request_p99"); n.Result != Unknown ||
		!strings.Contains(n.Reason, "too few requests") {
		t.Errorf("two requests a second: %+v", n)
	}
}

// TestMedianOfFewRequests: clients that wait for each answer ask more often when it comes sooner. Their rate has no
// direction, and they are too few for a p99, so the median decides.
func TestMedianOfFewRequests(t *testing.T) {
	b, a := shop(1), shop(2)
	b.seconds, a.seconds = 6, 6
	b.requests, a.requests = 4, 21
	b.latency, a.latency = 0.25, 0.047
	if d := compared(t, b, a); d.Verdict.Result != Improved || number(t, d, "request_p50").Result != Improved {
		t.Errorf("a fifth of the time: %s", d.Verdict.Summary)
	}
	if d := compared(t, a, b); d.Verdict.Result != Worse || number(t, d, "request_p50").Result != Worse {
		t.Errorf("five times as long: %s", d.Verdict.Summary)
	}
	a.requests, a.latency = 5, 0.21 // four buckets of the load generator's
	if n := number(t, compared(t, b, a), "request_p50"); n.Result != Same {
		t.Errorf("a sixth less: %s", n.Text())
	}
}

// TestLoadsSummary: a load generator's own p99 is shown, but nothing rests on it. Its rate counts.
func TestLoadsSummary(t *testing.T) {
	b, a := shop(1), shop(2)
	b.summary, a.summary = 0.01, 0.08
	b.requests, a.requests = 2000, 1000 // with the same segments, which count requests only if nobody else does
	a.cpu *= 2
	d := compared(t, b, a)
	if n := number(t, d, "request_p99"); n.Result != Unknown || !strings.Contains(n.Reason, "10 ms") ||
		!strings.Contains(n.Reason, "80 ms") {
		t.Errorf("%+v", n)
	}
	if n := number(t, d, "cpu_per_request"); n.Result != Worse || math.Abs(n.After.Mean-1e-3) > 5e-5 {
		t.Errorf("%s", n.Text())
	}
}

func TestFindings(t *testing.T) {
	at := func(sockets float64) program {
		p := shop(uint64(sockets) + 1)
		p.timeWait = sockets
		return p
	}
	for _, tt := range []struct {
		name          string
		before, after program
		fate          Fate
		verdict       Result
	}{
		{"new", at(0), at(500), New, Worse},
		{"gone", at(500), at(0), Gone, Improved},
		{"more severe, of another process id", at(500), at(5000), Risen, Worse},
		{"less severe", at(5000), at(500), Fallen, Improved},
		{"stayed", at(500), at(600), Stayed, Same},
	} {
		d := compared(t, tt.before, tt.after)
		if len(d.Findings) != 1 || d.Findings[0].Fate != tt.fate || d.Verdict.Result != tt.verdict {
			t.Errorf("%s: %+v, %s", tt.name, d.Findings, d.Verdict.Summary)
		}
	}
}

// TestAtTheThreshold: if one half of a window has a finding and the other does not, it is no difference between two
// windows.
func TestAtTheThreshold(t *testing.T) {
	wavering := &check.Check{
		Name: "wavering", Stage: check.Kernel, Needs: []metric.Metric{metric.TCPOrigDataSent},
		Run: func(p *check.Pass) error {
			first := p.Counter(metric.TCPOrigDataSent)[0].Points[0].Value
			if p.Meta.Target.PID == 4002 && first == 0 { // after, the whole and the first half
				p.Report(check.Finding{Subject: check.Host, Severity: check.Warning, Summary: "just so"})
			}
			return nil
		},
	}
	d := Compare(shop(1).record(t), shop(2).record(t), Options{Checks: []*check.Check{wavering}})
	if len(d.Findings) != 1 || d.Findings[0].Fate != New || d.Findings[0].Doubt == "" || d.Verdict.Result != Same {
		t.Errorf("%+v, %s", d.Findings, d.Verdict.Summary)
	}
}

// halfCheck is a check of these tests that reports windows which begin or end with such segments sent, and in which the
// target is pid 4002: those of the second recording.
func halfCheck(severity check.Severity, says func(p *check.Pass) bool, uses ...metric.Metric) *check.Check {
	return &check.Check{
		Name: "half", Stage: check.Kernel, Needs: []metric.Metric{metric.TCPOrigDataSent}, Uses: uses,
		Run: func(p *check.Pass) error {
			if p.Meta.Target.PID == 4002 && says(p) {
				p.Report(check.Finding{Subject: check.Host, Severity: severity, Summary: "now"})
			}
			return nil
		},
	}
}

// TestHalves: a problem that came up in the window, and was critical at its end, is past the threshold. A finding that
// rests on a profile is in neither half, which is no evidence against it.
func TestHalves(t *testing.T) {
	sent := func(p *check.Pass) []recording.Point { return p.Counter(metric.TCPOrigDataSent)[0].Points }
	late := func(p *check.Pass) bool { return sent(p)[len(sent(p))-1].Value > 15_000 }
	early := func(p *check.Pass) bool { return sent(p)[0].Value == 0 }
	profiled := func(p *check.Pass) bool { return len(p.Gauge(metric.CPUProfileSamples)) > 0 }
	for _, tt := range []struct {
		name  string
		check *check.Check
		want  Result
	}{
		{"critical at the end", halfCheck(check.Critical, late), Worse},
		{"a warning at the end", halfCheck(check.Warning, late), Same},
		{"critical at the beginning", halfCheck(check.Critical, early), Same},
		{"of the profile", halfCheck(check.Warning, profiled, metric.CPUProfileSamples), Worse},
		{"of all but the profile", halfCheck(check.Warning, late, metric.CPUProfileSamples), Same},
	} {
		d := Compare(shop(1).record(t), shop(2).record(t), Options{Checks: []*check.Check{tt.check}})
		if d.Verdict.Result != tt.want || len(d.Findings) != 1 || d.Findings[0].Fate != New {
			t.Errorf("%s: %s: %+v", tt.name, d.Verdict.Summary, d.Findings)
		}
	}
}

// TestMasked: after one bottleneck is fixed, the next one shows. It is not a regression, unless it is worse than the
// one that was fixed.
func TestMasked(t *testing.T) {
	next := func(before, after check.Severity) *check.Check {
		return &check.Check{
			Name: "next", Stage: check.Kernel, Needs: []metric.Metric{metric.TCPTimeWait},
			Run: func(p *check.Pass) error {
				severity := before
				if p.Gauge(metric.TCPTimeWait)[0].Last() == 0 {
					severity = after
				}
				if severity != hidden {
					p.Report(check.Finding{Subject: check.Host, Severity: severity, Summary: "now seen"})
				}
				return nil
			},
		}
	}
	b, a := shop(1), shop(2)
	b.timeWait = 500
	for _, tt := range []struct {
		before, after check.Severity
		want          Result
	}{
		{hidden, check.Warning, Improved},
		{hidden, check.Critical, Worse},
		{check.Info, check.Warning, Improved},
		{check.Info, check.Critical, Worse},
		{check.Warning, check.Critical, Worse},
	} {
		d := Compare(b.record(t), a.record(t), Options{Checks: []*check.Check{backlog(), next(tt.before, tt.after)}})
		if d.Verdict.Result != tt.want {
			t.Errorf("from %d to %s: %s", tt.before, tt.after, d.Verdict.Summary)
		}
	}
}

// hidden stands for no finding.
const hidden = check.Severity(-1)

// TestDisturbed: the same work is more expensive beside other programs, which is not the program's doing. Clients that
// do more when more is asked for are not such others.
func TestDisturbed(t *testing.T) {
	b, a := shop(1), shop(2)
	b.others, a.others = 0.2, 0.6
	a.cpu *= 1.4
	d := compared(t, b, a)
	if d.Verdict.Result != Same || number(t, d, "cpu_per_request").Result != Changed ||
		!strings.Contains(strings.Join(d.Doubts, "\n"), "what else ran") {
		t.Errorf("%s, %q", d.Verdict.Summary, d.Doubts)
	}
	a.others, a.requests = 0.4, 2*b.requests
	if d := compared(t, b, a); strings.Contains(strings.Join(d.Doubts, "\n"), "what else ran") {
		t.Errorf("with twice the clients: %s, %q", d.Verdict.Summary, d.Doubts)
	}
}

// TestGuest: in a virtual machine the same work may take a quarter more CPU time in the next run. Work that is twice as
// expensive is so there, too, and a method is compared with the others.
func TestGuest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		guest  bool
		factor float64
		want   Result
	}{{false, 1.25, Worse}, {true, 1.25, Same}, {true, 0.78, Same}, {true, 2, Worse}} {
		b, a := shop(1), shop(2)
		b.guest, a.guest = tt.guest, tt.guest
		a.cpu *= tt.factor
		if d := compared(t, b, a); d.Verdict.Result != tt.want || len(d.Methods.Grown) != 0 {
			t.Errorf("guest %v, %v times the CPU time: %s", tt.guest, tt.factor, d.Verdict.Summary)
		}
	}
	b, a := shop(1), shop(2)
	b.guest, a.guest = true, true
	b.seconds, a.seconds = 120, 120
	a.cpu *= 1.25
	a.methods["main.tax"] = 0.2
	if d := compared(t, b, a); d.Verdict.Result != Worse || len(d.Methods.Grown) != 1 ||
		d.Methods.Grown[0].Name != "main.tax" {
		t.Errorf("a method twice as dear on a slower machine: %s", d.Verdict.Summary)
	}
}

// TestMethodsBesideOthers: code that misses the cache gets more expensive beside a neighbour. Only methods that grow by
// far more are named.
func TestMethodsBesideOthers(t *testing.T) {
	b, a := shop(1), shop(2)
	b.seconds, a.seconds = 60, 60
	b.others, a.others = 0.2, 0.6
	a.methods["main.tax"] = 0.15
	if d := compared(t, b, a); d.Verdict.Result != Same || len(d.Methods.Grown) != 0 {
		t.Errorf("half as much again: %s, %+v", d.Verdict.Summary, d.Methods.Grown)
	}
	a.methods["main.tax"] = 0.6
	if d := compared(t, b, a); d.Verdict.Result != Worse || len(d.Methods.Grown) != 1 {
		t.Errorf("six times as much: %s, %+v", d.Verdict.Summary, d.Methods.Grown)
	}
}

// TestTakenAway: on a full host a neighbour takes from target and clients alike, and the other load is no more than
// before.
func TestTakenAway(t *testing.T) {
	of := func(before, after float64, r Result) Number {
		return Number{
			Before: &keynumber.Estimate{Mean: before}, After: &keynumber.Estimate{Mean: after},
			Change: &Change{Absolute: after - before}, Result: r,
		}
	}
	for _, tt := range []struct {
		name       string
		used, wait Number
		want       bool
	}{
		{"less of the CPUs and longer waits", of(0.9, 0.6, Changed), of(0.03, 0.4, Worse), true},
		{"the other way round", of(0.6, 0.9, Changed), of(0.4, 0.03, Improved), true},
		{"more of the CPUs and longer waits: its own threads", of(0.6, 1.8, Changed), of(0.03, 0.4, Worse), false},
		{"longer waits for as much", of(0.6, 0.6, Same), of(0.03, 0.4, Worse), false},
		{"less work", of(0.9, 0.6, Changed), of(0.03, 0.03, Same), false},
	} {
		tt.used.Name, tt.wait.Name = "cpu_used", "cpu_wait"
		d := Data{Numbers: []Number{tt.used, tt.wait}}
		if got := d.takenAway(); (got != "") != tt.want {
			t.Errorf("%s: %q", tt.name, got)
		}
		quota := of(0, 0.5, Worse)
		quota.Name = "throttled_share"
		d.Numbers = append(d.Numbers, quota)
		if got := d.takenAway(); got != "" {
			t.Errorf("%s, with a quota: %q", tt.name, got)
		}
	}
}

// TestKernelsShare: the kernel's work for a method differs from run to run more than samples do.
func TestKernelsShare(t *testing.T) {
	list := func(kernel float64) (b, a *tally) {
		of := func(n float64) *tally {
			return &tally{
				counts: map[string]float64{"x": 300, "y": 300, "z": 300, "write": n}, kernel: map[string]float64{
					"write": n * kernel,
				}, total: 900 + n, seconds: 10,
			}
		}
		return of(220), of(320)
	}
	for _, tt := range []struct {
		kernel float64
		grown  int
	}{{0, 1}, {1, 0}} {
		m := Methods{Clustering: 1}
		b, a := list(tt.kernel)
		m.Seconds = [2]float64{10, 10}
		m.test(b, a, 0, 1)
		if len(m.Grown) != tt.grown {
			t.Errorf("with %v of it in the kernel: %+v", tt.kernel, m.Grown)
		}
	}
}

// TestInlined: if a JVM compiles several methods into one, the samples are sometimes under one name and sometimes under
// the other. None of them is named, and the rest is not compared with them. A method that is compiled by itself is.
func TestInlined(t *testing.T) {
	shop := func(seed uint64, order, tax, sign float64) program {
		p := shop(seed)
		p.seconds, p.latency = 60, 0.01
		p.methods = map[string]float64{
			"com.acme.Shop.order_[j]": order, "com.acme.Shop.order_[j];com.acme.Shop.tax_[i]": tax,
			"com.acme.Shop.order_[j];com.acme.Shop.sign_[j]":  sign,
			"com.acme.Shop.order_[j];com.acme.Shop.parse_[j]": 0.3,
		}
		return p
	}
	if d := compared(t, shop(1, 0.2, 0.2, 0.3), shop(2, 0.1, 0.3, 0.3)); d.Verdict.Result != Same ||
		len(d.Methods.Grown)+len(d.Methods.Shrunk) > 0 {
		t.Errorf("moved: %s: %+v", d.Verdict.Summary, d.Methods)
	}
	a := shop(2, 0.1, 0.3, 0.45)
	a.cpu *= 1.15
	d := compared(t, shop(1, 0.2, 0.2, 0.3), a)
	if d.Verdict.Result != Worse || len(d.Methods.Grown) != 1 || d.Methods.Grown[0].Name != "com.acme.Shop.sign" ||
		len(d.Methods.Shrunk) > 0 {
		t.Errorf("dearer: %s: %+v", d.Verdict.Summary, d.Methods)
	}
}

func TestNotAssessedIsNotNew(t *testing.T) {
	c := backlog()
	c.Needs = append(c.Needs, metric.CgroupPeriods)
	b, a := shop(1), shop(2)
	a.timeWait, a.throttled = 500, 0
	d := Compare(b.record(t), a.record(t), Options{Checks: []*check.Check{c}})
	if len(d.Findings) != 1 || d.Findings[0].Fate != NotSeen || d.Verdict.Result != Same {
		t.Errorf("%+v, %s", d.Findings, d.Verdict.Summary)
	}
}

func TestProfilesOfTwoKinds(t *testing.T) {
	b, a := shop(1), shop(2)
	a.engine = "another sampler"
	if d := compared(t, b, a); d.Methods == nil || d.Methods.Reason == "" || len(d.Methods.Grown) > 0 {
		t.Errorf("%+v", d.Methods)
	}
	a.methods = nil
	if d := compared(t, b, a); d.Methods == nil || d.Methods.Reason == "" {
		t.Errorf("%+v", d.Methods)
	}
	b.methods = nil
	if d := compared(t, b, a); d.Methods != nil {
		t.Errorf("%+v", d.Methods)
	}
}

func TestDeterministic(t *testing.T) {
	b, a := shop(1).record(t), shop(2).record(t)
	o := Options{Checks: []*check.Check{backlog()}}
	var said [2]string
	for i := range said {
		data, err := json.Marshal(Compare(b, a, o))
		if err != nil {
			t.Fatal(err)
		}
		said[i] = string(data)
	}
	if diff := cmp.Diff(said[0], said[1]); diff != "" {
		t.Error(diff)
	}
}

func TestNature(t *testing.T) {
	for _, tt := range []struct{ x, y check.Subject }{
		{check.Subject{Kind: "pid", ID: "4021 (java)"}, check.Subject{Kind: "pid", ID: "77 (java)"}},
		{
			check.Subject{Kind: "cgroup", ID: "/docker/3f2a9c1d77e0b4a5"},
			check.Subject{Kind: "cgroup", ID: "/docker/aaaaaaaaaaaa"},
		},
		{check.Subject{Kind: "lock", ID: "futex 0x7f00aa10"}, check.Subject{Kind: "lock", ID: "futex 0x7fffbb20"}},
	} {
		if nature(tt.x) != nature(tt.y) {
			t.Errorf("%q and %q are taken for two", nature(tt.x), nature(tt.y))
		}
	}
	x, y := check.Subject{Kind: "destination", ID: "10.0.0.5:443"}, check.Subject{
		Kind: "destination",
		ID:   "10.0.0.6:443",
	}
	if nature(x) == nature(y) {
		t.Error("two destinations are taken for one")
	}
}

// TestOneMethodIsNoMeasure: one method is most of a program and shrinks. The others keep their time per request.
func TestOneMethodIsNoMeasure(t *testing.T) {
	b, a := shop(1), shop(2)
	b.seconds, a.seconds = 6, 6
	b.latency, a.latency = 0.01, 0.01
	b.cpu, a.cpu = 1e-3, 0.4e-3
	b.methods = map[string]float64{"main.handshake": 0.72, "main.read": 0.1, "main.parse": 0.09, "main.write": 0.09}
	a.methods = map[string]float64{"main.handshake": 0.12, "main.read": 0.1, "main.parse": 0.09, "main.write": 0.09}
	d := compared(t, b, a)
	if d.Verdict.Result != Improved || len(d.Methods.Grown) != 0 || d.Methods.Against != AgainstRequests {
		t.Errorf("%s, against %s: %+v", d.Verdict.Summary, d.Methods.Against, d.Methods.Grown)
	}
}
