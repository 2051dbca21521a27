package html

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
	"github.com/perfdoctor/perfdoctor/internal/report"
)

// What a page with 50,000 distinct stacks may cost its reader.
const (
	manyStacks = 50_000
	mostReady  = 900 * time.Millisecond // from the start of loading until it answers
	mostZoom   = 100 * time.Millisecond
	mostBytes  = 1500 << 10
)

// large makes a profile of n distinct stacks of 20 to 60 calls in 4000 methods, ten seconds and 64 threads, like a
// large server's: some methods call many others, most few.
func large(n int) *stacks.Profile {
	random := rand.New(rand.NewPCG(1, 2))
	b := stacks.NewBuilder(stacks.CPU)
	var frames []int
	for i := range 4000 {
		frames = append(frames, b.Frame(stacks.Frame{
			Name: fmt.Sprintf("com.example.shop.module%d.Service%d$Handler.process%d", i%23, i%301, i), Line: i % 900,
			Kind: stacks.Compiled,
		}))
	}
	var threads []int
	for i := range 64 {
		threads = append(threads, b.Thread(stacks.Thread{ID: 1000 + i, Name: fmt.Sprintf("http-nio-8080-exec-%d", i)}))
	}
	seen := map[string]bool{}
	for len(seen) < n {
		depth := 20 + random.IntN(41)
		stack := make([]int, depth)
		at := 0
		for d := range depth { // the callees of a method are a few of its own
			choices := 1
			if random.IntN(4) == 0 {
				choices = 6
			}
			at = (at*31 + 7 + random.IntN(choices)*13) % len(frames)
			stack[depth-1-d] = frames[at]
		}
		k := key(stack)
		if seen[k] {
			continue
		}
		seen[k] = true
		count := 1 + int64(random.ExpFloat64()*3)
		b.Add(stacks.Sample{
			Stack: stack, Thread: threads[random.IntN(len(threads))], At: time.Duration(random.IntN(10)) * time.Second,
			Count: count, Value: count * 10e6,
		})
	}
	p := b.Profile()
	p.Engine, p.Interval, p.Duration = "made", 10e6, 10*time.Second
	return p
}

// withProfile returns a recording with one profile and no finding.
func withProfile(tb testing.TB, p *stacks.Profile) Input {
	tb.Helper()
	var pprof bytes.Buffer
	must(tb, p.WritePprof(&pprof))
	rec, err := recording.Read(fstest.MapFS{
		"meta.json": {Data: []byte(`{"schema":1,"started":"2026-11-20T10:00:00Z","duration_seconds":10,` +
			`"target":{"kind":"process","pid":1}}`)},
		"samples.jsonl": {Data: []byte(`{"t":0,"m":{"cpu_profile_samples":[[1]],"procs_running":[[1]]}}` + "\n" +
			`{"t":10,"m":{"procs_running":[[2]]}}`)},
		"profiles/cpu.pb.gz": {Data: pprof.Bytes()},
	})
	must(tb, err)
	return Input{Report: report.Build(rec, check.Run(rec, nil, check.Options{})), Recording: rec}
}

// A viewer is a page that shows a profile: ours or a peer's.
type viewer struct {
	name  string
	url   string
	bytes int64
	ready string // an expression that is true when it can be used
	zoom  string // statements that zoom by a click in the middle of the third row
}

// measure opens a page and returns the time until it can be used, the CPU time of its thread in that, and the time from
// a click to the picture of the zoomed frame.
func (v viewer) measure(browser context.Context, tb testing.TB) (ready, cpu, zoom time.Duration) {
	tb.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	defer cancel()
	must(tb, chromedp.Do(ctx))
	p := &tab{TB: tb, ctx: ctx}
	p.run(chromedp.Navigate("about:blank"))
	call(p, performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks})
	began := time.Now()
	p.run(chromedp.Navigate(v.url))
	for p.eval(v.ready) != "true" {
		time.Sleep(5 * time.Millisecond)
	}
	ready = time.Since(began)
	for _, m := range call(p, performance.GetMetrics, cdp.Empty{}).Metrics {
		if m.Name == "TaskDuration" {
			cpu = time.Duration(m.Value * float64(time.Second))
		}
	}
	ms, err := chromedp.Run(ctx, chromedp.Evaluate[float64](`(async () => {
		const frame = () => new Promise((r) => requestAnimationFrame(() => setTimeout(r, 0)));
		await frame();
		const t = performance.now();
		`+v.zoom+`
		await frame();
		return performance.now() - t;
	})()`, chromedp.EvalAwaitPromise))
	must(tb, err)
	return ready, cpu, time.Duration(ms * float64(time.Millisecond))
}

