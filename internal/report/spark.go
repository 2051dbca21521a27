package report

import (
	"math"
	"strings"
)

// sparks are the eighths of a cell, from the bottom (Block Elements, U+2581 to U+2588).
var sparks = []rune("▁▂▃▄▅▆▇█")

// sparkline draws each number as one cell, from the least to the greatest. A number that is NaN is a gap, and numbers
// that hardly differ are a flat line. Zero is the bottom if it is not far below the least number.
func sparkline(values []float64) string {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			low, high = min(low, v), max(high, v)
		}
	}
	if low > 0 && low < high/2 {
		low = 0
	}
	// The range is at least a tenth of the greatest number: else a line would make mountains of noise.
	if high-low < math.Abs(high)/10 {
		low = high - math.Abs(high)/10
	}
	var b strings.Builder
	for _, v := range values {
		switch {
		case math.IsNaN(v) || math.IsInf(v, 0):
			b.WriteByte(' ')
		case high <= low:
			b.WriteRune(sparks[0])
		default:
			b.WriteRune(sparks[eighth(v, low, high)])
		}
	}
	return b.String()
}

// eighth returns the place of a number between low and high in sparks. It halves first: the distance between two
// numbers can be infinite.
func eighth(v, low, high float64) int {
	share := (v/2 - low/2) / (high/2 - low/2)
	if math.IsNaN(share) {
		return 0
	}
	return int(min(max(share, 0)*float64(len(sparks)), float64(len(sparks)-1)))
}

// thin reduces many numbers to at most n, each the mean of its neighbours.
func thin(values []float64, n int) []float64 {
	if len(values) <= n {
		return values
	}
	out := make([]float64, n)
	for i := range out {
		from, to := i*len(values)/n, (i+1)*len(values)/n
		for _, v := range values[from:to] {
			out[i] += v / float64(to-from)
		}
	}
	return out
}

// bar draws a share of one in a number of cells, by eighths (U+2588 to U+258F).
func bar(share float64, cells int) string {
	share = min(max(share, 0), 1) // NaN stays
	if math.IsNaN(share) {
		return ""
	}
	eighths := int(math.Round(share * float64(cells) * 8))
	s := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		s += string(rune('█' + 8 - rest))
	}
	return s
}
