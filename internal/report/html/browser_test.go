package html

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/perfdoctor/perfdoctor/internal/dev/browser"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/report/html/bundle"
)

// screenshots is the environment variable that names a directory for pictures of each page, for people to look at.
const screenshots = "PERFDOCTOR_SCREENSHOTS"

// A reported is a real recording with what its page must say first.
type reported struct {
	path    string // from here
	verdict string // the principal check; empty when the system is well
	timed   bool   // its profiles have times
}

// recordings are real, of sick and healthy systems. Their first line says what they are.
var recordings = map[string]reported{
	"java-gc":         {"../../checks/runtime/testdata/gc-overhead/firing-stalls.txtar", "gc-overhead", true},
	"java-finalizers": {"testdata/java-finalizers.txtar", "finalizers", true},
	"tls": {
		"../../checks/connections/testdata/tls-no-resumption/firing.txtar", "tls-no-resumption",
		false,
	},
	"ports": {
		"../../checks/connections/testdata/port-search-cliff/firing-profile.txtar",
		"short-connection-ceiling", false,
	},
	"native-backend": {
		"../../checks/kernel/testdata/waiting-on-backend/firing-native.txtar", "waiting-on-backend",
		false,
	},
	"native-lock":   {"../../checks/runtime/testdata/lock-contention/firing.txtar", "lock-contention", false},
	"native-phases": {"testdata/native-phases.txtar", "", true},
	"throttled":     {"../../checks/limits/testdata/cpu-throttled/firing-real.txtar", "cpu-throttled", false},
	"gateway": {
		"../../checks/path/testdata/snat-single-core/firing-recorded.txtar", "snat-single-core",
		false,
	},
	"healthy-nginx":    {"../../../testdata/recordings/healthy/nginx-wrk-recorded.txtar", "", false},
	"healthy-redis":    {"../../../testdata/recordings/healthy/redis-recorded.txtar", "", false},
	"healthy-idle-jvm": {"../../checks/runtime/testdata/gc-overhead/quiet-healthy.txtar", "", false},
}

// workDir is a directory for what tests share. TestMain makes it.
var workDir string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "perfdoctor-html-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	workDir = dir
	defer os.RemoveAll(dir)
	defer func() { stopChromium() }()
	return m.Run()
}

// perfdoctor builds the program, once.
var perfdoctor = sync.OnceValues(func() (string, error) {
	program := filepath.Join(workDir, "perfdoctor")
	build := exec.Command("go", "build", "-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", "-s -w",
		"-o", program, "../../../cmd/perfdoctor")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make binary has it: it is compiled already
	out, err := build.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return program, nil
})

// pages are those written by now, by the path of the recording.
var pages = map[string]savedPage{}

// savedPage is the page of a recording, and the recording's report as JSON.
type savedPage struct {
	path string
	said []byte
}

// pageOf returns the page of a recording, written by the program, as a user has it, and its content as JSON. It is
// written once for all tests.
func pageOf(t testing.TB, recording string) (path string, said jsonReport) {
	t.Helper()
	page, ok := pages[recording]
	if !ok {
		program, err := perfdoctor()
		must(t, err)
		page.path = filepath.Join(workDir, fmt.Sprintf("%d.html", len(pages)))
		cmd := exec.CommandContext(t.Context(), program, "report", recording, "--html", page.path, "-o", "json")
		page.said, err = cmd.Output()
		if exit := cmd.ProcessState.ExitCode(); exit != 0 && exit != 3 && exit != 4 {
			t.Fatalf("%v: %v", cmd.Args, err)
		}
		pages[recording] = page
	}
	must(t, json.Unmarshal(page.said, &said))
	return page.path, said
}

