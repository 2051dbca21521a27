package compare

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestQuantiles compares with the tables of Abramowitz and Stegun, 26.10 and 26.1.
func TestQuantiles(t *testing.T) {
	for _, tt := range []struct{ p, df, want float64 }{
		{0.975, 1, 12.7062},
		{0.975, 4, 2.7764},
		{0.975, 10, 2.2281},
		{0.995, 9, 3.2498},
		{0.9995, 8, 5.0413},
		{0.9995, 120, 3.3735},
		{0.9995, 1, 636.619},
		{0.95, 2.5, 2.5582},
	} {
		if got := quantileT(tt.p, tt.df); math.Abs(got-tt.want) > 1e-3*tt.want {
			t.Errorf("quantileT(%v, %v) = %v, want %v", tt.p, tt.df, got, tt.want)
		}
	}
	if got := quantileNormal(0.975); math.Abs(got-1.959964) > 1e-5 {
		t.Errorf("quantileNormal(0.975) = %v", got)
	}
	if got := cumulativeNormal(1.959964); math.Abs(got-0.975) > 1e-6 {
		t.Errorf("cumulativeNormal(1.96) = %v", got)
	}
}

// TestNoiseIsNotNews draws pairs of windows from one process, whose neighbouring intervals resemble each other, and which is a few percent
// slower or faster as a whole in each run. Of those pairs no more than the promised share may show a difference, with room for chance.
func TestNoiseIsNotNews(t *testing.T) {
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
			b, okB := estimate(draw(rng, tt.samples, tt.correlation, tt.scatter, tt.between))
			a, okA := estimate(draw(rng, tt.samples, tt.correlation, tt.scatter, tt.between))
			if !okA || !okB {
				t.Fatalf("%s: no estimate", tt.name)
			}
			if difference(b, a, spread{of: max(tt.between, 0.01)}, 1).certain() {
				wrong++
			}
		}
		if share := float64(wrong) / pairs; share > tt.most {
			t.Errorf("%s: %.1f %% of the pairs show a difference, want at most %.1f %%", tt.name, 100*share, 100*tt.most)
		} else {
			t.Logf("%s: %.2f %%", tt.name, 100*share)
		}
	}
}

// draw gives a window of a process with a mean of one event a second.
func draw(rng *rand.Rand, n int, correlation, scatter, between float64) []obs {
	level := 1 + between*rng.NormFloat64()
	state := rng.NormFloat64()
	out := make([]obs, n)
	for i := range out {
		state = correlation*state + math.Sqrt(1-correlation*correlation)*rng.NormFloat64()
		base := 1 + 0.01*rng.NormFloat64()
		out[i] = obs{base * (level + scatter*state), base}
	}
	return out
}

// TestDifference: what is there is seen, with the right sign, and the bounds hold it.
func TestDifference(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	seen := 0
	for range 500 {
		b, _ := estimate(draw(rng, 10, 0.3, 0.02, 0))
		a, _ := estimate(scaled(draw(rng, 10, 0.3, 0.02, 0), 1.2))
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

func scaled(list []obs, by float64) []obs {
	for i := range list {
		list[i].num *= by
	}
	return list
}

func TestEstimateOfLittle(t *testing.T) {
	if _, ok := estimate([]obs{{1, 1}, {1, 1}, {1, 1}}); ok {
		t.Error("three intervals are taken for enough")
	}
	if _, ok := estimate(make([]obs, 10)); ok {
		t.Error("a base of nothing gives an estimate")
	}
	e, ok := estimate([]obs{{0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 1}})
	if !ok || e.Mean != 0 || e.Low != 0 || e.High != 0 {
		t.Errorf("nothing at all gives %+v, %v", e, ok)
	}
}
