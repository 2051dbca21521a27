package html

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"

	"golang.org/x/net/html"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
	"github.com/perfdoctor/perfdoctor/internal/report"
	"github.com/perfdoctor/perfdoctor/internal/report/html/bundle"
)

// hostile is a name that tries every way out of its place: markup, attribute, script block, template, and a reversed
// direction.
const hostile = "</script><img src=x onerror=alert(1)>\"'`{{.}}<!--\u202e\x1b[31m"

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// sample is a recording whose names are all the given one.
func sample(t *testing.T, name string) *recording.Recording {
	t.Helper()
	n := quoted(name)
	at := func(t, v string) string {
		return `{"t":` + t + `,"m":{"cpu_seconds_total":[["0","user",` + v + `],["0","idle",` + v + `]],` +
			`"process_cpu_seconds_total":[["4021",` + n + `,"user","target",` + v + `]],"tcp_sockets":[["TIME_WAIT",` +
			v + `]],` +
			`"cgroup_cpu_quota":[[` + n + `,"0",0.5]],"cgroup_cpu_periods_total":[[` + n + `,"0",` + v + `0]],` +
			`"cgroup_cpu_throttled_periods_total":[[` + n + `,"0",` + v + `]],` +
			`"jvm_monitor_waiters":[["4021","0x1",` + n + `,` + n + `,` + n + `,` + n + `,` + n + `,3]],` +
			`"tcp_destination_sockets":[["10.0.0.1",` + n + `,"ESTABLISHED",` + v + `]],"cpu_profile_samples":[[4]]}}` +
			"\n"
	}
	files := fstest.MapFS{
		"meta.json": {
			Data: []byte(`{"schema":1,"perfdoctor":` + n + `,"started":"2026-11-20T10:00:00Z","duration_seconds":10,` +
				`"interval_seconds":1,"target":{"kind":"process","pid":4021,"name":` + n + `,"cgroup":` + n +
				`,"runtime":"jvm"},` +
				`"collectors":[{"name":"x","status":"denied","reason":` + n + `,"metrics":["swap_free_bytes"]}]}`),
		},
		"samples.jsonl": {Data: []byte(at("0", "1") + at("1", "2") + at("2", "4"))},
	}
	b := stacks.NewBuilder(stacks.CPU)
	inner, outer := b.Frame(stacks.Frame{Name: name, Kind: stacks.Compiled, Line: 7}),
		b.Frame(stacks.Frame{Name: "outer", Kind: stacks.Native})
	thread := b.Thread(stacks.Thread{ID: 1, Name: name})
	b.Add(stacks.Sample{Stack: []int{inner, outer}, Thread: thread, Count: 3, Value: 30e6})
	b.Add(stacks.Sample{Stack: []int{outer}, Thread: thread, Count: 1, Value: 10e6, At: 1e9})
	p := b.Profile()
	p.Interval, p.Duration, p.Engine = 10e6, 2e9, name
	var text bytes.Buffer
	if err := p.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	files["profiles/cpu.txt"] = &fstest.MapFile{Data: text.Bytes()}
	rec, err := recording.Read(files)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// finds reports one finding with the name in every text.
func finds(name string) *check.Check {
	return &check.Check{
		Name: "finds", Stage: check.Limits, Needs: []metric.Metric{metric.CgroupThrottled, metric.CPUProfileSamples},
		Uses: []metric.Metric{metric.CgroupPeriods},
		Run: func(p *check.Pass) error {
			prof, _ := p.Ranked(stacks.CPU)
			f := check.Finding{
				Subject: check.Subject{Kind: "cgroup", ID: name}, Severity: check.Critical, Summary: name,
				Disproof: name, Notes: []string{name},
				Evidence: []quantity.Value{quantity.Of(name, 1, quantity.Seconds).
					Per(quantity.Of(name, 2, quantity.Seconds)).Named("%s", name)},
				Remedies: []check.Remedy{{
					Action: name, Command: check.Command(name), Risk: name, Effect: name,
					Before: name, After: name,
				}},
				Placebos: []string{name}, Doubts: []string{name},
			}
			for _, s := range prof.Samples {
				if len(s.Stack) == 2 {
					f.Marks = append(f.Marks, check.Mark{Event: stacks.CPU, Stack: s.Stack, At: 0})
				}
			}
			p.Report(f)
			return nil
		},
	}
}

func lacks() *check.Check {
	return &check.Check{
		Name: "lacks", Stage: check.Path, Needs: []metric.Metric{metric.SwapFree}, Run: func(*check.Pass) error {
			return nil
		},
	}
}

func input(t *testing.T, name string) Input {
	t.Helper()
	rec, list := sample(t, name), []*check.Check{finds(name), lacks()}
	return Input{Report: report.Build(rec, check.Run(rec, list, check.Options{})), Recording: rec, Checks: list}
}

func written(t *testing.T, in Input) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, in); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// elements counts the elements of a page by what a browser makes of it, and collects their attributes.
func elements(t *testing.T, page string) (count map[string]int, attributes map[string]bool, text string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	count, attributes = map[string]int{}, map[string]bool{}
	var all strings.Builder
	for n := range root.Descendants() {
		switch n.Type {
		case html.ElementNode:
			count[n.Data]++
			for _, a := range n.Attr {
				attributes[a.Key] = true
			}
		case html.TextNode:
			if n.Parent.Data != "script" && n.Parent.Data != "style" {
				all.WriteString(n.Data + "\n")
			}
		}
	}
	return count, attributes, all.String()
}

