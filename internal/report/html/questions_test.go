package html

import (
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// mostClicks is how many a person may need for an answer.
const mostClicks = 3

// A question is what somebody wants to know of a page, and how they find it.
type question struct {
	asks   string
	clicks []string // what is clicked on, one after the other
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
				for _, place := range q.clicks {
					p.mouse(place)
				}
				p.until(`document.querySelector("` + q.at + `") !== null`)
				p.until(`(r => r.height > 0 && r.top >= 0 && r.bottom <= innerHeight)(document.querySelector("` + q.at +
					`").getBoundingClientRect())`)
				if got := p.eval(q.answer); !strings.Contains(got, q.has) {
					t.Errorf("the answer is %q, without %q", got, q.has)
				}
				if len(q.clicks) > mostClicks {
					t.Errorf("%d clicks", len(q.clicks))
				}
				t.Logf("%d clicks: %.120q", len(q.clicks), p.eval(q.answer))
				p.quiet()
			})
		}
	}
}

// mostSheets is what somebody still takes along.
const mostSheets = 8

// sheet begins a page in what Chromium prints.
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
