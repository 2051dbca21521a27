package html

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/klauspost/compress/zstd"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// mostClicks is how many clicks a person may need for an answer.
const mostClicks = 3

// A question is what somebody wants to know from a page, and how they find it.
type question struct {
	asks   string
	clicks []string // what is clicked on, one after another
	answer string   // an expression for the text that answers
	has    string   // what is in it
	at     string   // the element that is looked at then, which must be in view
}

// incident is what a flight recorder kept, with a timeline.
const incident = "../../cli/testdata/incidents/accept-queue-overflow.zip"

// questions are about a Java program whose finalizers cannot keep up, and about an incident.
var questions = map[string][]question{
	recordings["java-finalizers"].path: {
		{
			asks: "what is slow?", at: "#verdict .summary", answer: `document.querySelector("#verdict .summary").textContent`,
			has: "finaliz",
		},
		{
			asks: "in which code?", clicks: []string{`nav a[href='#profiles']`, "#form-spots"}, at: "#hot-spots tbody tr",
			answer: `document.querySelector("#hot-spots tbody button").textContent`, has: ".",
		},
		{
			asks: "who calls it?", clicks: []string{`nav a[href='#profiles']`, "#flame-reverse", "#form-tree"},
			at:     "#call-tree tbody tr[aria-level='2']",
			answer: `document.querySelector("#call-tree tbody tr[aria-level='2'] td.code").textContent`, has: ".",
		},
		{
			asks: "since when?", clicks: []string{`nav a[href='#charts']`}, at: "[data-chart] canvas",
			answer: `document.querySelector("figure.chart figcaption").textContent`, has: "CPU",
		},
		{
			asks: "what waits?", clicks: []string{`nav a[href='#waits']`}, at: "#waits tbody tr",
			answer: `document.querySelector("#waits tbody tr").textContent`, has: ".",
		},
	},
	incident: {
		{
			asks: "since when?", clicks: []string{`nav a[href='#timeline']`}, at: "#timeline tbody tr",
			answer: `[...document.querySelectorAll("#timeline tbody tr")].map(r => r.textContent).join()`,
			has:    "(recorded for this)",
		},
	},
}

// TestFiveQuestions asks the page what people ask it, with a real mouse in a real browser, and counts the clicks.
func TestFiveQuestions(t *testing.T) {
	ctx := started(t)
	for recording, list := range questions {
		path, _ := pageOf(t, recording)
		for _, q := range list {
			t.Run(q.asks, func(t *testing.T) {
				p := open(ctx, t, path)
				p.ask(q)
				p.quiet()
			})
		}
	}
}

// ask clicks as a person does, and looks at the answer.
func (p *tab) ask(q question) {
	p.Helper()
	for _, place := range q.clicks {
		p.mouse(place)
	}
	p.until(`document.querySelector("` + q.at + `") !== null`)
	p.until(`(r => r.height > 0 && r.top >= 0 && r.bottom <= innerHeight)(document.querySelector("` + q.at +
		`").getBoundingClientRect())`)
	if got := p.eval(q.answer); !strings.Contains(got, q.has) {
		p.Errorf("the answer is %q, without %q", got, q.has)
	}
	if len(q.clicks) > mostClicks {
		p.Errorf("%d clicks", len(q.clicks))
	}
	p.Logf("%s %d clicks: %.120q", q.asks, len(q.clicks), p.eval(q.answer))
}

// asyncProfilersPage lets the async-profiler that perfdoctor bundles profile a Java program for two seconds, and
// returns the flame graph that it writes itself.
func asyncProfilersPage(t *testing.T) string {
	t.Helper()
	testenv.Need(t, testenv.Java, testenv.Tool("javac"))
	packed, err := os.ReadFile("../../jvm/asprof/library/" + runtime.GOARCH + "/libasyncProfiler.so.zst")
	if err != nil {
		testenv.Need(t, testenv.Tool("mvn"))
		t.Fatalf("there is Maven, but no async-profiler: run `make bundle`: %v", err)
	}
	r, err := zstd.NewReader(bytes.NewReader(packed))
	must(t, err)
	defer r.Close()
	library, err := io.ReadAll(r)
	must(t, err)
	dir := t.TempDir()
	agent, file := filepath.Join(dir, "libasyncProfiler.so"), filepath.Join(dir, "flame.html")
	must(t, os.WriteFile(agent, library, 0o700))
	javac := exec.CommandContext(t.Context(), "javac", "-d", dir, "../../../testdata/java/Busy.java")
	if out, err := javac.CombinedOutput(); err != nil {
		t.Fatalf("javac: %v: %s", err, out)
	}
	// itimer needs no rights; the agent writes its page when the program ends, with its input.
	java := exec.CommandContext(t.Context(), "java", "-agentpath:"+agent+"=start,event=itimer,interval=5ms,file="+file,
		"-cp", dir, "Busy", "1", "4")
	in, err := java.StdinPipe()
	must(t, err)
	must(t, java.Start())
	time.Sleep(2 * time.Second)
	must(t, in.Close())
	must(t, java.Wait())
	return file
}

