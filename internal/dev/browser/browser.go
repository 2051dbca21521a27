// Package browser opens pages in Chromium for tests, and checks their accessibility with axe-core.
package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host/clock"
)

// startWait is how long Chromium may take to answer on a shared machine.
const startWait = time.Minute

// Start starts Chromium with its files in dir. As root it runs without a sandbox, because Chromium's own refuses
// root. Tabs are made from ctx; stop ends Chromium.
func Start(dir string) (ctx context.Context, stop func(), err error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.WindowSize(1400, 1000), chromedp.UserDataDir(filepath.Join(dir, "chromium")),
		chromedp.WSURLReadTimeout(startWait))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, quit := chromedp.NewContext(allocator)
	return ctx, func() { quit(); end() }, chromedp.Do(ctx)
}

// axePath is where `make bundle` puts axe-core, relative to a package three directories below the root.
const axePath = "../../../.cache/web/node_modules/axe-core/axe.min.js"

// script returns axe-core. Its version is in web/package.json.
func script(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(axePath)
	if err != nil {
		testenv.Need(t, testenv.Tool("npm"))
		t.Fatalf("there is npm, but no axe-core: run `make bundle`: %v", err)
	}
	return string(text)
}

// A look is a window in which axe-core checks the page: as wide as a phone, a tablet and a laptop, and once more in
// dark mode for the colours, which differ there. Colours are the same at any width, and take axe-core most of its
// time.
type look struct {
	width  int64 // pixels
	scheme string
	rules  string
}

var looks = [...]look{
	{400, "light", `{rules: {"color-contrast": {enabled: false}}}`},
	{800, "light", `{rules: {"color-contrast": {enabled: false}}}`},
	{1400, "light", "{}"},
	{1400, "dark", `{runOnly: ["color-contrast"]}`},
}

// rows is how many rows of each table are checked: the rest are alike, and thousands take minutes.
const rows = 20

// A violation is a rule of axe-core that elements of a page break.
type violation struct {
	ID, Help string
	Nodes    []struct{ HTML, FailureSummary string }
}

// Axe fails the test for what axe-core finds wrong with the page at url: light and dark, 400 to 1400 pixels wide,
// with everything unfolded. The page is complete when the expression ready is true.
func Axe(browser context.Context, t testing.TB, url, ready string) {
	t.Helper()
	axe := script(t)
	ctx, cancel := chromedp.NewContext(browser)
	defer cancel()
	do(ctx, t, chromedp.Navigate(url))
	for deadline := time.Now().Add(startWait); eval[string](ctx, t, "String("+ready+")") != "true"; {
		if time.Now().After(deadline) {
			t.Fatalf("%s: never true: %s", url, ready)
		}
		if err := clock.Sleep(ctx, 20*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	eval[string](ctx, t, axe+`; document.querySelectorAll("details").forEach((d) => { d.open = true; });
		document.querySelectorAll("tbody").forEach((b) => [...b.rows].slice(`+strconv.Itoa(rows)+`).forEach((r) => r.remove())); ""`)
	for _, l := range looks {
		l.at(ctx, t)
		for _, v := range violations(ctx, t, l.rules) {
			t.Errorf("%s, %d px, %s: %s: %s\n%s", url, l.width, l.scheme, v.ID, v.Help, v.where())
		}
	}
}

func violations(ctx context.Context, t testing.TB, rules string) (out []violation) {
	t.Helper()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](
		`axe.run(document, `+rules+`).then((r) => JSON.stringify(r.violations))`,
		chromedp.EvalAwaitPromise))
	if err == nil {
		err = json.Unmarshal([]byte(text), &out)
	}
	if err != nil {
		t.Fatalf("axe: %v", err)
	}
	return out
}

// shownNodes is how many nodes are enough to see what is wrong.
const shownNodes = 3

func (v violation) where() string {
	var b strings.Builder
	for i, n := range v.Nodes {
		if i == shownNodes {
			fmt.Fprintf(&b, "and %d more\n", len(v.Nodes)-shownNodes)
			break
		}
		fmt.Fprintf(&b, "  %.200s\n  %s\n", n.HTML, n.FailureSummary)
	}
	return b.String()
}

// at sets the browser's window and color scheme to those of the look.
func (l look) at(ctx context.Context, t testing.TB) {
	t.Helper()
	_, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: l.width, Height: 1000, DeviceScaleFactor: 1,
	})
	if err == nil {
		_, err = chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.scheme}},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func do(ctx context.Context, t testing.TB, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

func eval[T any](ctx context.Context, t testing.TB, expression string) T {
	t.Helper()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatal(err)
	}
	return out
}