// TestHostileNames: a name is text wherever it stands, and makes no element or attribute that a harmless one does not.
func TestHostileNames(t *testing.T) {
	page := written(t, input(t, hostile))
	plain, plainAttributes, _ := elements(t, written(t, input(t, "harmless.name")))
	count, attributes, text := elements(t, page)
	for name, n := range count {
		if plain[name] != n {
			t.Errorf("%d elements <%s>, with a harmless name %d", n, name, plain[name])
		}
	}
	for a := range attributes {
		if !plainAttributes[a] || strings.HasPrefix(a, "on") || a == "style" {
			t.Errorf("an attribute %q", a)
		}
	}
	if n := strings.Count(text, `</script><img src=x onerror=alert(1)>"'`+"`"+`{{.}}<!--\u202e\x1b[31m`); n < 15 {
		t.Errorf("the name is shown %d times, want in all places: summary, subject, notes, remedies, tables, cost", n)
	}
	for _, r := range page {
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			t.Fatalf("the page has an unprintable %U", r)
		}
	}
}

// TestNothingLoaded: no element or style of the page names anything to load, and its policy would not allow it.
func TestNothingLoaded(t *testing.T) {
	page := written(t, input(t, "name"))
	page = regexp.MustCompile(`(?s)<script[^>]*>.*?</script>`).ReplaceAllString(page, "")
	for _, bad := range []string{" src=", "<link", "@import", "url(", "<iframe", "<object", "<base"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	for _, want := range []string{"default-src &#39;none&#39;", "base-uri &#39;none&#39;", "style-src &#39;sha256-"} {
		if !strings.Contains(page, want) {
			t.Errorf("the policy lacks %s", want)
		}
	}
	for _, bad := range []string{"unsafe", "http:", "https:", "data:", "*;"} {
		if i := strings.Index(page, "Content-Security-Policy"); strings.Contains(page[i:i+600], bad) {
			t.Errorf("the policy has %s", bad)
		}
	}
}

// TestLinks: every link of a page leads to an element of it. The finding is linked to chart, row and flame graph, and
// they to it.
func TestLinks(t *testing.T) {
	page := written(t, input(t, "group"))
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	ids, links := map[string]bool{}, map[string]bool{}
	for n := range root.Descendants() {
		for _, a := range n.Attr {
			switch {
			case a.Key == "id" && ids[a.Val]:
				t.Errorf("two elements with the id %q", a.Val)
			case a.Key == "id":
				ids[a.Val] = true
			case a.Key == "href":
				links[a.Val] = true
			}
		}
	}
	for l := range links {
		if !strings.HasPrefix(l, "#") || !ids[l[1:]] {
			t.Errorf("a link to %q leads nowhere", l)
		}
	}
	for _, want := range []string{"#chart-throttled", "#finding-1", "#profiles", "#row-facts-limits-2"} {
		if !links[want] {
			t.Errorf("no link to %s in %v", want, links)
		}
	}
}

// TestSame: one input, the same bytes.
func TestSame(t *testing.T) {
	first := written(t, input(t, "group"))
	for range 3 {
		if written(t, input(t, "group")) != first {
			t.Fatal("two pages of one recording differ")
		}
	}
}

// TestWithoutProgram: a build that lacks the program says so, and the rest is there.
func TestWithoutProgram(t *testing.T) {
	in := input(t, "group")
	v := newView(in)
	v.Missing = bundle.ErrNotBundled.Error()
	page, err := v.page(in.Recording, bundle.Program{})
	if err != nil {
		t.Fatal(err)
	}
	_, _, text := elements(t, string(page))
	for _, want := range []string{"came without the program", "Arithmetic", "finds", "Throttled periods"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q: %s", want, text)
		}
	}
	if strings.Contains(string(page), "<script") {
		t.Error("there is a script")
	}
}

