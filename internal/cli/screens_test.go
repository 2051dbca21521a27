package cli

import (
	"bytes"
	"flag"
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/report"
)

var updateScreens = flag.Bool("update", false, "write what the screens show into testdata/screens")

// screenLines is the default height of a terminal.
const screenLines = 24

// TestScreens shows what a person sees of six recorded situations, in terminals of three widths (testdata/screens). The
// first 24 lines say what the target is, why it is slow, and what to do now.
func TestScreens(t *testing.T) {
	for _, tt := range []struct {
		name string
		want []string // in the first 24 lines, but for where they are broken
	}{
		{"healthy-host", []string{
			"NO BOTTLENECK FOUND", "Next", "RESOURCES", "CPU", "memory", "disk", "network", "TCP",
		}},
		{"busy-nginx", []string{"(nginx)", "NO BOTTLENECK FOUND", "Next", "RESOURCES"}},
		{"hot-java-method", []string{"(java)", "Orders.lambda$main$0", "Proof", "Fix", "Confidence", "Next"}},
		{"throttled-python", []string{"(python3)", "CPU limit of 0.2 CPUs", "Proof", "Fix", "$ ", "Next"}},
		{"ports-exhausted", []string{"10.91.0.2:9000", "1000 ports / 60 s", "Fix", "Confidence", "Next"}},
		{"two-spinning", []string{
			"BUSY, NO BOTTLENECK FOUND", "perl (pid 1922) and python3 (pid 1923) have 1.98 of 2 CPUs", "Next",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) { screen(t, filepath.Join("../../testdata/screens", tt.name), tt.want) })
	}
}

func screenData(t *testing.T, path string) *report.Data {
	t.Helper()
	rec, err := recording.Open(path + ".zip")
	if err != nil {
		t.Fatal(err)
	}
	rec.RankAll()
	return report.Build(rec, check.Run(rec, checks.Suite(), check.Options{Causes: checks.Causes()}))
}

func screen(t *testing.T, path string, want []string) {
	t.Helper()
	data := screenData(t, path)
	var all bytes.Buffer
	for _, width := range []int{60, 80, 160} {
		var b bytes.Buffer
		if err := data.Text(&b, report.TextOptions{Width: width}); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "-- %d columns --\n%s", width, b.String())
		fitsWidth(t, b.String(), width)
		lines := strings.Split(b.String(), "\n")
		first := strings.Join(strings.Fields(strings.Join(lines[:min(len(lines), screenLines)], " ")), " ")
		for _, w := range want {
			if !strings.Contains(first, strings.TrimSpace(w)) {
				t.Errorf("%d columns: no %q in the first %d lines:\n%s", width, w, screenLines, b.String())
			}
		}
	}
	if *updateScreens {
		if err := os.WriteFile(path+".txt", all.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	golden, err := os.ReadFile(path + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(golden), all.String()); diff != "" {
		t.Errorf("run the test with -update and read what it wrote (-want +got):\n%s", diff)
	}
}

// TestResourceChecks: the strip names only checks that exist, and none twice.
func TestResourceChecks(t *testing.T) {
	known := map[string]bool{}
	for _, c := range checks.Suite() {
		known[c.Name] = true
	}
	for _, name := range report.ResourceChecks() {
		if !known[name] {
			t.Errorf("%q is no check, or named twice", name)
		}
		delete(known, name)
	}
}

// pictured is the situation that README.md shows.
const pictured = "throttled-python"

// TestPicture: the picture of the terminal in README.md matches a recording, in its colours.
func TestPicture(t *testing.T) {
	data := screenData(t, filepath.Join("../../testdata/screens", pictured))
	var b bytes.Buffer
	if err := data.Text(&b, report.TextOptions{Width: 80, Color: true}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	got := svgOf(append([]string{"$ sudo perfdoctor python3"}, lines[:min(len(lines), pictureLines)]...))
	path := filepath.FromSlash("../../docs/pictures/terminal.svg")
	if *updateScreens {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("run the test with -update and look at %s (-want +got):\n%s", path, diff)
	}
}

// pictureLines hold the answer and the strip below it.
const pictureLines = 30

// Sizes of the picture in pixels: of a cell of a monospaced letter at 14 px, and of the margin.
const (
	cellWidth, cellHeight = 8.43, 19
	margin                = 16
	columns               = 80
)

var (
	sgr    = regexp.MustCompile("\x1b\\[([0-9;]*)m([^\x1b]*)")
	colors = map[string]string{ // of a dark terminal
		"1": `font-weight="bold"`, "1;31": `fill="#ff7b72" font-weight="bold"`,
		"1;33": `fill="#e3b341" font-weight="bold"`, "36": `fill="#76e3ea"`,
		"1;32": `fill="#56d364" font-weight="bold"`, "2": `fill="#8b949e"`,
	}
)

// svgOf draws lines of a terminal with their colours.
func svgOf(lines []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n",
		int(math.Ceil(columns*cellWidth))+2*margin, len(lines)*cellHeight+2*margin,
		"a terminal with the first lines of a report")
	b.WriteString(`<rect width="100%" height="100%" rx="8" fill="#0d1117"/>` + "\n" +
		`<g font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="14" fill="#e6edf3" ` +
		`xml:space="preserve">` + "\n")
	for i, line := range lines {
		if line == "" {
			continue
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d">`, margin, margin+(i+1)*cellHeight-5)
		for _, part := range sgr.FindAllStringSubmatch("\x1b[0m"+line, -1) {
			text := html.EscapeString(part[2])
			if style := colors[part[1]]; style != "" && text != "" {
				text = "<tspan " + style + ">" + text + "</tspan>"
			}
			b.WriteString(text)
		}
		b.WriteString("</text>\n")
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}

// whole are the lines that are not wrapped, so that they can be copied.
var whole = regexp.MustCompile(`^ +(In code +)?(\$|before:|after:) `)

func fitsWidth(t *testing.T, text string, width int) {
	t.Helper()
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(line, "\n"); utf8.RuneCountInString(line) > width && !whole.MatchString(line) {
			t.Errorf("wider than %d columns: %q", width, line)
		}
	}
}
