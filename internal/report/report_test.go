package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	q "github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var update = flag.Bool("update", false, "rewrite the want sections of the cases")

// TestGolden prints the report of every case: a recording in testdata/report/<case>.txtar and the suite of that name
// below. A case with one finding that is the verdict must fit a screen.
func TestGolden(t *testing.T) {
	for name, suite := range suites() {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("../../testdata/report", name+".txtar")
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			ar := txtar.Parse(data)
			d := build(t, ar, suite)
			got := map[string]string{
				"want.txt":         textOf(t, d, TextOptions{}),
				"want-verbose.txt": textOf(t, d, TextOptions{Verbose: true}),
				"want.json":        jsonOf(t, d),
				"want.md":          rendered(t, d.Markdown),
				"want.xml":         rendered(t, d.JUnit),
			}
			golden(t, path, ar, []string{"want.txt", "want-verbose.txt", "want.json", "want.md", "want.xml"}, got)
		})
	}
}

func build(t *testing.T, ar *txtar.Archive, suite []*check.Check) *Data {
	t.Helper()
	fsys, err := txtar.FS(ar)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := recording.Read(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return Build(rec, check.Run(rec, suite, check.Options{Causes: testCauses}))
}

func textOf(t *testing.T, d *Data, opts TextOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := d.Text(&b, opts); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func jsonOf(t *testing.T, d *Data) string {
	t.Helper()
	return rendered(t, d.JSON)
}

func rendered(t *testing.T, render func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := render(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// golden compares the sections of an archive, or writes them with -update, in the order of names.
func golden(t *testing.T, path string, ar *txtar.Archive, names []string, got map[string]string) {
	t.Helper()
	if *update {
		rewrite(t, path, ar, names, got)
		return
	}
	for _, f := range ar.Files {
		if w, ok := got[f.Name]; ok && w != string(f.Data) {
			t.Errorf("%s: -want +got:\n%s", f.Name, cmp.Diff(string(f.Data), w))
		}
		delete(got, f.Name)
	}
	if len(got) > 0 {
		t.Error("a want section is missing: run the test with -update and read what it wrote")
	}
}

func rewrite(t *testing.T, path string, ar *txtar.Archive, names []string, got map[string]string) {
	t.Helper()
	var files []txtar.File
	for _, f := range ar.Files {
		if _, ok := got[f.Name]; !ok {
			files = append(files, f)
		}
	}
	for _, n := range names {
		files = append(files, txtar.File{Name: n, Data: []byte(got[n])})
	}
	ar.Files = files
	if err := os.WriteFile(path, txtar.Format(ar), 0o644); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, name string) *Data {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../testdata/report", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	return build(t, txtar.Parse(data), suites()[name])
}

// TestWidth: every line fits, except for commands and code, which must stay whole to be copied.
func TestWidth(t *testing.T) {
	for name := range suites() {
		for _, width := range []int{40, 60, 80, 120} {
			for _, verbose := range []bool{false, true} {
				for _, l := range strings.Split(textOf(t, load(t, name), TextOptions{Width: width, Verbose: verbose}),
					"\n") {
					code := regexp.MustCompile(`^ +(In code +)?(\$|before:|after:) `).MatchString(l) // whole, to be copied
					if utf8.RuneCountInString(l) > width && !code {
						t.Errorf("%s at %d columns: %q", name, width, l)
					}
				}
			}
		}
	}
}

// TestAnswerFitsAScreen: somebody woken at night reads the first 24 lines: the verdict with its proof, the fix, the
// confidence, and the next command.
func TestAnswerFitsAScreen(t *testing.T) {
	for name := range suites() {
		for _, width := range []int{60, 80, 160} {
			d := load(t, name)
			lines := strings.Split(textOf(t, d, TextOptions{Width: width}), "\n")
			first := strings.Join(lines[:min(len(lines), answerLines)], "\n")
			want := []string{strings.ToUpper(string(d.Verdict.Result))}
			if d.Verdict.Result == Bottleneck {
				want = []string{"  Proof  ", "  Confidence  ", "  Next  ", "  " + clean(d.Findings[0].Check) + ": "}
				if len(d.Findings[0].Remedies) > 0 {
					want = append(want, "  Fix  ", "risk: ")
				}
			}
			for _, w := range want {
				if !strings.Contains(first, w) {
					t.Errorf("%s at %d columns: no %q in\n%s", name, width, w, first)
				}
			}
		}
	}
}

// TestLongAnswer: evidence that does not fit beside a long fix comes after the answer, and none is lost.
func TestLongAnswer(t *testing.T) {
	f := exhausted()
	f.Remedies[0].Action = strings.Repeat("Keep connections alive in the client. ", 12)
	f.Doubts = []string{strings.Repeat("only some of it was seen ", 8)}
	rec := recording.NewBuilder().Done(recording.Meta{})
	d := Build(rec, &check.Result{Findings: []check.Finding{f}})
	s := textOf(t, d, TextOptions{})
	answer, rest, ok := strings.Cut(s, "  Next  ")
	if !ok || strings.Count(answer, "\n") >= answerLines {
		t.Errorf("the answer does not end on the first screen:\n%s", s)
	}
	verbose := textOf(t, d, TextOptions{Verbose: true})
	for _, e := range f.Evidence {
		if !strings.Contains(verbose, e.String()) {
			t.Errorf("%q is lost", e)
		}
	}
	if !strings.Contains(answer, "Proof") || !strings.Contains(rest, "More proof") {
		t.Errorf("the proof is not in two parts:\n%s", s)
	}
}

// TestHostile: no format contains anything that a terminal acts on, whatever a process calls itself.
func TestHostile(t *testing.T) {
	d := load(t, "hostile")
	for name, s := range map[string]string{
		"text": textOf(t, d, TextOptions{Verbose: true}), "json": jsonOf(t, d),
		"markdown": rendered(t, d.Markdown), "junit": rendered(t, d.JUnit),
	} {
		for _, r := range s {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("%s holds %U", name, r)
			}
		}
		if strings.Contains(s, "\nNO BOTTLENECK FOUND") {
			t.Errorf("%s: a name with a line break wrote a verdict of its own", name)
		}
	}
	var back Data
	var raw struct{ Target recording.Target }
	if err := json.Unmarshal([]byte(jsonOf(t, d)), &raw); err != nil {
		t.Fatal(err)
	}
	back.Target = raw.Target
	if diff := cmp.Diff(d.Target, back.Target); diff != "" {
		t.Errorf("JSON does not give the names back: -want +got:\n%s", diff)
	}
}

// TestColor: colours are only added, never part of the words.
func TestColor(t *testing.T) {
	d := load(t, "critical")
	colored := textOf(t, d, TextOptions{Color: true})
	if !strings.Contains(colored, "\x1b[1;31mCRITICAL\x1b[0m") {
		t.Error("the severity has no colour")
	}
	var b strings.Builder
	for i, part := range strings.Split(colored, "\x1b[") {
		if i > 0 {
			_, part, _ = strings.Cut(part, "m")
		}
		b.WriteString(part)
	}
	if diff := cmp.Diff(textOf(t, d, TextOptions{}), b.String()); diff != "" {
		t.Errorf("without its colours it is another text: -want +got:\n%s", diff)
	}
}

func TestExitCode(t *testing.T) {
	for name, want := range map[string]int{
		"critical": 3, "healthy": 0, "not-assessed": 0, "nothing": 4, "hostile": 3, "ended-early": 3, "profile": 3,
	} {
		d := load(t, name)
		if d.ExitCode() != want || d.ExitStatus != want {
			t.Errorf("%s: exit code %d (%d in JSON), want %d", name, d.ExitCode(), d.ExitStatus, want)
		}
	}
}

// TestSchemaIsDocumented: every field that the JSON report can have is in its documentation.
func TestSchemaIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/report-schema.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range suites() {
		var v map[string]any
		if err := json.Unmarshal([]byte(jsonOf(t, load(t, name))), &v); err != nil {
			t.Fatal(err)
		}
		delete(v["cost"].(map[string]any), "collectors") // as in a recording's meta.json
		for _, k := range keys(v) {
			if !bytes.Contains(doc, []byte("`"+k+"`")) {
				t.Errorf("%s: field %q is not in docs/report-schema.md", name, k)
			}
		}
	}
}

func keys(v any) []string {
	var out []string
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			out = append(append(out, k), keys(x)...)
		}
	case []any:
		for _, x := range v {
			out = append(out, keys(x)...)
		}
	}
	return out
}

