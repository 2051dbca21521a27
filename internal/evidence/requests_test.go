package evidence

import (
	"math"
	"testing"
)

// TestUnderWay: the times of exchanges tell how many requests are in progress. Looks show requests that never had an
// answer.
func TestUnderWay(t *testing.T) {
	for _, tt := range []struct {
		name         string
		looks        []float64
		timed, count float64
		want         float64
	}{
		{"nothing was timed", []float64{0, 1, 1, 0}, 0, 0, 0.5},
		{"nine of eleven looks met one of few", []float64{0, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1}, 0.23, 56, 0.23 + 3./11},
		{"no look met one", []float64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0.14, 96, 0.14},
		{"as many as there are clients", []float64{32, 32, 32, 32}, 31.6, 209, 32},
		{"two of three have no answer from the second look on", []float64{0, 2, 3, 2, 2}, 0.2, 40, 1.8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := underWay(tt.looks, tt.timed, tt.count); math.Abs(got-tt.want) > 1e-9 {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