// TestPeersFiveQuestions asks async-profiler's own page the same questions, as far as it has an answer: it has no
// verdict, no times, and no waits in a profile of the CPU. docs/html-report.md has the table of both.
func TestPeersFiveQuestions(t *testing.T) {
	ctx := started(t)
	p := newTab(ctx, t)
	p.run(chromedp.Navigate("file://" + asyncProfilersPage(t)))
	p.until(`document.readyState === "complete"`)
	for asks, answered := range map[string]string{
		"what is slow?": `/Busy/.test(document.body.innerText)`,
		"since when?":   `/\d\d:\d\d/.test(document.body.innerText)`,
		// A thread that goes to sleep spends some CPU time on it. That is a crumb of the profile, not an answer.
		"what waits?": `levels.flat().filter((f) => /sleep|park|Object.wait/i.test(f.title))` +
			`.some((f) => f.width > 0.1 * root.width)`,
	} {
		if p.eval(answered) != "false" {
			t.Errorf("%s it has an answer by now: %s", asks, answered)
		}
		t.Logf("%s no answer", asks)
	}
	// A person looks for a wide frame and clicks on it, then on the one below it, its caller.
	const busy = `levels.flat().filter((f) => /^Busy\.(sort|parse|text)/.test(f.title))` +
		`.sort((a, b) => b.width - a.width)[0]`
	for below, has := range []string{"Busy.", "Busy.work"} {
		at := ask[[]float64](p, fmt.Sprintf(`((f) => {
			const r = canvas.getBoundingClientRect();
			const row = levels.findIndex((l) => l.includes(f)) - %d;
			const x = Math.min((Math.max(f.left - root.left, 0) + f.width / 2) * px, r.width - 2);
			return [r.left + x, r.bottom - row * 16 - 8]; })(%s)`, below, busy))
		// Its click handler is made on the way there.
		p.run(chromedp.MouseEvent("mouseMoved", at[0], at[1]), chromedp.MouseClickXY(at[0], at[1]))
		p.until(fmt.Sprintf(`document.querySelector("#status").textContent.includes(%q)`, has)) // drawn a frame later
		said := p.eval(`document.querySelector("#status").textContent`)
		t.Logf("%s %d clicks: %.120q", []string{"in which code?", "who calls it?"}[below], below+1, said)
	}
}

// mostSheets is how many sheets somebody still takes along.
const mostSheets = 8

// sheet begins a page in Chromium's print output.
var sheet = regexp.MustCompile(`/Type\s*/Page\b`)

// TestPrint: the page is short on paper.
func TestPrint(t *testing.T) {
	ctx := started(t)
	for _, name := range []string{"java-finalizers", "ports", "healthy-nginx", "gateway"} {
		path, _ := pageOf(t, recordings[name].path)
		p := open(ctx, t, path)
		pdf := call(p, page.PrintToPDF, page.PrintToPDFParams{}).Data
		if n := len(sheet.FindAll(pdf, -1)); n == 0 || n > mostSheets {
			t.Errorf("%s has %d sheets, want 1 to %d", name, n, mostSheets)
		}
	}
}

// mouse clicks on an element, which is in view by now or scrolled to.
func (p *tab) mouse(selector string) {
	p.Helper()
	p.until(`document.querySelector("` + selector + `") !== null`)
	p.js(`(e => { const r = e.getBoundingClientRect(); if (r.top < 60 || r.bottom > innerHeight)
		if (!e.closest("nav")) e.scrollIntoView({block: "center"}); })(document.querySelector("` + selector + `"))`)
	x, y := p.place(selector, 0.5, 0.5)
	p.run(chromedp.MouseClickXY(x, y))
}
