package html

import (
	"bytes"
	"context"
	"flag"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/css"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
)

var update = flag.Bool("update", false, "rewrite the reference screenshots")

// A shot is one picture of a page.
type shot struct {
	name          string
	recording     string // of recordings; empty for a comparison
	width, height int64
	dark, paper   bool
	at            string // id of the part at the top; empty for the top of the page
}

// Screens: a laptop's, a phone's, and a sheet of A4 at 96 dots an inch.
func shots() []shot {
	var out []shot
	for _, r := range []string{
		"java-gc", "java-finalizers", "tls", "ports", "native-backend", "native-lock", "throttled", "gateway",
		"healthy-nginx", "healthy-redis",
	} {
		out = append(out,
			shot{name: r + "-light", recording: r, width: 1280, height: 900},
			shot{name: r + "-dark", recording: r, width: 1280, height: 900, dark: true})
	}
	for _, r := range []string{"java-gc", "ports", "healthy-nginx"} {
		out = append(out,
			shot{name: r + "-phone", recording: r, width: 390, height: 1400},
			shot{name: r + "-print", recording: r, width: 794, height: 1123, paper: true},
			shot{name: r + "-charts-light", recording: r, width: 1280, height: 900, at: "charts"},
			shot{name: r + "-charts-dark", recording: r, width: 1280, height: 900, at: "charts", dark: true})
	}
	return append(out,
		shot{name: "tls-flame-light", recording: "tls", width: 1280, height: 900, at: "profiles"},
		shot{name: "tls-flame-dark", recording: "tls", width: 1280, height: 900, at: "profiles", dark: true},
		shot{name: "tls-flame-phone", recording: "tls", width: 390, height: 1400, at: "profiles"},
		shot{name: "compare-flame-dark", width: 1280, height: 900, at: "flames", dark: true},
		shot{name: "ports-facts-phone", recording: "ports", width: 390, height: 1400, at: "facts", dark: true},
	)
}

// open opens the page of a shot.
func (s shot) open(ctx context.Context, t *testing.T) *tab {
	t.Helper()
	if s.recording == "" {
		return openPage(ctx, t, comparisonPage(t, comparison(t, "planted")))
	}
	path, _ := pageOf(t, recordings[s.recording].path)
	return open(ctx, t, path)
}

// take gives the picture of a shot.
func (p *tab) take(s shot) image.Image {
	p.Helper()
	call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: s.width, Height: s.height, DeviceScaleFactor: 1, Mobile: s.width < 500,
	})
	scheme, media := "light", "screen"
	if s.dark {
		scheme = "dark"
	}
	if s.paper {
		media = "print"
	}
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Media: media, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	p.until(`matchMedia("` + media + ` and (prefers-color-scheme: ` + scheme + `)").matches && innerWidth >= ` +
		strconv.FormatInt(s.width, 10))
	if s.at != "" {
		p.js(`document.getElementById("` + s.at + `").scrollIntoView()`)
	} else {
		p.js(`scrollTo(0, 0)`)
	}
	if s.paper {
		p.js(`dispatchEvent(new Event("beforeprint"))`) // which a browser sends when it prints
		defer p.js(`dispatchEvent(new Event("afterprint"))`)
	}
	p.js(`document.activeElement?.blur()`)
	p.until(`(window.frames2 = (window.frames2 || 0) + 1) > 2`) // charts follow their place's size in the frame after
	p.wide()
	data := call(p, page.CaptureScreenshot, page.CaptureScreenshotParams{}).Data
	if dir := os.Getenv(screenshots); dir != "" {
		must(p.TB, os.WriteFile(filepath.Join(dir, s.name+".png"), data, 0o600))
	}
	img, err := png.Decode(bytes.NewReader(data))
	must(p.TB, err)
	return img
}

// A reference is a quarter of the page's width and height: letters are blurred, and a picture takes some kilobytes.
const reduced = 4