type jsonReport struct {
	Verdict  struct{ Principal, Result string }
	Findings []struct{ ID, Check, Summary string }
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// started returns Chromium, which is started once for all tests.
func started(t testing.TB) context.Context {
	t.Helper()
	testenv.Need(t, testenv.Tool("chromium"))
	if _, err := bundle.Bundled(); err != nil {
		testenv.Need(t, testenv.Tool("npm"))
		t.Fatalf("there is npm, but no program in the page: run `make bundle`: %v", err)
	}
	ctx, err := chromium()
	must(t, err)
	return ctx
}

// stopChromium ends it, if it was started.
var stopChromium = func() {}

// chromium starts it.
var chromium = sync.OnceValues(func() (ctx context.Context, err error) {
	ctx, stopChromium, err = browser.Start(workDir)
	return ctx, err
})

// A tab is a page in the browser that must neither fail nor load anything.
type tab struct {
	testing.TB
	ctx context.Context
	mu  sync.Mutex
	bad []string // what the page must not do
}

// newTab opens an empty tab.
func newTab(browser context.Context, t testing.TB) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	must(t, chromedp.Do(ctx)) // a limit on the first call would be the tab's
	ctx, timeout := context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(timeout)
	return &tab{TB: t, ctx: ctx}
}

func open(browser context.Context, t testing.TB, path string) *tab {
	t.Helper()
	p := newTab(browser, t)
	must(t, chromedp.Listen(p.ctx, p.watch))
	call(p, network.Enable, network.EnableParams{})
	call(p, log.Enable, cdp.Empty{})
	p.run(chromedp.Navigate("file://" + path))
	p.until(`"ready" in document.documentElement.dataset`)
	p.js(`document.documentElement.style.scrollBehavior = "auto"`) // a place must not move while the mouse goes there
	return p
}

func (p *tab) watch(event any) {
	bad := ""
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if e.Type != network.ResourceTypeDocument || !strings.HasPrefix(e.Request.URL, "file://") {
			bad = "a request: " + e.Request.URL
		}
	case *runtime.EventExceptionThrown:
		bad = "an exception: " + e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			bad += ": " + x.Description
		}
	case *runtime.EventConsoleAPICalled:
		bad = fmt.Sprintf("on the console: %s", e.Type)
	case *log.EventEntryAdded:
		bad = "in the browser's log: " + e.Entry.Text
	case *page.EventJavascriptDialogOpening:
		bad = "a dialog: " + e.Message
	}
	if bad != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.bad = append(p.bad, bad)
	}
}

// quiet fails the test for errors and loads of the page.
func (p *tab) quiet() {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.bad {
		p.Error(b)
	}
}

func (p *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	must(p.TB, chromedp.Do(p.ctx, actions...))
}

// js runs statements or expressions in the page.
func (p *tab) js(program string) {
	p.Helper()
	_, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](`(() => {`+program+`; return ""; })()`))
	must(p.TB, err)
}

// ask returns the value of an expression of the page.
func ask[T any](p *tab, expression string) T {
	p.Helper()
	out, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	must(p.TB, err)
	return out
}

// call returns the result of a command of the DevTools protocol.
func call[P, R any](p *tab, command cdp.Command[P, R], params P) R {
	p.Helper()
	out, err := chromedp.Call(p.ctx, command, params)
	must(p.TB, err)
	return out
}

// eval returns the value of an expression of the page as text.
func (p *tab) eval(expression string) string {
	p.Helper()
	return ask[string](p, `String(`+expression+`)`)
}

func (p *tab) text(id string) string {
	p.Helper()
	return p.eval(`document.getElementById("` + id + `").textContent`)
}

// until waits for an expression to become true.
func (p *tab) until(expression string) {
	p.Helper()
	for deadline := time.Now().Add(20 * time.Second); p.eval(expression) != "true"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.Fatalf("never true: %s", expression)
		}
	}
}

func (p *tab) click(id string) {
	p.Helper()
	p.js(`document.getElementById("` + id + `").click()`)
}

// picture saves what is visible, if a directory was given.
func (p *tab) picture(name string) {
	p.Helper()
	dir := os.Getenv(screenshots)
	if dir == "" {
		return
	}
	p.run(chromedp.Sleep(300 * time.Millisecond))
	png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	must(p.TB, err)
	must(p.TB, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600))
}

