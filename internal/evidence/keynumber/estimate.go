package keynumber

import (
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mathext"
)

// An Interval is what happened between two samples: a number of events, and what they are divided by, such as seconds
// or how many there could have been. A gauge's reading has a base of one.
type Interval struct{ Num, Base float64 }

// An Estimate is a mean over the window with its 95 % confidence bounds, as far as the differences between the
// samples of this window show them. It does not include what differs between one run of a program and the next.
type Estimate struct {
	Mean    float64 `json:"mean"`
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	Samples int     `json:"samples"` // intervals between samples
	StdErr  float64 `json:"-"`
	DF      float64 `json:"-"` // degrees of freedom of StdErr
}

func (e *Estimate) finite() bool {
	sum := e.Mean + e.Low + e.High
	return !math.IsNaN(sum) && !math.IsInf(sum, 0)
}

// Bounds of what samples can show. With fewer than leastSamples intervals their scatter is unknown. Neighbouring
// intervals of one second resemble each other, so ten of them say less than ten independent ones would: the
// correlation is estimated, and an estimate from a short window is kept within these bounds.
const (
	leastSamples     = 4
	leastCorrelation = 0.0
	// if there are too few to estimate it: the median over the numbers of the pairs in docs/decisions/0012
	assumedCorrelation = 0.3
	mostCorrelation    = 0.8
)

// Mean returns the ratio of the sums and its bounds; ok is false if there are too few intervals. The error is the one
// of a ratio of means (W. G. Cochran, Sampling Techniques, 3rd ed., 6.4), made larger by what neighbouring intervals
// have in common ((1+r)/(1−r) for a first-order autoregression).
func Mean(list []Interval) (e Estimate, ok bool) {
	n := float64(len(list))
	sum := Interval{}
	for _, o := range list {
		sum.Num, sum.Base = sum.Num+o.Num, sum.Base+o.Base
	}
	if len(list) < leastSamples || sum.Base <= 0 {
		return Estimate{}, false
	}
	e = Estimate{Mean: sum.Num / sum.Base, Samples: len(list)}
	residuals := make([]float64, len(list))
	for i, o := range list {
		residuals[i] = (o.Num - e.Mean*o.Base) / (sum.Base / n)
	}
	squares := floats.Dot(residuals, residuals)
	r := correlation(residuals, squares)
	inflation := (1 + r) / (1 - r)
	e.StdErr = math.Sqrt(squares / (n - 1) / n * inflation)
	e.DF = max(1, n/inflation-1)
	half := StudentQuantile(0.975, e.DF) * e.StdErr
	e.Low, e.High = e.Mean-half, e.Mean+half
	if sum.Num >= 0 {
		e.Low = max(e.Low, 0)
	}
	return e, true
}

// StudentQuantile returns the value below which the share p of Student's distribution lies, for p from 0.5 on
// (Abramowitz and Stegun, 26.7.1; why it is not the one of gonum's distuv is in docs/decisions/0061).
func StudentQuantile(p, df float64) float64 {
	x := mathext.InvRegIncBeta(df/2, 0.5, 2*(1-p))
	return math.Sqrt(df * (1 - x) / x)
}

// correlation estimates the correlation of neighbouring residuals, corrected for its bias in short series (F. H. C.
// Marriott and J. A. Pope, Biometrika 41, 1954).
func correlation(residuals []float64, squares float64) float64 {
	n := len(residuals)
	if squares == 0 {
		return leastCorrelation
	}
	if n < 8 {
		return assumedCorrelation
	}
	r := floats.Dot(residuals[:n-1], residuals[1:]) / squares
	return min(max((float64(n)*r+1)/float64(n-4), leastCorrelation), mostCorrelation)
}

// none is the upper 95 % bound on the number of events where none was seen (the rule of three: J. Hanley and A.
// Lippman-Hand, JAMA 249, 1983).
const none = 3

// over divides one mean by another that is not zero. It assumes that their errors are independent.
func (e Estimate) over(by Estimate) Estimate {
	q := Estimate{Mean: e.Mean / by.Mean, Samples: min(e.Samples, by.Samples), DF: min(e.DF, by.DF)}
	if e.Mean == 0 {
		q.High = none / float64(e.Samples) / by.Mean
		return q
	}
	q.StdErr = q.Mean * math.Hypot(e.StdErr/e.Mean, by.StdErr/by.Mean)
	half := StudentQuantile(0.975, q.DF) * q.StdErr
	q.Low, q.High = max(q.Mean-half, 0), q.Mean+half
	return q
}

// Spreads between runs of one program: their standard deviation as a share of the mean (docs/decisions/0012), rounded
// up.
const (
	spreadOfCPU = 0.02 // CPU time for the same work: placement in memory, which CPU, neighbours of a virtual machine

	// In a virtual machine the core's other thread, or its clock, may be another guest's: a fixed loop beside a server
	// and its clients took 111 to 286 µs of CPU time, and programs that do nothing but compute 12 to 28 % more in one
	// run than in the next, without a trace in steal.
	spreadOfGuestCPU = 0.12

	// SpreadOfLoad is the spread of what a closed loop of clients gets done.
	SpreadOfLoad = 0.03
	// SpreadOfProgress is the spread of the requests in progress: for clients that wait for each answer it is the
	// spread of what they get done, for others the spread of the request times.
	SpreadOfProgress = 0.04
)

// SpreadOfCPU returns the spread of CPU time between runs, in a virtual machine or on a host of its own.
func SpreadOfCPU(guest bool) float64 {
	if guest {
		return spreadOfGuestCPU
	}
	return spreadOfCPU
}