// thumbnail returns a reduced picture in 16 shades of each colour.
func thumbnail(img image.Image) *image.NRGBA {
	b := img.Bounds()
	out := image.NewNRGBA(image.Rect(0, 0, b.Dx()/reduced, b.Dy()/reduced))
	for y := range out.Rect.Dy() {
		for x := range out.Rect.Dx() {
			c := mean(img, image.Rect(x*reduced, y*reduced, (x+1)*reduced, (y+1)*reduced))
			for i := range c {
				c[i] = math.Round(c[i]/17) * 17
			}
			out.SetNRGBA(x, y, color.NRGBA{uint8(c[0]), uint8(c[1]), uint8(c[2]), 255})
		}
	}
	return out
}

// mean is the mean colour of a rectangle, 0 to 255.
func mean(img image.Image, r image.Rectangle) (c [3]float64) {
	r = r.Intersect(img.Bounds())
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			red, green, blue, _ := img.At(x, y).RGBA()
			c[0], c[1], c[2] = c[0]+float64(red>>8), c[1]+float64(green>>8), c[2]+float64(blue>>8)
		}
	}
	n := float64(max(r.Dx()*r.Dy(), 1))
	return [3]float64{c[0] / n, c[1] / n, c[2] / n}
}

// How two pictures are compared: cell by cell, each with the cells around the same place. Another font breaks lines
// elsewhere and moves what is below. It does not make a coloured area grey, a card white, or a chart empty. TestLook
// shows both.
const (
	cell      = 8    // pixels of a thumbnail: 32 of the page, two lines of text
	aside     = 1    // cells to the left and right
	above     = 4    // cells up and down: eight lines of text
	sameShade = 14.0 // of 255, of each colour
	mostCells = 0.08 // that have no like around their place
)

// unlike returns the share of the cells of a without a similar cell in b, or of b in a if that is more.
func unlike(a, b image.Image) float64 {
	return max(without(a, b), without(b, a))
}

func without(a, b image.Image) float64 {
	from, in := cells(a), cells(b)
	bad, all := 0, 0
	for y, row := range from {
		for x, c := range row {
			all++
			if !around(in, x, y, c) {
				bad++
			}
		}
	}
	return float64(bad) / float64(max(all, 1))
}

func cells(img image.Image) [][][3]float64 {
	b := img.Bounds()
	out := make([][][3]float64, b.Dy()/cell)
	for y := range out {
		for x := range b.Dx() / cell {
			out[y] = append(out[y], mean(img, image.Rect(x*cell, y*cell, (x+1)*cell, (y+1)*cell)))
		}
	}
	return out
}

func around(in [][][3]float64, x, y int, c [3]float64) bool {
	for dy := -above; dy <= above; dy++ {
		for dx := -aside; dx <= aside; dx++ {
			if y+dy < 0 || y+dy >= len(in) || x+dx < 0 || x+dx >= len(in[y+dy]) {
				continue
			}
			d := in[y+dy][x+dx]
			if math.Abs(d[0]-c[0]) <= sameShade && math.Abs(d[1]-c[1]) <= sameShade &&
				math.Abs(d[2]-c[2]) <= sameShade {
				return true
			}
		}
	}
	return false
}

func reference(name string) string { return filepath.Join("testdata", "screenshots", name+".png") }

func readPNG(t testing.TB, path string) image.Image {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	img, err := png.Decode(f)
	must(t, err)
	return img
}

// TestScreenshots compares pages of real recordings with pictures that a person has looked at. After an intended
// change: `PERFDOCTOR_SCREENSHOTS=DIR go test -run TestScreenshots -update`, and look at those in DIR.
func TestScreenshots(t *testing.T) {
	ctx := started(t)
	tabs := map[string]*tab{}
	for _, s := range shots() {
		p := tabs[s.recording]
		if p == nil {
			p = s.open(ctx, t)
			tabs[s.recording] = p
		}
		got := thumbnail(p.take(s))
		if *update {
			var b bytes.Buffer
			must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, got))
			must(t, os.WriteFile(reference(s.name), b.Bytes(), 0o600))
			continue
		}
		want := readPNG(t, reference(s.name))
		if got.Bounds() != want.Bounds() {
			t.Errorf("%s has %v, want %v", s.name, got.Bounds(), want.Bounds())
		}
		if bad := unlike(got, want); bad > mostCells {
			t.Errorf("%s: %.1f %% of the page look otherwise than %s; %s=DIR saves what it looks like, -update "+
				"takes it",
				s.name, 100*bad, reference(s.name), screenshots)
		}
		p.quiet()
	}
}