// TestPages opens the page of each real recording and uses it as a person does.
func TestPages(t *testing.T) {
	ctx := started(t)
	for name, r := range recordings {
		t.Run(name, func(t *testing.T) {
			path, said := pageOf(t, r.path)
			if st, err := os.Stat(path); err != nil || st.Size() > mostBytes {
				t.Errorf("the page has %d bytes, more than 1.5 MB (%v)", st.Size(), err)
			}
			p := open(ctx, t, path)
			p.verdict(r, said)
			p.picture(name)
			p.evidence(name)
			p.charts()
			if p.eval(`document.getElementById("flame") !== null`) == "true" {
				p.flame(name)
				if p.eval(`document.querySelectorAll("[data-chart]:has(.u-over)").length > 0`) == "true" {
					p.selectRange(r.timed)
				}
			}
			p.filter()
			p.dark(name)
			p.names()
			p.quiet()
		})
	}
}

// verdict: it is the first thing seen, and the page has the findings of the JSON report.
func (p *tab) verdict(r reported, said jsonReport) {
	p.Helper()
	text := p.text("verdict")
	if r.verdict == "" && !strings.Contains(text, "no bottleneck found") || !strings.Contains(text, r.verdict) {
		p.Errorf("the verdict is %.200q, want %q", text, r.verdict)
	}
	if p.eval(`document.querySelector("#verdict .summary").getBoundingClientRect().bottom < innerHeight`) != "true" {
		p.Error("the verdict cannot be seen without scrolling")
	}
	if n := p.eval(`document.querySelectorAll(".finding[id]").length`); n != strconv.Itoa(len(said.Findings)) {
		p.Errorf("%s findings in the page, %d in JSON", n, len(said.Findings))
	}
	for i, f := range said.Findings {
		text := p.text(fmt.Sprintf("finding-%d", i+1))
		if !strings.Contains(text, f.Check) || !strings.Contains(text, f.Summary) {
			p.Errorf("finding %d is %.100q, want %s: %s", i+1, text, f.Check, f.Summary)
		}
	}
}

// evidence: every link of a finding leads to something that is marked and in view; a flame graph says which share the
// proof has.
func (p *tab) evidence(name string) {
	p.Helper()
	links := ask[[]struct{ Href, Event string }](p,
		`[...document.querySelectorAll(".evidence a")].map(a => ({Href: a.getAttribute("href"), Event: a.dataset.event || ""}))`)
	for i, l := range links {
		p.js(fmt.Sprintf(`document.querySelectorAll(".evidence a")[%d].click()`, i))
		if l.Event != "" {
			p.until(`/^(proof|nothing)/.test(document.getElementById("flame-found").textContent)`)
			if found := p.text("flame-found"); !strings.HasPrefix(found, "proof: ") ||
				strings.HasPrefix(found, "proof: 0 %") {
				p.Errorf("the flame graph of %s: %q", l.Event, found)
			}
			if p.eval(`document.getElementById("tab-`+l.Event+`").getAttribute("aria-selected")`) != "true" {
				p.Errorf("the link to %s opens another flame graph", l.Event)
			}
			p.picture(name + "-proof-" + l.Event)
			continue
		}
		at := `document.querySelector("` + l.Href + `")`
		p.until(at + `.getBoundingClientRect().height > 0 && ` + at + `.getBoundingClientRect().top < innerHeight && ` +
			at + `.getBoundingClientRect().bottom > 0`)
		if p.eval(at+`.classList.contains("marked")`) != "true" ||
			p.eval(at+`.textContent.includes("proof of")`) != "true" {
			p.Errorf("%s is not marked as a proof", l.Href)
		}
	}
	if len(links) == 0 && p.eval(`document.querySelectorAll(".finding.warning, .finding.critical").length`) != "0" {
		p.Error("no finding is linked to its proof")
	}
}