const clickCanvas = `(c => { const r = c.getBoundingClientRect();
	const o = {bubbles: true, clientX: r.left + r.width * 0.1, clientY: r.top + %s};
	c.dispatchEvent(new MouseEvent("mousemove", o)); c.dispatchEvent(new MouseEvent("click", o)); })(document.querySelector("%s"));`

// BenchmarkManyStacks opens a page with 50,000 distinct stacks, and the same profile in async-profiler's own page and
// pprof's, in turns, and prints the medians. docs/html-report.md has the results: `make bench BENCH=ManyStacks
// TESTFLAGS='-benchtime 5x'`.
func BenchmarkManyStacks(bench *testing.B) {
	ctx := started(bench)
	p := large(manyStacks)
	dir := bench.TempDir()
	path := filepath.Join(dir, "report.html")
	var page bytes.Buffer
	must(bench, Write(&page, withProfile(bench, p)))
	must(bench, os.WriteFile(path, page.Bytes(), 0o600))
	viewers := []viewer{manyViewer(path, int64(page.Len()))}
	viewers = append(viewers, asyncProfilers(bench, p, dir)...)
	viewers = append(viewers, pprofs(bench, p, dir)...)
	readies, zooms := make([][]time.Duration, len(viewers)), make([][]time.Duration, len(viewers))
	for bench.Loop() {
		for i, v := range viewers {
			ready, _, zoom := v.measure(ctx, bench)
			readies[i], zooms[i] = append(readies[i], ready), append(zooms[i], zoom)
		}
	}
	for i, v := range viewers {
		ready, zoom := middle(readies[i]), middle(zooms[i])
		bench.ReportMetric(float64(v.bytes)/1e6, "MB"+v.name)
		bench.ReportMetric(float64(ready.Milliseconds()), "ms-ready"+v.name)
		bench.ReportMetric(float64(zoom.Microseconds())/1e3, "ms-zoom"+v.name)
		bench.Logf("%s: ready %v, zoom %v", v.url, readies[i], zooms[i])
		if v.name == "" && (ready > mostReady || zoom > mostZoom) {
			bench.Logf("on this machine, now: ready after %v, zoom in %v: more than %v, %v", ready, zoom, mostReady,
				mostZoom)
		}
	}
}

// middle returns the median, and sorts.
func middle(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}

// converter is async-profiler's own program that makes HTML of stacks.
const converter = "tools.profiler:jfr-converter:4.2"

