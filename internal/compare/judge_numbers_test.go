package compare

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
)

// TestNoiseIsNotNews draws pairs of windows from one process. Neighbouring intervals resemble each other, and each run
// as a whole is a few percent slower or faster. No more than the promised share of the pairs may show a difference,
// with room for chance.
func TestNoiseIsNotNews(t *testing.T) {
	t.Parallel()
	const pairs = 4000
	for _, tt := range []struct {
		name             string
		samples          int
		correlation      float64
		scatter, between float64
		most             float64
	}{
		{"ten independent samples", 10, 0, 0.05, 0.01, 0.01},
		{"ten samples alike", 10, 0.5, 0.05, 0.01, 0.02},
		{"sixty samples very alike", 60, 0.7, 0.05, 0.01, 0.02},
		{"five samples", 5, 0.3, 0.05, 0.01, 0.02},
		{"runs that differ", 10, 0.3, 0.01, 0.03, 0.015},
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		wrong := 0
		for range pairs {
			b, okB := keynumber.Mean(draw(rng, tt.samples, tt.correlation, tt.scatter, tt.between))
			a, okA := keynumber.Mean(draw(rng, tt.samples, tt.correlation, tt.scatter, tt.between))
			if !okA || !okB {
				t.Fatalf("%s: no estimate", tt.name)
			}
			if difference(b, a, spread{of: max(tt.between, 0.01)}, 1).certain() {
				wrong++
			}
		}
		if share := float64(wrong) / pairs; share > tt.most {
			t.Errorf("%s: %.1f %% of the pairs show a difference, want at most %.1f %%", tt.name, 100*share,
				100*tt.most)
		} else {
			t.Logf("%s: %.2f %%", tt.name, 100*share)
		}
	}
}

// draw returns a window of a process with a mean of one event a second.
func draw(rng *rand.Rand, n int, correlation, scatter, between float64) []keynumber.Interval {
	level := 1 + between*rng.NormFloat64()
	state := rng.NormFloat64()
	out := make([]keynumber.Interval, n)
	for i := range out {
		state = correlation*state + math.Sqrt(1-correlation*correlation)*rng.NormFloat64()
		base := 1 + 0.01*rng.NormFloat64()
		out[i] = keynumber.Interval{Num: base * (level + scatter*state), Base: base}
	}
	return out
}

// TestDifference: a real difference is seen, with the right sign, and lies within the bounds.
func TestDifference(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	seen := 0
	for range 500 {
		b, _ := keynumber.Mean(draw(rng, 10, 0.3, 0.02, 0))
		a, _ := keynumber.Mean(scaled(draw(rng, 10, 0.3, 0.02, 0), 1.2))
		c := difference(b, a, spread{of: 0.02}, 10)
		if c.certain() && c.Low > 0 {
			seen++
		}
		if c.Low > 0.21 || c.High < 0.19 {
			t.Fatalf("bounds %v to %v are far from 0.2", c.Low, c.High)
		}
	}
	if seen < 400 {
		t.Errorf("a rise by a fifth was seen in %d of 500 pairs", seen)
	}
}

func scaled(list []keynumber.Interval, by float64) []keynumber.Interval {
	for i := range list {
		list[i].Num *= by
	}
	return list
}

// TestEveryNumberHasARule: a key number without a rule would change with any difference.
func TestEveryNumberHasARule(t *testing.T) {
	rec := shop(1).record(t)
	all := rules(false, 1)
	for _, n := range keynumber.NewSource(rec, keynumber.Told{}).Numbers() {
		if all[n.Name].spread.of <= 0 || all[n.Name].least <= 0 {
			t.Errorf("%s has no rule", n.Name)
		}
		delete(all, n.Name)
	}
	for name := range all {
		t.Errorf("there is a rule for %s, which is no key number", name)
	}
}