// painted counts the colours of a canvas.
const painted = `(c => { const g = new OffscreenCanvas(c.width, c.height).getContext("2d", {willReadFrequently: true});
	g.drawImage(c, 0, 0);
	const d = g.getImageData(0, 0, c.width, c.height).data; const s = new Set();
	for (let i = 0; i < d.length; i += 4 * 7) s.add(d[i] << 16 | d[i+1] << 8 | d[i+2]); return s.size; })`

func (p *tab) charts() {
	p.Helper()
	if p.eval(`document.querySelectorAll("[data-chart]").length`) == "0" {
		return // a recording with the metrics of one check only
	}
	for _, what := range []string{
		`[...document.querySelectorAll("[data-chart]")].every(e => e.querySelector("canvas"))`,
		`[...document.querySelectorAll("[data-chart] canvas")].every(c => ` + painted + `(c) > 3)`,
	} {
		p.until(what)
	}
	p.js(`document.getElementById("chart-cpu")?.scrollIntoView()`)
	if p.eval(`document.getElementById("chart-cpu") !== null`) == "true" {
		x, y := p.place(`#chart-cpu .u-over`, 0.7, 0.5)
		p.run(chromedp.MouseEvent("mouseMoved", x, y))
		p.until(`(t => /at \d.*s/.test(t) && /%/.test(t))(document.querySelector("#chart-cpu .keys").textContent)`)
		// one time axis: all charts show their values there
		if p.eval(`document.querySelector("#chart-psi .keys") !== null`) == "true" {
			p.until(`/at \d.*s/.test(document.querySelector("#chart-psi .keys").textContent)`)
		}
	}
	if p.eval(`document.getElementById("chart-cpu-heat") !== null`) == "true" {
		p.js(`document.getElementById("chart-cpu-heat").scrollIntoView()`)
		x, y := p.place(`#chart-cpu-heat .u-over`, 0.5, 0.1)
		p.run(chromedp.MouseEvent("mouseMoved", x, y))
		p.until(`/^CPU 0: .*%/.test(document.querySelector(".hover").textContent)`)
	}
}

// place returns a point of an element, in shares of its width and height.
func (p *tab) place(selector string, right, down float64) (x, y float64) {
	p.Helper()
	r := ask[struct{ Left, Top, Width, Height float64 }](p,
		`(r => ({Left: r.left, Top: r.top, Width: r.width, Height: r.height}))(document.querySelector("`+selector+
			`").getBoundingClientRect())`)
	return r.Left + right*r.Width, r.Top + down*r.Height
}

// flame: search tells a share, a click zooms, Escape zooms out, arrow keys tell the frame, and the tables have the
// same.
func (p *tab) flame(name string) {
	p.Helper()
	p.js(`document.getElementById("profiles").scrollIntoView()`)
	if p.eval(`document.getElementById("flame-proof").hidden`) != "true" {
		p.click("flame-proof")
	}
	p.click("form-flame")
	p.until(painted + `(document.querySelector(".flame-canvas")) > 3`) // drawn with the next frame of the screen
	p.picture(name + "-flame")
	x, y := p.place(".flame-canvas", 0.05, 0)
	p.run(chromedp.MouseClickXY(x, y+2.5*19))
	p.until(`document.querySelectorAll(".crumbs button").length >= 2`)
	p.run(chromedp.KeyEvent(kb.ArrowDown))
	zoomed := p.text("flame-now")
	if !strings.Contains(zoomed, "samples") || !strings.Contains(zoomed, "%") {
		p.Errorf("the frame with the keyboard's focus is told as %q", zoomed)
	}
	p.click("flame-reset")
	p.until(`document.querySelectorAll(".crumbs button").length === 0`)

	p.click("form-spots")
	hot := p.eval(`document.querySelector("#hot-spots tbody button").textContent`)
	p.js(`document.querySelector("#hot-spots tbody button").click()`)
	if found := p.text("flame-found"); !regexp.MustCompile(`^found: [0-9.]+ %, .+ in [1-9][0-9]* places?$`).
		MatchString(found) {
		p.Errorf("a search for %q: %q", hot, found)
	}
	p.click("form-tree")
	p.until(`document.querySelectorAll("#call-tree tbody tr").length > 1`)
	p.picture(name + "-tree")
	p.search("no such frame anywhere")
	p.until(`document.getElementById("flame-found").textContent === "nothing found"`)
	p.search("")
	p.click("form-flame")
	all := p.total()
	for _, box := range []string{"flame-reverse", "flame-collapse", "show-5"} {
		p.click(box)
		if got := p.total(); got != all {
			p.Errorf("with %s the flame graph is of %s, not of %s", box, got, all)
		}
		p.click(box)
	}
	p.set("flame-group", "thread")
	if got := p.total(); got != all {
		p.Errorf("by thread the flame graph is of %s, not of %s", got, all)
	}
	p.picture(name + "-threads")
	p.set("flame-group", "none")
	p.filterFrames(all)
}

