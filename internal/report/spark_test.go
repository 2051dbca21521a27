package report

import (
	"math"
	"testing"
	"unicode/utf8"
)

func TestSparkline(t *testing.T) {
	nan := math.NaN()
	for _, tt := range []struct {
		values []float64
		want   string
	}{
		{nil, ""},
		{[]float64{0, 0, 0}, "▁▁▁"},
		{[]float64{0, 1, 2, 3, 4, 5, 6, 7}, "▁▂▃▄▅▆▇█"},
		{[]float64{1, nan, 8}, "▂ █"},
		{[]float64{100, 101, 100}, "███"},
		{[]float64{5}, "█"},
		{[]float64{-3, 0}, "▁█"},
		{[]float64{1, math.Inf(1)}, "█ "},
	} {
		if got := sparkline(tt.values); got != tt.want {
			t.Errorf("sparkline(%v) = %q, want %q", tt.values, got, tt.want)
		}
	}
}

func TestBar(t *testing.T) {
	for _, tt := range []struct {
		share float64
		want  string
	}{{0, ""}, {1, "████"}, {0.5, "██"}, {0.125, "▌"}, {0.03125, "▏"}, {2, "████"}, {-1, ""}, {math.NaN(), ""}} {
		if got := bar(tt.share, 4); got != tt.want || utf8.RuneCountInString(got) > 4 {
			t.Errorf("bar(%v) = %q, want %q", tt.share, got, tt.want)
		}
	}
}

func TestThin(t *testing.T) {
	if got := thin([]float64{1, 3, 5, 7}, 2); len(got) != 2 || got[0] != 2 || got[1] != 6 {
		t.Errorf("thin gives %v", got)
	}
}

// Attack 9: the distance of such numbers is infinite, and an index made of it panicked.
func TestSparklineOfHugeNumbers(t *testing.T) {
	got := sparkline([]float64{-math.MaxFloat64, 0, math.MaxFloat64, math.Inf(1), math.Inf(-1), math.NaN()})
	if want := "▁▅█   "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
