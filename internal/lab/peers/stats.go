package main

import (
	"fmt"
	"math"

	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
)

// An estimate is a mean and its interval.
type estimate struct{ low, mid, high float64 }

func (e estimate) String() string {
	if e.low == e.high {
		return figure(e.mid)
	}
	return fmt.Sprintf("%s (%s–%s)", figure(e.mid), figure(e.low), figure(e.high))
}

// figure formats a number with three significant digits: no more are known.
func figure(v float64) string {
	switch digits := 2 - int(math.Floor(math.Log10(math.Abs(v)))); {
	case v == 0:
		return "0"
	case digits <= 0:
		return fmt.Sprintf("%.0f", v)
	default:
		return fmt.Sprintf("%.*f", min(digits, 6), v)
	}
}

// sure is the probability that an interval on the page contains the mean. surer is the probability for the short
// form, which asks some ten questions in each CI run and may be wrong about one of them once in a hundred runs.
const (
	sure  = 0.95
	surer = 0.999
)

// mean returns the mean of values with its interval by Student's distribution.
func mean(values []float64, certainty float64) estimate {
	s := spreadOf(values)
	if len(values) < 2 {
		return estimate{math.Inf(-1), s.mean, math.Inf(1)}
	}
	half := keynumber.StudentQuantile((1+certainty)/2, float64(len(values)-1)) * math.Sqrt(s.variance)
	return estimate{s.mean - half, s.mean, s.mean + half}
}

// geometric is mean for values that differ by factors: costs, and ratios of costs.
func geometric(values []float64, certainty float64) estimate {
	logs := make([]float64, len(values))
	for i, v := range values {
		logs[i] = math.Log(v)
	}
	e := mean(logs, certainty)
	return estimate{math.Exp(e.low), math.Exp(e.mid), math.Exp(e.high)}
}

// A spread is a mean and the variance of that mean.
type spread struct{ mean, variance float64 }

func spreadOf(values []float64) spread {
	n, s := float64(len(values)), spread{}
	for _, v := range values {
		s.mean += v / n
	}
	for _, v := range values {
		s.variance += (v - s.mean) * (v - s.mean) / (n - 1) / n
	}
	return s
}

// slope fits log y = a + b log x by least squares, weighting each y by how well it is known. It returns b. The error
// has df degrees of freedom.
func slope(x []float64, y []spread, df float64) (b estimate, ok bool) {
	var sum, sx, sy, sxx, sxy float64
	for i := range x {
		// by the variance of log y; no cost is known better than to a hundredth
		weight := 1 / max(y[i].variance/(y[i].mean*y[i].mean), 1e-4)
		lx, ly := math.Log(x[i]), math.Log(y[i].mean)
		sum, sx, sy = sum+weight, sx+weight*lx, sy+weight*ly
		sxx, sxy = sxx+weight*lx*lx, sxy+weight*lx*ly
	}
	width := sxx - sx*sx/sum
	if len(x) < 2 || width < 1e-9 || df < 1 { // one size only
		return estimate{}, false
	}
	b.mid = (sxy - sx*sy/sum) / width
	half := keynumber.StudentQuantile((1+sure)/2, df) / math.Sqrt(width)
	b.low, b.high = b.mid-half, b.mid+half
	return b, true
}