// filterFrames: a pool is a part of all; what is hidden is not found, and nothing is lost; a call tree is used by its
// keys.
func (p *tab) filterFrames(all string) {
	p.Helper()
	pools := ask[[]string](p, `[...document.querySelectorAll("#flame-only option")].map(o => o.value).filter(v => v)`)
	sum := 0
	for _, pool := range pools {
		p.js(`(e => { e.value = ` + strconv.Quote(pool) +
			`; e.dispatchEvent(new Event("change")); })(document.getElementById("flame-only"))`)
		sum += samplesOf(p.TB, p.total())
	}
	p.set("flame-only", "")
	if whole := samplesOf(p.TB, all); sum > whole || len(pools) == 0 {
		p.Errorf("%d pools have %d samples, all have %d", len(pools), sum, whole)
	}
	p.click("form-spots")
	hot := p.eval(`document.querySelector("#hot-spots tbody button").textContent`)
	p.js(`(e => { e.value = ` + strconv.Quote(strings.Fields(hot)[0]) +
		`; e.dispatchEvent(new Event("change")); })(document.getElementById("flame-hide"))`)
	if shown := p.eval(`document.querySelector("#hot-spots tbody button")?.textContent`); shown == hot ||
		p.total() != all {
		p.Errorf("%q is hidden, the hottest is %q, of %s", hot, shown, p.total())
	}
	p.set("flame-hide", "")
	p.click("form-tree")
	p.js(`document.querySelector("#call-tree tbody button").focus()`)
	p.run(chromedp.KeyEvent(kb.ArrowLeft))
	p.until(`document.querySelectorAll("#call-tree tbody tr[aria-level='2']").length === 0`)
	p.run(chromedp.KeyEvent(kb.ArrowRight))
	p.until(`document.activeElement.closest("tr").getAttribute("aria-expanded") !== "false"`)
	p.click("form-flame")
	p.js(`document.querySelector("[role=tab][aria-selected=true]").focus()`)
	p.run(chromedp.KeyEvent(kb.ArrowRight))
	p.until(`document.activeElement.getAttribute("role") === "tab"`)
}

func (p *tab) search(what string) {
	p.Helper()
	p.js(`(e => { e.value = ` + strconv.Quote(what) +
		`; e.dispatchEvent(new Event("input")); })(document.getElementById("flame-search"))`)
}

func (p *tab) set(id, value string) {
	p.Helper()
	p.js(`(e => { e.value = "` + value + `"; e.dispatchEvent(new Event("change")); })(document.getElementById("` + id +
		`"))`)
}

// total is what the flame graph covers, such as "6.44 s in 644 samples".
func (p *tab) total() string {
	p.Helper()
	total, _, _ := strings.Cut(p.text("flame-is"), " of ")
	return total
}

func samplesOf(t testing.TB, total string) int {
	t.Helper()
	m := regexp.MustCompile(`in (\d+) (samples|finished waits)`).FindStringSubmatch(total)
	if m == nil {
		t.Fatalf("no number of samples in %q", total)
	}
	n, err := strconv.Atoi(m[1])
	must(t, err)
	return n
}

