package compare

import (
	"math"
)

// An obs is what one interval between two samples holds: a number of events, and how many there could have been or what they are set
// against, such as seconds. A gauge's reading has a base of one.
type obs struct{ num, base float64 }

// An Estimate is a mean over the window with the bounds between which it lies with a certainty of 95 %, as far as the differences
// between the samples of this window tell. What differs between one run of a program and the next is not in it.
type Estimate struct {
	Mean    float64 `json:"mean"`
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	Samples int     `json:"samples"` // intervals between samples
	stderr  float64
	df      float64 // degrees of freedom of stderr
}

// Bounds of what is believed of samples. Under fewer than leastSamples intervals their scatter is unknown. Neighbouring intervals of one
// second resemble each other, so that ten of them tell less than ten independent ones would: the correlation is estimated, and no
// estimate from a short window is taken to be better or worse than these.
const (
	leastSamples       = 4
	leastCorrelation   = 0.0
	assumedCorrelation = 0.3 // where there are too few to estimate it: the median over the numbers of the pairs in docs/decisions/0012
	mostCorrelation    = 0.8
)

// estimate gives the ratio of the sums, its bounds, and ok false where there are too few intervals. The error is that of a ratio
// of means (W. G. Cochran, Sampling Techniques, 3rd ed., 6.4), made larger by what neighbouring intervals have in common
// ((1+r)/(1−r) for a first-order autoregression).
func estimate(list []obs) (e Estimate, ok bool) {
	n := float64(len(list))
	sum := obs{}
	for _, o := range list {
		sum.num, sum.base = sum.num+o.num, sum.base+o.base
	}
	if len(list) < leastSamples || sum.base <= 0 {
		return Estimate{}, false
	}
	e = Estimate{Mean: sum.num / sum.base, Samples: len(list)}
	residuals := make([]float64, len(list))
	square := 0.0
	for i, o := range list {
		residuals[i] = (o.num - e.Mean*o.base) / (sum.base / n)
		square += residuals[i] * residuals[i]
	}
	r := correlation(residuals, square)
	inflation := (1 + r) / (1 - r)
	e.stderr = math.Sqrt(square / (n - 1) / n * inflation)
	e.df = max(1, n/inflation-1)
	half := quantileT(0.975, e.df) * e.stderr
	e.Low, e.High = e.Mean-half, e.Mean+half
	if sum.num >= 0 {
		e.Low = max(e.Low, 0)
	}
	return e, true
}

// correlation estimates that of neighbours, with the correction for its bias in short series (F. H. C. Marriott and J. A. Pope, Biometrika
// 41, 1954).
func correlation(residuals []float64, square float64) float64 {
	n := float64(len(residuals))
	if square == 0 {
		return leastCorrelation
	}
	if n < 8 {
		return assumedCorrelation
	}
	product := 0.0
	for i := 1; i < len(residuals); i++ {
		product += residuals[i-1] * residuals[i]
	}
	return min(max((n*product/square+1)/(n-4), leastCorrelation), mostCorrelation)
}

func square(x float64) float64 { return x * x }

// quantileT gives the value below which the share p of Student's distribution lies, for p from 0.5 on.
func quantileT(p, df float64) float64 {
	low, high := 0.0, 2.0
	for cumulativeT(high, df) < p && high < 1e9 {
		high *= 2
	}
	for range 200 {
		mid := (low + high) / 2
		if mid == low || mid == high {
			break
		}
		if cumulativeT(mid, df) < p {
			low = mid
		} else {
			high = mid
		}
	}
	return (low + high) / 2
}

// cumulativeT gives the share of Student's distribution below t ≥ 0 (Abramowitz and Stegun, 26.7.1).
func cumulativeT(t, df float64) float64 {
	return 1 - incompleteBeta(df/(df+t*t), df/2, 0.5)/2
}

// incompleteBeta gives the regularised incomplete beta function by its continued fraction (Abramowitz and Stegun, 26.5.8), in
// Lentz's form.
func incompleteBeta(x, a, b float64) float64 {
	switch {
	case x <= 0:
		return 0
	case x >= 1:
		return 1
	case x > (a+1)/(a+b+2): // where the fraction converges slowly
		return 1 - incompleteBeta(1-x, b, a)
	}
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	front := math.Exp(lab-la-lb+a*math.Log(x)+b*math.Log(1-x)) / a
	const tiny = 1e-300
	f, c, d := 1.0, 1.0, 0.0
	for i := range 500 {
		m := float64(i / 2)
		term := 1.0
		switch {
		case i == 0:
		case i%2 == 0:
			term = m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		default:
			term = -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		}
		d = awayFromZero(1+term*d, tiny)
		c = awayFromZero(1+term/c, tiny)
		d = 1 / d
		f *= c * d
		if math.Abs(c*d-1) < 1e-14 {
			break
		}
	}
	return front * (f - 1)
}

func awayFromZero(x, tiny float64) float64 {
	if math.Abs(x) < tiny {
		return tiny
	}
	return x
}

// cumulativeNormal gives the share of the normal distribution below z.
func cumulativeNormal(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }

// quantileNormal gives the value below which the share p of the normal distribution lies.
func quantileNormal(p float64) float64 { return -math.Sqrt2 * math.Erfcinv(2*p) }