// asyncProfilers makes async-profiler's page of folded stacks, if Maven and Java are installed.
func asyncProfilers(bench *testing.B, p *stacks.Profile, dir string) []viewer {
	bench.Helper()
	if _, err := exec.LookPath("mvn"); err != nil {
		bench.Logf("without async-profiler's page: %v", err)
		return nil
	}
	out, err := exec.CommandContext(bench.Context(), "mvn", "-q", "-B",
		"org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy",
		"-Dartifact="+converter, "-DoutputDirectory="+dir, "-Dmdep.stripVersion=true").CombinedOutput()
	if err != nil {
		bench.Logf("without async-profiler's page: %v: %.200s", err, out)
		return nil
	}
	var folded bytes.Buffer
	for _, s := range p.Samples {
		for i := len(s.Stack) - 1; i >= 0; i-- {
			folded.WriteString(p.Frames[s.Stack[i]].Name + "_[j]")
			if i > 0 {
				folded.WriteByte(';')
			}
		}
		fmt.Fprintf(&folded, " %d\n", s.Count)
	}
	in, page := filepath.Join(dir, "in.collapsed"), filepath.Join(dir, "asprof.html")
	must(bench, os.WriteFile(in, folded.Bytes(), 0o600))
	out, err = exec.CommandContext(bench.Context(), "java", "-jar", filepath.Join(dir, "jfr-converter.jar"), in, page).
		CombinedOutput()
	if err != nil {
		bench.Fatalf("jfr-converter: %v: %s", err, out)
	}
	st, err := os.Stat(page)
	must(bench, err)
	return []viewer{{
		name: "-async-profiler", url: "file://" + page, bytes: st.Size(), ready: `document.readyState === "complete"`,
		// Its root is at the bottom, and its handlers read the browser's own event.
		zoom: `(c => { const r = c.getBoundingClientRect();
	const o = {bubbles: true, clientX: r.left + r.width * 0.1, clientY: r.bottom - 40};
			c.dispatchEvent(new MouseEvent("mousemove", o));
			c.dispatchEvent(new MouseEvent("click", o)); })(document.querySelector("canvas"));`,
	}}
}

// pprofs serves pprof's page, whose graph is made of elements.
func pprofs(bench *testing.B, p *stacks.Profile, dir string) []viewer {
	bench.Helper()
	testenv.Need(bench, testenv.Tool("go"))
	var pprof bytes.Buffer
	must(bench, p.WritePprof(&pprof))
	in := filepath.Join(dir, "cpu.pb.gz")
	must(bench, os.WriteFile(in, pprof.Bytes(), 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(bench, err)
	address := l.Addr().String()
	must(bench, l.Close())
	ctx, cancel := context.WithCancel(bench.Context())
	cmd := exec.CommandContext(ctx, "go", "tool", "pprof", "-http="+address, "-no_browser", in)
	must(bench, cmd.Start())
	bench.Cleanup(func() { cancel(); _ = cmd.Wait() })
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(deadline) {
			bench.Fatalf("pprof does not serve %s: %v", address, err)
		}
	}
	return []viewer{{
		name: "-pprof", url: "http://" + address + "/ui/flamegraph", bytes: int64(pprof.Len()),
		ready: `document.readyState === "complete" && document.querySelectorAll("#stack-chart .boxbg").length > 0`,
		zoom:  `document.querySelectorAll("#stack-chart .boxbg")[3].click();`,
	}}
}

// looks is how many tries the page with 50,000 stacks has to be usable in time: others may have the CPUs meanwhile.
const looks = 5

// TestManyStacks: the page with 50,000 stacks has the size of a typical one, and is usable in time in a real browser.
// On a shared machine the CPU time of the page's thread counts: it is what a CPU of its own would take.
func TestManyStacks(t *testing.T) {
	var page bytes.Buffer
	must(t, Write(&page, withProfile(t, large(manyStacks))))
	t.Logf("%d bytes", page.Len())
	if page.Len() > mostBytes {
		t.Errorf("the page has %d bytes, more than %d", page.Len(), mostBytes)
	}
	ctx := started(t)
	path := filepath.Join(t.TempDir(), "report.html")
	must(t, os.WriteFile(path, page.Bytes(), 0o600))
	v := manyViewer(path, int64(page.Len()))
	for range looks {
		ready, cpu, zoom := v.measure(ctx, t)
		t.Logf("ready after %v, %v of them on a CPU; zoom in %v", ready, cpu, zoom)
		if cpu > 0 && min(ready, cpu) <= mostReady && zoom <= mostZoom {
			return
		}
	}
	t.Errorf("never ready within %v, and a zoom within %v", mostReady, mostZoom)
}

// manyViewer shows the page with 50,000 stacks.
func manyViewer(path string, size int64) viewer {
	return viewer{
		name: "", url: "file://" + path, bytes: size, ready: `"ready" in document.documentElement.dataset`,
		zoom: fmt.Sprintf(clickCanvas, "48", ".flame-canvas"),
	}
}