// selectRange drags over each half of a chart. The flame graphs show those samples, and both halves are the whole.
func (p *tab) selectRange(timed bool) {
	p.Helper()
	chart := p.eval(`document.querySelector("[data-chart]").dataset.chart`)
	over := `[data-chart='` + chart + `'] .u-over`
	drag := func(from, to float64) int {
		p.js(`document.querySelector("` + over + `").scrollIntoView({block: "center"})`)
		x0, y := p.place(over, from, 0.5)
		x1, _ := p.place(over, to, 0.5)
		p.run(chromedp.MouseEvent("mousePressed", x0, y, chromedp.ButtonLeft, chromedp.ClickCount(1)),
			chromedp.MouseEvent("mouseMoved", (x0+x1)/2, y, chromedp.ButtonLeft), chromedp.MouseEvent("mouseMoved", x1,
				y,
				chromedp.ButtonLeft),
			chromedp.MouseEvent("mouseReleased", x1, y, chromedp.ButtonLeft, chromedp.ClickCount(1)))
		p.until(`document.getElementById("range-is").textContent.startsWith("Selected")`)
		n := samplesOf(p.TB, p.total())
		if untold := !strings.Contains(p.text("flame-is"), "have no times"); untold != timed {
			p.Errorf("with a range the flame graph says %q", p.text("flame-is"))
		}
		p.js(`document.querySelector("#range button[type=reset]").click()`)
		return n
	}
	whole := samplesOf(p.TB, p.total())
	first, second := drag(0.001, 0.5), drag(0.5, 0.999)
	if timed && (first == 0 || first >= whole || second == 0 || second >= whole) {
		p.Errorf("%d samples in the first half, %d in the second, %d in all", first, second, whole)
	}
	if !timed && (first != whole || second != whole) {
		p.Errorf("a profile without times is re-weighted: %d and %d samples of %d", first, second, whole)
	}
	if again := samplesOf(p.TB, p.total()); again != whole {
		p.Errorf("after the range is cleared there are %d samples, before %d", again, whole)
	}
}

// TestRangeOfKernelProfiles: a program works until 2.7 s, sleeps until 5.7 s and works again. Both profiles show a
// range's own time.
func TestRangeOfKernelProfiles(t *testing.T) {
	ctx := started(t)
	path, _ := pageOf(t, recordings["native-phases"].path)
	p := open(ctx, t, path)
	for _, tc := range []struct{ event, from, to, want string }{
		{"host-cpu", "3", "5", "0 s in 0 samples of 3.0 s to 5.0 s"},
		{"off-cpu", "3", "5", "2 s in 0 finished waits of 3.0 s to 5.0 s"}, // a wait is counted where it ends
		{"host-cpu", "0", "2", "1.98 s in 196 samples of 0.0 s to 2.0 s"},
		{"off-cpu", "0", "2", "0 s in 0 finished waits of 0.0 s to 2.0 s"},
		{"off-cpu", "0", "7", "3 s in 1 finished waits of 0.0 s to 7.0 s"},
	} {
		p.click("tab-" + tc.event)
		p.js(`document.getElementById("range-from").value = ` + tc.from + `; document.getElementById("range-to").value = ` + tc.to + `;
			document.querySelector("#range button[type=submit]").click()`)
		p.until(`document.getElementById("flame-is").textContent.startsWith("` + tc.want + `")`)
		p.picture("phases-" + tc.event + "-" + tc.from)
	}
	p.quiet()
}

func (p *tab) filter() {
	p.Helper()
	if p.eval(`document.getElementById("filter") !== null`) != "true" {
		return
	}
	filter := func(words string) string {
		p.js(`(e => { e.value = "` + words +
			`"; e.dispatchEvent(new Event("input")); })(document.getElementById("filter"))`)
		return p.text("filter-is")
	}
	first := ask[string](p, `document.querySelector("#facts tbody td").textContent`)
	if is := filter(first); is == "0 rows" || is == "" {
		p.Errorf("the filter shows %q for %q, which is there", is, first)
	}
	if is := filter("nothing has this name"); is != "0 rows" {
		p.Errorf("the filter shows %q for nothing", is)
	}
	filter("")
}

