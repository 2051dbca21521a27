package keynumber

import (
	"math"
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
		if got := StudentQuantile(tt.p, tt.df); math.Abs(got-tt.want) > 1e-3*tt.want {
			t.Errorf("StudentQuantile(%v, %v) = %v, want %v", tt.p, tt.df, got, tt.want)
		}
	}
}

func TestEstimateOfLittle(t *testing.T) {
	if _, ok := Mean([]Interval{{1, 1}, {1, 1}, {1, 1}}); ok {
		t.Error("three intervals are taken for enough")
	}
	if _, ok := Mean(make([]Interval, 10)); ok {
		t.Error("a base of nothing gives an estimate")
	}
	e, ok := Mean([]Interval{{0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 1}})
	if !ok || e.Mean != 0 || e.Low != 0 || e.High != 0 {
		t.Errorf("nothing at all gives %+v, %v", e, ok)
	}
}