func TestWrap(t *testing.T) {
	tests := []struct {
		text        string
		first, rest int
		want        []string
	}{
		{"", 10, 10, []string{""}},
		{"one two three", 7, 5, []string{"one two", "three"}},
		{"share: 97 % of it", 9, 9, []string{"share:", "97 % of", "it"}},
		{"12 of 100 periods", 12, 12, []string{"12 of", "100 periods"}},
		{"/a/bb/ccc/dddd", 8, 8, []string{"/a/bb/", "ccc/dddd"}},
		{"abcdefghijkl", 5, 5, []string{"abcde", "fghij", "kl"}},
	}
	for _, tt := range tests {
		if d := cmp.Diff(tt.want, wrap(tt.text, tt.first, tt.rest)); d != "" {
			t.Errorf("wrap(%q, %d, %d): -want +got:\n%s", tt.text, tt.first, tt.rest, d)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"java", "\x1b[2J", "a\r\nb", "\u202efdp", "\xff\x9b", "日本"} {
		f.Add(s, 10)
	}
	f.Fuzz(func(t *testing.T, s string, width int) {
		c := clean(s)
		for _, r := range c {
			if !unicode.IsPrint(r) {
				t.Fatalf("clean(%q) holds %U", s, r)
			}
		}
		w := min(max(width, 1), 200)
		for _, l := range wrap(c, w, w) {
			if utf8.RuneCountInString(l) > w {
				t.Fatalf("wrap to %d: %q", w, l)
			}
		}
	})
}

// TestRing: a cycle in the chain of causes must neither hang nor hide a finding.
func TestRing(t *testing.T) {
	a := check.Finding{Check: "a", Subject: check.Host, Severity: check.Warning, ExplainedBy: "b host"}
	b := check.Finding{Check: "b", Subject: check.Host, Severity: check.Warning, ExplainedBy: "a host"}
	rec := recording.NewBuilder().Done(recording.Meta{})
	if n := len(Build(rec, &check.Result{Findings: []check.Finding{a, b}}).Findings); n != 2 {
		t.Errorf("%d of 2 findings are left", n)
	}
}

func TestTwoOfOneSubject(t *testing.T) {
	f := check.Finding{Check: "a", Subject: check.Host, Severity: check.Warning}
	effect := check.Finding{Check: "b", Subject: check.Host, Severity: check.Warning, ExplainedBy: "a host"}
	rec := recording.NewBuilder().Done(recording.Meta{})
	var got []string
	for _, f := range Build(rec, &check.Result{Findings: []check.Finding{f, f, effect}}).Findings {
		got = append(got, fmt.Sprint(f.Role, " ", f.ID))
	}
	if d := cmp.Diff([]string{"principal a host", "consequence b host", "further a host #2"}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// testCauses are among the checks of the suites below.
var testCauses = check.Causes{
	{Cause: "local-port-exhaustion", Effect: "cpu-in-system"},
	{Cause: "local-port-exhaustion", Effect: "syn-sent-pileup"},
	{Cause: "close-wait-leak", Effect: "too-many-threads"},
}

// finding makes a check that reports these findings, as a rule would.
func finding(name string, stage check.Stage, fs ...check.Finding) *check.Check {
	return &check.Check{
		Name: name, Stage: stage, Needs: []metric.Metric{metric.CPUSeconds},
		Run: func(p *check.Pass) error {
			for _, f := range fs {
				p.Report(f)
			}
			return nil
		},
	}
}

func fine(name string, read ...q.Value) *check.Check {
	return &check.Check{
		Name: name, Stage: check.Kernel, Needs: []metric.Metric{metric.CPUSeconds},
		Run: func(p *check.Pass) error {
			for _, v := range read {
				p.Read(v)
			}
			return nil
		},
	}
}

func needing(name string, m metric.Metric) *check.Check {
	return &check.Check{Name: name, Stage: check.Limits, Needs: []metric.Metric{m}, Run: func(*check.Pass) error {
		return nil
	}}
}

func suites() map[string][]*check.Check {
	healthy := []*check.Check{
		fine("conntrack-full", q.Of("entries", 4096, q.Entries).Per(q.Of("limit", 65536, q.Entries))),
		fine("softnet-drops", q.Of("dropped", 0, "packets/s")),
		fine("retransmits", q.Of("sent again", 3, q.Segments).Per(q.Of("sent", 9000, q.Segments))),
		fine("accept-queue-overflow"),
		fine("cpu-steal", q.Of("steal", 0.01, q.Ratio)),
		fine("memory-limit", q.Of("working set", 300<<20, q.Bytes).Per(q.Of("limit", 512<<20, q.Bytes))),
		fine("fd-limit", q.Of("open", 120, q.Files).Per(q.Of("limit", 1024, q.Files))),
	}
	gaps := []*check.Check{
		needing("ipc-low", metric.PerfEvents), needing("branch-misses", metric.PerfEvents),
		needing("irq-affinity", metric.IRQAffinity),
		needing("cpu-throttled", metric.CgroupPeriods), needing("cpu-throttled-burst", metric.CgroupThrottled),
	}
	return map[string][]*check.Check{
		"critical":     append(append(sick(), healthy...), gaps[0]),
		"healthy":      healthy,
		"not-assessed": append(append([]*check.Check{note()}, healthy[:2]...), gaps...),
		"nothing":      gaps,
		"hostile":      {hostile(), fine("fd-limit", q.Of("open files of \x1b]0;title\a", 1, q.Files))},
		"profile":      profiled(),
		"ended-early":  {finding("close-wait-leak", check.Connections, closeWait("4021 (java)"))},
	}
}

// profiled is a finding about code, and an earlier stage's finding that distorts it.
func profiled() []*check.Check {
	throttled := finding("cpu-throttled", check.Limits, check.Finding{
		Subject: check.Subject{Kind: "cgroup", ID: "/app.slice"}, Severity: check.Critical,
		Summary:  "stopped in 60 % of its periods.",
		Evidence: []q.Value{q.Of("throttled", 60, q.Periods).Per(q.Of("periods", 100, q.Periods))},
		Disproof: "cpu.stat stands still.",
	})
	code := finding("exception-storm", check.Code, check.Finding{
		Subject: check.Subject{Kind: "pid", ID: "4021 (java)"}, Severity: check.Warning,
		Summary: "40 % of the CPU time goes into throwing exceptions, for com.example.shop.Tickets.find:42",
		Evidence: []q.Value{q.Of("", 4, q.Seconds).Per(q.Of("CPU time", 10, q.Seconds)).
			Named("share of the process's CPU time")},
		Remedies: []check.Remedy{{
			Action: "Return a value.", Risk: "callers change", Effect: "the share to below 1 %",
			Before: "throw new NotFoundException(id);", After: "return Optional.empty();",
		}},
		Disproof: "few exceptions are counted.",
	})
	return []*check.Check{throttled, code}
}

func note() *check.Check {
	return finding("thp-splits", check.Kernel, check.Finding{
		Subject: check.Host, Severity: check.Info, Summary: "Huge pages are split at 120 pages/s.",
		Evidence: []q.Value{q.Of("split", 1200, q.Pages).Per(q.Of("window", 10, q.Seconds))},
	})
}

func closeWait(pid string) check.Finding {
	return check.Finding{
		Subject: check.Subject{Kind: "pid", ID: pid}, Severity: check.Warning,
		Summary:  "CLOSE_WAIT grows by 12 sockets/s: the program does not close what the peer has closed.",
		Evidence: []q.Value{q.Of("growth", 60, q.Sockets).Per(q.Of("window", 5, q.Seconds))},
		Remedies: []check.Remedy{{
			Action: "Close the socket when read returns 0.", Risk: "none",
			Effect: "CLOSE_WAIT to 0",
		}},
		Disproof: "The number falls again within minutes: ss -tn state close-wait",
	}
}

// sick is the port ceiling of a client with short connections, its consequences, and two independent faults.
func sick() []*check.Check {
	sy := finding("cpu-in-system", check.Kernel, check.Finding{
		Subject: check.Host, Severity: check.Warning, Summary: "61 % of the busy time is sy.",
	})
	syn := finding("syn-sent-pileup", check.Connections, check.Finding{
		Subject: check.Subject{Kind: "destination", ID: "10.0.0.5:443"}, Severity: check.Warning,
		Summary: "54 connections hang in SYN_SENT.",
	})
	threads := finding("too-many-threads", check.Limits, check.Finding{
		Subject: check.Subject{Kind: "pid", ID: "4021 (java)"}, Severity: check.Info, Summary: "2100 threads wait.",
	})
	ports := finding("local-port-exhaustion", check.Connections, exhausted())
	var skewed []check.Finding
	for i := range 5 {
		f := closeWait(fmt.Sprintf("%d (worker)", 500+i))
		skewed = append(skewed, f)
	}
	leak := finding("close-wait-leak", check.Connections, skewed...)
	steal := finding("bridge-nat-cost", check.Path, check.Finding{
		Subject: check.Host, Severity: check.Warning, Confidence: check.Medium,
		Summary:  "26 packets are processed for each request, 10 would do.",
		Evidence: []q.Value{q.Of("processed", 260000, q.Packets).Per(q.Of("requests", 10000, "requests"))},
		Remedies: []check.Remedy{{
			Action: "Let the hot path use the host's network.", Risk: "ports clash",
			Effect: "10 packets/request",
		}},
	})
	return []*check.Check{steal, ports, syn, leak, sy, threads, note()}
}

func exhausted() check.Finding {
	usable := q.Of("usable ports", 1000, q.Ports)
	return check.Finding{
		Subject: check.Subject{Kind: "destination", ID: "10.0.0.5:443"}, Severity: check.Critical,
		Summary: "All 1000 local ports to 10.0.0.5:443 are taken; connect() fails 430 times a second.",
		Evidence: []q.Value{
			q.Of("in TIME_WAIT or in use", 1000, q.Ports).Per(usable).Named("ports taken"),
			usable.Per(q.Of("TIME_WAIT", 60, q.Seconds)).As("connections/s").Named("ceiling"),
			q.Of("opened", 167, q.Connections).Per(q.Of("window", 10, q.Seconds)).Named("measured"),
		},
		Notes: []string{"opened by pid 4021 (java)"},
		Remedies: []check.Remedy{
			{
				Action: "Keep connections alive in the client of 10.0.0.5:443.",
				Risk:   "load may stick to old backends: set a maximum age",
				Effect: "new connections fall from 16.7/s to the pool's turnover",
			},
			{
				Action: "Let connect() take ports in TIME_WAIT again.", Command: "sysctl -w net.ipv4.tcp_tw_reuse=1",
				Risk: "none known with timestamps on", Effect: "ceiling 16.7 -> 1000 connections/s",
			},
			{
				Action: "Widen the range.",
				Command: "sysctl -w net.ipv4.ip_local_port_range='1024 65000' && sysctl -w " +
					"net.ipv4.ip_local_reserved_ports=8080",
				Risk: "clashes with listeners above 1024", Effect: "ceiling 16.7 -> 1066 connections/s",
			},
		},
		Placebos: []string{"tcp_fin_timeout: it is about FIN_WAIT_2 and does not shorten TIME_WAIT."},
		Disproof: "ss -tan dst 10.0.0.5:443 | wc -l shows far fewer than 1000.",
	}
}

func hostile() *check.Check {
	return finding("cpu-throttled", check.Limits, check.Finding{
		Subject:  check.Subject{Kind: "cgroup", ID: "/evil\x1b[2J\nNO BOTTLENECK FOUND\u009b1m\u202e\xff"},
		Severity: check.Warning,
		Summary:  "cgroup /evil\x1b[2J\nNO BOTTLENECK FOUND was stopped in 40 % of its periods.",
		Evidence: []q.Value{q.Of("throttled\r\n\x1b[1A", 40, q.Periods).Per(q.Of("periods", 100, q.Periods))},
		Notes:    []string{"\u2066note\u2069\U000e0041"}, Placebos: []string{"\bplacebo"},
		Doubts: []string{"\x7fdoubt"},
		Remedies: []check.Remedy{{
			Action: "act\x1b", Command: "echo \x1b[31m\nrm x", Risk: "risk\v",
			Effect: "effect\f",
		}},
		Disproof: "\x00disproof",
	})
}

// TestUnexplained: a resource used up by something that no check can name is not a clean bill of health. A finding goes
// before it.
func TestUnexplained(t *testing.T) {
	path := filepath.Join("../checks/code/testdata/hot-code", "not-assessed-python.txtar")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	unknown := &check.Check{
		Name: "code", Run: func(*check.Pass) error { return check.Unexplained("profile it", "a thread is full") },
	}
	finds := &check.Check{Name: "finds", Run: func(p *check.Pass) error {
		p.Report(check.Finding{Severity: check.Warning, Summary: "a fault"})
		return nil
	}}
	fine := &check.Check{Name: "fine", Run: func(*check.Pass) error { return nil }}
	for _, tc := range []struct {
		suite []*check.Check
		want  Result
	}{
		{[]*check.Check{fine, unknown}, Incomplete},
		{[]*check.Check{finds, unknown}, Bottleneck},
		{[]*check.Check{fine}, NoBottleneck},
	} {
		d := build(t, txtar.Parse(data), tc.suite)
		if d.Verdict.Result != tc.want {
			t.Errorf("%v, want %v", d.Verdict, tc.want)
		}
		said := "a thread is full. code would say more. To change that: profile it."
		if tc.want == Incomplete && !strings.HasSuffix(d.Verdict.Summary, said) {
			t.Errorf("%q does not say %q", d.Verdict.Summary, said)
		}
	}
}