// dark: the page follows the system, and its button.
func (p *tab) dark(name string) {
	p.Helper()
	light := `getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number).reduce((a, b) => a + b) > 382`
	if p.eval(light) != "true" {
		p.Error("the page is dark where the system is light")
	}
	system := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: system})
	p.js(`scrollTo(0, 0)`)
	p.until(`!(` + light + `)`)
	p.picture(name + "-dark")
	p.js(`document.getElementById("charts")?.scrollIntoView()`)
	p.picture(name + "-dark-charts")
	p.js(`(document.getElementById("profiles") || document.body).scrollIntoView()`)
	p.picture(name + "-dark-flame")
	p.click("theme")
	p.until(light)
	p.js(`document.getElementById("charts")?.scrollIntoView()`)
	p.picture(name + "-charts")
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{})
}

// names: what a screen reader reads of each control.
func (p *tab) names() {
	p.Helper()
	nodes := call(p, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes
	value := func(v *accessibility.Value) string {
		if v == nil {
			return ""
		}
		return strings.Trim(string(v.Value), `"`)
	}
	controls := map[string]int{}
	for _, n := range nodes {
		role := value(n.Role)
		switch role {
		case "button", "link", "checkbox", "combobox", "searchbox", "textbox", "spinbutton", "tab", "application",
			"table", "grid",
			"region":
			controls[role]++
			if !n.Ignored && value(n.Name) == "" && role != "table" {
				p.Errorf("a %s has no name", role)
			}
		}
	}
	if controls["link"] == 0 || controls["button"] == 0 {
		p.Errorf("few controls were seen: %v", controls)
	}
}

// TestHostilePage: names that are markup stay text in everything that the program makes of them.
func TestHostilePage(t *testing.T) {
	ctx := started(t)
	path := filepath.Join(t.TempDir(), "hostile.html")
	f, err := os.Create(path)
	must(t, err)
	must(t, Write(f, input(t, hostile)))
	must(t, f.Close())
	p := open(ctx, t, path)
	p.flame("hostile")
	p.js(`document.querySelector(".evidence a[data-event]").click()`)
	p.until(`document.getElementById("flame-found").textContent.startsWith("proof")`)
	x, y := p.place(".flame-canvas", 0.05, 0)
	p.run(chromedp.MouseEvent("mouseMoved", x, y+2.5*19))
	p.until(`document.querySelector(".hover").textContent.includes("<img src=x")`)
	p.picture("hostile")
	for _, form := range []string{"form-tree", "form-spots"} {
		p.click(form)
		p.until(`document.getElementById("flame").textContent.includes("<img src=x")`)
	}
	if n := p.eval(`document.querySelectorAll("img, iframe, [onerror]").length`); n != "0" {
		t.Errorf("%s elements were made of names", n)
	}
	p.quiet()
}

// TestWithoutScript: the page is complete without its program.
func TestWithoutScript(t *testing.T) {
	ctx := started(t)
	path, said := pageOf(t, recordings["java-gc"].path)
	tabContext, cancel := chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	p := &tab{TB: t, ctx: tabContext}
	p.run(chromedp.Navigate("about:blank"))
	call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	p.run(chromedp.Navigate("file://" + path))
	text := ask[string](p, `document.body.innerText`)
	for _, want := range []string{said.Findings[0].Summary, "need JavaScript", "COULD NOT RUN", "perfdoctor itself"} {
		if !strings.Contains(strings.ToLower(text), strings.ToLower(want)) {
			t.Errorf("without its program the page lacks %q", want)
		}
	}
	pdf := call(p, page.PrintToPDF, page.PrintToPDFParams{}).Data
	if len(pdf) < 10_000 {
		t.Errorf("on paper the page is %d bytes", len(pdf))
	}
}