// TestPicture: the picture of the page in README.md looks like the page of a recording.
func TestPicture(t *testing.T) {
	s := shot{name: "readme", recording: "java-gc", width: 1280, height: 900}
	img := s.open(started(t), t).take(s)
	path := filepath.FromSlash("../../../docs/pictures/page.png")
	if *update {
		var b bytes.Buffer
		must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, img))
		must(t, os.WriteFile(path, b.Bytes(), 0o600))
		return
	}
	if bad := unlike(thumbnail(img), thumbnail(readPNG(t, path))); bad > mostCells {
		t.Errorf("%.1f %% of the page look otherwise than %s: -update takes it", 100*bad, path)
	}
}

// wide: nothing is wider than the screen.
func (p *tab) wide() {
	p.Helper()
	if is := p.eval(`document.documentElement.scrollWidth > innerWidth + 1`); is == "true" {
		p.Errorf("the page is %s pixels wide, the screen %s: %s", p.eval(`document.documentElement.scrollWidth`),
			p.eval(`innerWidth`),
			p.eval(`[...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 5).
				map(e => e.tagName + "." + e.className + "#" + e.id)`))
	}
}

// TestLook: other fonts do not change the look. Another theme, or a missing style, chart or flame graph does.
func TestLook(t *testing.T) {
	ctx := started(t)
	top := shot{name: "look", width: 1280, height: 900}
	charts := shot{name: "look-charts", width: 1280, height: 900, at: "charts"}
	flame := shot{name: "look-flame", width: 1280, height: 900, at: "profiles"}
	p := styled(ctx, t, "ports", "")
	tls := styled(ctx, t, "tls", "")
	want := map[string]image.Image{
		top.name: thumbnail(p.take(top)), charts.name: thumbnail(p.take(charts)),
		flame.name: thumbnail(tls.take(flame)),
	}
	for _, font := range []string{"DejaVu Serif", "DejaVu Sans Mono", "DejaVu Sans Condensed"} {
		style := `* { font-family: "` + font + `" !important; }`
		p, tls := styled(ctx, t, "ports", style), styled(ctx, t, "tls", style)
		for s, img := range map[string]image.Image{
			top.name: p.take(top), charts.name: p.take(charts),
			flame.name: tls.take(flame),
		} {
			bad := unlike(thumbnail(img), want[s])
			t.Logf("%s in %s: %.1f %% unlike", s, font, 100*bad)
			if bad > mostCells {
				t.Errorf("%s in %s looks otherwise in %.1f %% of the page", s, font, 100*bad)
			}
		}
	}
	for _, tc := range []struct {
		recording, style string
		of               shot
	}{
		{"ports", `:root { color-scheme: dark !important; }`, top},
		{
			"ports",
			`.finding { background: none !important; border: 0 !important; } .arithmetic { background: none !important; }`, top,
		},
		{"ports", `canvas { visibility: hidden; }`, charts},
		{"ports", `.charts { display: block !important; }`, charts},
		{"tls", `canvas { visibility: hidden; }`, flame},
	} {
		bad := unlike(thumbnail(styled(ctx, t, tc.recording, tc.style).take(tc.of)), want[tc.of.name])
		t.Logf("%s with %q: %.1f %% unlike", tc.of.name, tc.style, 100*bad)
		if bad <= mostCells {
			t.Errorf("with %q the page looks alike: %.1f %% differ", tc.style, 100*bad)
		}
	}
}

// styled opens a page with further styles, through the debugger, which the page's policy does not bind.
func styled(ctx context.Context, t *testing.T, recording, style string) *tab {
	t.Helper()
	path, _ := pageOf(t, recordings[recording].path)
	p := open(ctx, t, path)
	if style == "" {
		return p
	}
	call(p, dom.Enable, dom.EnableParams{})
	call(p, css.Enable, cdp.Empty{})
	frame := call(p, page.GetFrameTree, cdp.Empty{}).FrameTree.Frame.ID
	sheet := call(p, css.CreateStyleSheet, css.CreateStyleSheetParams{FrameID: frame}).StyleSheetID
	call(p, css.SetStyleSheetText, css.SetStyleSheetTextParams{StyleSheetID: sheet, Text: style})
	return p
}
