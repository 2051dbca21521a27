package main

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/recording"
)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-3*math.Abs(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestMean has the interval of a textbook: ten values, for which t.test of R returns 2.33, from 0.898 to 3.762.
func TestMean(t *testing.T) {
	e := mean([]float64{1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4}, 0.95) // R's data set sleep, group 2
	near(t, "mean", e.mid, 2.33)
	near(t, "low", e.low, 0.8976775)
	near(t, "high", e.high, 3.7623225)
	if one := mean([]float64{3}, 0.95); !math.IsInf(one.high, 1) || one.mid != 3 {
		t.Errorf("of one value it is known where it lies: %v", one)
	}
}

func TestSlope(t *testing.T) {
	x, y := []float64{10, 100, 1000, 10000}, make([]spread, 4)
	for i := range x {
		y[i] = spread{3 * math.Pow(x[i], 1.2), 0}
	}
	b, ok := slope(x, y, 8)
	if !ok {
		t.Fatal("four sizes are too few")
	}
	near(t, "exponent", b.mid, 1.2)
	// Each is known to a hundredth, log x has a sum of squares of 26.51, and Student's quantile of 8 degrees is 2.306.
	near(t, "half of its interval", b.high-b.mid, 0.01*2.306/math.Sqrt(26.51))
	if _, ok := slope([]float64{5, 5}, y[:2], 8); ok {
		t.Error("one size has an exponent")
	}
}

// TestGrowth: the fixed cost of a program does not hide how the rest grows. A size that costs no more than noise has no
// influence.
func TestGrowth(t *testing.T) {
	g := Growth{Points: []Point{{0, []float64{0.49, 0.51}}, {10, []float64{0.48, 0.5}}}}
	for size := 100; size <= 10_000; size *= 10 {
		cost := 0.5 + 1e-5*float64(size*size)
		g.Points = append(g.Points, Point{size, []float64{cost, cost, cost}})
	}
	b, ok := g.exponent()
	last, lastOK := g.lastDecade()
	if !ok || b.mid < 1.9 || b.mid > 2.1 || !lastOK || last.mid < 1.9 || last.mid > 2.1 {
		t.Errorf("exponents %v %v, %v %v; want 2", b, ok, last, lastOK)
	}
	g.Points = g.Points[:3]
	if b, ok := g.exponent(); ok {
		t.Errorf("one size that costs something has an exponent of %v", b)
	}
}

// pair is a contest in which perfdoctor takes so many times what its peer takes.
func pair(ratios ...float64) *Contest {
	c := &Contest{Name: "some", Field: []*Entrant{{Name: "perfdoctor"}, {Name: "peer"}}}
	for i, r := range ratios {
		took := float64(i + 1) // the machine becomes slower, for both
		c.Field[0].Costs = append(c.Field[0].Costs, Cost{Wall: took * r, CPU: took * r, Memory: 1e6 * r})
		c.Field[1].Costs = append(c.Field[1].Costs, Cost{Wall: took, CPU: took, Memory: 1e6})
	}
	return c
}

func TestRatio(t *testing.T) {
	c := pair(0.5, 0.5, 0.5, 0.5)
	r, ok := ratio(c, c.Field[1], cpuOf, sure)
	if !ok {
		t.Fatal("no ratio")
	}
	near(t, "ratio", r.mid, 0.5)
	near(t, "high", r.high, 0.5)
	c.Field[1] = &Entrant{Name: "peer", Missing: "it is not here"}
	if _, ok := ratio(c, c.Field[1], cpuOf, sure); ok {
		t.Error("a peer that is not there has a ratio")
	}
	if text := c.text(); !strings.Contains(text, "not measured, because it is not here") {
		t.Errorf("the page says of it:\n%s", text)
	}
}

func TestCompare(t *testing.T) {
	for name, now := range map[string]struct {
		contest *Contest
		worse   bool
	}{
		"the same":           {pair(0.5, 0.51, 0.5, 0.49), false},
		"a little more":      {pair(0.52, 0.53, 0.52, 0.51), false},
		"twice as much":      {pair(1, 1.01, 1, 0.99), true},
		"more, within noise": {pair(0.3, 2, 0.4, 1.1), false},
		"less":               {pair(0.1, 0.1, 0.1, 0.1), false},
	} {
		b := &bench{root: t.TempDir(), out: &strings.Builder{}}
		for _, page := range []string{"docs/performance.md", "docs/guide.md", "README.md", "internal/lab/peers/x"} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(b.root, page)), 0o755); err != nil {
				t.Fatal(err)
			}
			text := []byte("a\n" + begin + "old\n" + end + "z\n")
			if err := os.WriteFile(filepath.Join(b.root, page), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		then := &figures{CPUs: "2 x some", Kernel: "6.18.1", Contests: []*Contest{pair(0.5, 0.5, 0.51, 0.49)}}
		if err := b.write(then); err != nil {
			t.Fatal(err)
		}
		err := b.compare(&figures{CPUs: "2 x some", Kernel: "6.18.44", Contests: []*Contest{now.contest}})
		if (err != nil) != now.worse {
			t.Errorf("%s: %v", name, err)
		}
		more := &figures{CPUs: "4 x some", Kernel: "6.18.1", Contests: []*Contest{now.contest}}
		if err := b.compare(more); !errors.Is(err, errOther) {
			t.Errorf("%s: figures of a machine with more CPUs are compared: %v", name, err)
		}
		other := &figures{CPUs: "2 x other", Kernel: "6.18.1", Contests: []*Contest{now.contest}}
		if err := b.compare(other); (err != nil) != now.worse {
			t.Errorf("%s: memory, on another processor: %v", name, err)
		}
		for i := range now.contest.Field[0].Costs {
			now.contest.Field[0].Costs[i].Memory = 1 // so that CPU time alone could be worse
		}
		if err := b.compare(other); err != nil {
			t.Errorf("%s: CPU time is compared with that of another processor: %v", name, err)
		}
		text, err := os.ReadFile(filepath.Join(b.root, "docs/performance.md"))
		if err != nil || !strings.HasPrefix(string(text), "a\n"+begin) || !strings.HasSuffix(string(text), end+"z\n") ||
			strings.Contains(string(text), "old") {
			t.Errorf("%s: the page is %q, %v", name, text, err)
		}
	}
}

// TestRecordings: the result is a recording of the requested length, and its counters do not fall.
func TestRecordings(t *testing.T) {
	dir := t.TempDir()
	short, long := filepath.Join(dir, "short"), filepath.Join(dir, "long")
	if err := profiled(short, 50); err != nil {
		t.Fatal(err)
	}
	if err := repeated(short, long, 6); err != nil {
		t.Fatal(err)
	}
	rec, err := recording.Open(long)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "seconds", rec.Meta.Duration, 60)
	m := moment{T: 1, M: map[string][][]any{"x_total": {{"a", 10.0}}, "y": {{3.0}}}}
	moved := m.later(2, 10, risesOf([]moment{m, {T: 9, M: map[string][][]any{"x_total": {{"a", 14.0}}}}}))
	if moved.T != 21 || moved.M["x_total"][0][1] != 18.0 || moved.M["y"][0][0] != 3.0 {
		t.Errorf("the third repetition begins with %+v", moved)
	}
}
