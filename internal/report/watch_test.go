package report

import (
	"bytes"
	"math"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
)

func frame(t *testing.T, w *Watch, opts TextOptions, lines int) string {
	t.Helper()
	var b bytes.Buffer
	if err := w.Frame(&b, opts, lines); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func keyNumber(mean float64) []keynumber.Number {
	return []keynumber.Number{{
		Name: "cpu_used", Label: "CPUs used by the target", Unit: "CPUs",
		Estimate: &keynumber.Estimate{Mean: mean},
	}}
}

func TestWatch(t *testing.T) {
	w := NewWatch(5)
	w.Add(load(t, "healthy"), nil)
	for i := range 6 {
		w.Add(load(t, "critical"), keyNumber(float64(i)))
	}
	w.Add(load(t, "nothing"), nil)
	got := frame(t, w, TextOptions{}, 100)
	for _, want := range []string{"NOTHING ASSESSED", "8 windows of 10 s", "!!!!?", "Ctrl-C ends"} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
	w.Add(load(t, "critical"), keyNumber(4))
	got = frame(t, w, TextOptions{}, 100)
	for _, want := range []string{
		"CRITICAL  All 1000 local ports", "  local-port-exhaustion: destination", "Keep connections alive",
		"▁▅█ ▅", "4 CPUs",
		"warning  bridge-nat-cost",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
	w.Keys = "keys: s sort"
	w.Mark()
	w.Sort()
	got = frame(t, w, TextOptions{}, 100)
	for _, want := range []string{"keys: s sort", "sorted by memory", "marked", "▲"} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
	if !strings.HasPrefix(got, "\x1b[H") || !strings.HasSuffix(got, "\x1b[J") {
		t.Errorf("it does not begin at the corner, or leaves what was there: %q", got)
	}
}

// TestWatchFits: a screen has so many columns and lines, and the name of a process does nothing to it.
func TestWatchFits(t *testing.T) {
	sequences := regexp.MustCompile(`\x1b\[(H|K|J|[0-9;]*m)`)
	for _, name := range []string{"hostile", "critical", "not-assessed"} {
		for _, size := range [][2]int{{40, 10}, {80, 24}, {200, 50}} {
			w := NewWatch(60)
			for i := range 80 {
				w.Add(load(t, name), keyNumber(math.Mod(float64(i), 7)))
			}
			got := sequences.ReplaceAllString(frame(t, w, TextOptions{Width: size[0], Color: true}, size[1]), "")
			lines := strings.Split(strings.TrimSuffix(got, "\r\n"), "\r\n")
			if len(lines) > size[1] {
				t.Errorf("%s: %d lines on a screen of %d", name, len(lines), size[1])
			}
			for _, l := range lines {
				if utf8.RuneCountInString(l) > size[0] {
					t.Errorf("%s: at %d columns: %q", name, size[0], l)
				}
				if strings.ContainsAny(l, "\x1b\r\n\u009b\u202e") {
					t.Errorf("%s: %q acts on the terminal", name, l)
				}
			}
		}
	}
}

func TestWorthALine(t *testing.T) {
	share := &keynumber.Number{Floor: 0.01} // as that of pauses
	for name, c := range map[string]struct {
		list []float64
		want bool
	}{
		"never":                  {[]float64{0, 0, math.NaN()}, false},
		"a trace":                {[]float64{0.0001, 0, 0.002}, false},
		"one stop of the window": {[]float64{0, 0, 0.3, 0}, true},
		"at the floor":           {[]float64{0.01}, true},
	} {
		if got := worthALine(share, c.list); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