// TestIncident: the page of a flight recorder's recording says when the incident began and why it was kept, in a part
// of it and in all.
func TestIncident(t *testing.T) {
	rec := sample(t, "harmless.name").WithIncident(recording.Incident{
		From: 1, To: 2, Check: "finds", Subject: hostile, Severity: "critical", Summary: hostile,
		Others: []string{"another: " + hostile},
	})
	for want, r := range map[string]*recording.Recording{
		"all of the 10 s that a flight recorder kept because of finds: ":  rec,
		"from 10 s that a flight recorder kept, the part with finds: ":    rec.AtIncident(),
		"which began at 10:00:01 UTC . It said then: ":                    rec,
		"2026-11-20 10:00:01 UTC":                                         rec.AtIncident(),
		". Meanwhile began: another: </script>":                           rec,
		" --whole shows all of it . It said then: </script><img src=x on": rec.AtIncident(),
	} {
		in := input(t, "harmless.name")
		in.Recording, in.Report = r, report.Build(r, check.Run(r, in.Checks, check.Options{}))
		_, _, text := elements(t, written(t, in))
		if !strings.Contains(strings.Join(strings.Fields(text), " "), strings.TrimSpace(want)) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestPagesHave: the pages of recordings have what a reader is promised, if the recording has it. TestPages checks
// whether it is drawn.
func TestPagesHave(t *testing.T) {
	for name, want := range map[string][]string{
		"testdata/java-finalizers.txtar": {
			"chart-cpu", "chart-cpu-heat", "chart-target-cpu", "chart-psi", "chart-cgroup-psi", "chart-opened",
			"chart-gc", "chart-heap", "glance",
			"data-profile-cpu", "data-profile-wall", "data-profile-lock", "data-profile-alloc",
			"locks", "table-lock-times", "table-settings", "table-facts-limits", "cpu-time", "waits", "gaps", "cost",
			"filter", "range",
		},
		"../../checks/connections/testdata/port-search-cliff/firing-profile.txtar": {
			"chart-softirq-heat", "chart-connections", "chart-requests", "chart-ceiling", "data-profile-host-cpu",
			"table-destinations",
		},
		"../../checks/limits/testdata/too-many-threads/quiet-quota.txtar": {
			"chart-run-queue",
			"chart-throttled",
		},
		"../../checks/connections/testdata/syn-sent-pileup/firing-queue-here.txtar": {
			"chart-accept-queue",
			"table-listeners",
		},
		"../../checks/runtime/testdata/lock-contention/firing.txtar":    {"data-profile-off-cpu"},
		"../../checks/runtime/testdata/monitor-contention/firing.txtar": {"locks", "table-monitors"},
		"../../checks/runtime/testdata/gc-overhead/firing-stalls.txtar": {"table-flags"},
	} {
		path, _ := pageOf(t, name)
		b, err := os.ReadFile(path)
		must(t, err)
		page := string(b)
		for _, id := range want {
			if !strings.Contains(page, ` id="`+id+`"`) {
				t.Errorf("the page of %s has no %s", name, id)
			}
		}
	}
}

// TestRowsLeftOut: the page says how many rows it leaves out, both for the classes of locks and for the series of a
// metric.
func TestRowsLeftOut(t *testing.T) {
	const more = 6
	b := stacks.NewBuilder(stacks.Lock)
	at, thread := b.Frame(stacks.Frame{Name: "org.example.Main.run", Kind: stacks.Compiled}),
		b.Thread(stacks.Thread{ID: 1, Name: "main"})
	for i := range rowsPerMetric + more {
		b.Add(stacks.Sample{
			Stack: []int{at}, Thread: thread, Class: fmt.Sprintf("org.example.Lock%d", i), Count: 1,
			Value: int64(1e9 - i),
		})
	}
	p := b.Profile()
	p.Interval, p.Duration = 1, 2e9
	rec := recording.NewBuilder()
	a := rec.Appender()
	a.Profile(p)
	for state := range rowsPerMetric + more {
		a.Gauge(metric.Sockets, 1, fmt.Sprint(state))
	}
	a.Commit()
	done := rec.Done(recording.Meta{})
	if got := lockTimes(done); got.Left != more || len(got.Rows) != rowsPerMetric {
		t.Errorf("%d classes of locks are shown and %d left out, want %d and %d", len(got.Rows), got.Left,
			rowsPerMetric, more)
	}
	series := table{}
	series.addMetric(done, metric.Sockets)
	if series.Left != more || len(series.Rows) != rowsPerMetric {
		t.Errorf("%d series are shown and %d left out, want %d and %d", len(series.Rows), series.Left, rowsPerMetric,
			more)
	}
}
