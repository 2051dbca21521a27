package series_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/series"
)

type points = []series.Point

// each makes one reading a second.
func each(values ...float64) points {
	var out points
	for i, v := range values {
		out = append(out, series.Point{At: time.Duration(i) * time.Second, Value: v})
	}
	return out
}

// later is the same series, read so much later.
func later(by time.Duration, list points) points {
	out := slices.Clone(list)
	for i := range out {
		out[i].At += by
	}
	return out
}

func without(list points, i int) points { return slices.Delete(slices.Clone(list), i, i+1) }

func TestCounters(t *testing.T) {
	for _, c := range []struct {
		name       string
		points     points
		rise, rate float64
		ok         bool
		rates      []float64
	}{
		{"none", nil, 0, 0, false, nil},
		{"one reading", each(10), 0, 0, false, nil},
		{"rises", each(10, 13, 13, 19), 9, 3, true, []float64{3, 0, 6}},
		{"a reset", each(10, 13, 2, 8), 3 + 2 + 6, 11.0 / 3, true, []float64{3, 2, 6}},
		{"a reading is lost", without(each(0, 2, 4, 6), 2), 6, 2, true, []float64{2, 2}},
		{"the first is lost", without(each(0, 2, 4, 6), 0), 4, 2, true, []float64{2, 2}},
		{"twice at one moment", points{{At: 0, Value: 1}, {At: 0, Value: 2}}, 1, 0, false, nil},
	} {
		n, _ := series.Rise(c.points)
		rate, ok := series.Rate(c.points)
		if n != c.rise || rate != c.rate || ok != c.ok {
			t.Errorf("%s: rise %v, rate %v, %v; want %v, %v, %v", c.name, n, rate, ok, c.rise, c.rate, c.ok)
		}
		if d := cmp.Diff(c.rates, noneIfEmpty(series.Values(series.Rates(c.points)))); d != "" {
			t.Errorf("%s: rates, -want +got:\n%s", c.name, d)
		}
	}
}

func noneIfEmpty(list []float64) []float64 {
	if len(list) == 0 {
		return nil
	}
	return list
}

func TestRiseSince(t *testing.T) {
	for _, c := range []struct {
		name   string
		points points
		want   float64
	}{
		{"there from the beginning", each(100, 103), 3},
		{"began in the window", later(time.Second, each(100, 103)), 103},
		{"read once, in the window", later(time.Second, each(5)), 5},
		{"read once, at the beginning", each(5), 0},
		{"none", nil, 0},
	} {
		if got := series.RiseSince(c.points, 0); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestJoins: two collectors read in one round a moment apart. A round that one of them lost is in neither a difference
// nor a ratio.
func TestJoins(t *testing.T) {
	a, b := each(10, 20, 30, 40, 50), later(90*time.Millisecond, each(1, 2, 3, 4, 5))
	for _, c := range []struct {
		name        string
		a, b        points
		minus, over []float64
	}{
		{"all of both", a, b, []float64{9, 18, 27, 36, 45}, []float64{10, 10, 10, 10, 10}},
		{"the other one's first is lost", a, without(b, 0), []float64{18, 27, 36, 45}, []float64{10, 10, 10, 10}},
		{"the other one's third is lost", a, without(b, 2), []float64{9, 18, 36, 45}, []float64{10, 10, 10, 10}},
		{"the other one's last is lost", a, without(b, 4), []float64{9, 18, 27, 36}, []float64{10, 10, 10, 10}},
		{"the own second is lost", without(a, 1), b, []float64{9, 27, 36, 45}, []float64{10, 10, 10, 10}},
		{"both lost one", without(a, 1), without(b, 3), []float64{9, 27, 45}, []float64{10, 10, 10}},
		{
			"a slower one", a,
			points{{At: 0, Value: 1}, {At: 4 * time.Second, Value: 5}},
			[]float64{9, 45},
			[]float64{10, 10},
		},
		{"read once", a, later(2*time.Second, each(3)), []float64{27}, []float64{10}},
		{"nothing", a, nil, nil, nil},
		{"zero divides nothing", each(7, 7), each(0, 2), []float64{7, 5}, []float64{3.5}},
	} {
		if d := cmp.Diff(c.minus, noneIfEmpty(series.Values(series.Minus(c.a, c.b)))); d != "" {
			t.Errorf("%s: minus, -want +got:\n%s", c.name, d)
		}
		if d := cmp.Diff(c.over, noneIfEmpty(series.Values(series.Over(c.a, c.b)))); d != "" {
			t.Errorf("%s: over, -want +got:\n%s", c.name, d)
		}
	}
}

func TestAt(t *testing.T) {
	list := without(each(1, 2, 3, 4, 5), 2)
	for _, c := range []struct {
		at   time.Duration
		want float64
		ok   bool
	}{
		{0, 1, true},
		{499 * time.Millisecond, 1, true},
		{501 * time.Millisecond, 2, true},
		{500 * time.Millisecond, 0, false},
		{2 * time.Second, 0, false},
		{3 * time.Second, 4, true},
		{4400 * time.Millisecond, 5, true},
		{4600 * time.Millisecond, 0, false},
	} {
		if v, ok := series.At(list, c.at); v != c.want || ok != c.ok {
			t.Errorf("at %v: %v, %v; want %v, %v", c.at, v, ok, c.want, c.ok)
		}
	}
}

func TestSum(t *testing.T) {
	if d := cmp.Diff(each(1, 12, 20), series.Sum(each(1, 2), later(time.Second, each(10, 20)))); d != "" {
		t.Error(d)
	}
	if got := series.Sum(); len(got) != 0 {
		t.Errorf("the sum of nothing is %v", got)
	}
}

func TestIntervals(t *testing.T) {
	rising := func(r float64) bool { return r > 0 }
	for _, c := range []struct {
		name   string
		points points
		n, of  int
	}{
		{"all", each(0, 1, 2, 3), 3, 3},
		{"half", each(0, 1, 1, 2, 2), 2, 4},
		{"half, one lost where it rose", without(each(0, 1, 1, 2, 2), 1), 2, 4},
		{"half, one lost where it stood", without(each(0, 1, 1, 2, 2, 2), 4), 2, 5},
		{"one reading", each(1), 0, 0},
	} {
		if n, of := series.Intervals(rising, c.points); n != c.n || of != c.of {
			t.Errorf("%s: %d of %d, want %d of %d", c.name, n, of, c.n, c.of)
		}
	}
}

func TestMeanAndMedian(t *testing.T) {
	for _, c := range []struct {
		list         []float64
		mean, median float64
	}{
		{nil, 0, 0},
		{[]float64{4}, 4, 4},
		{[]float64{3, 1}, 2, 2},
		{[]float64{9, 1, 2}, 4, 2},
		{[]float64{9, 1, 2, 4}, 4, 3},
	} {
		if m := series.Mean(c.list); m != c.mean {
			t.Errorf("mean of %v: %v, want %v", c.list, m, c.mean)
		}
		if m := series.Median(c.list); m != c.median {
			t.Errorf("median of %v: %v, want %v", c.list, m, c.median)
		}
	}
	if m := series.Median([]time.Duration{time.Second, 2 * time.Second}); m != 1.5e9 {
		t.Errorf("median of 1 s and 2 s: %v ns", m)
	}
}

// FuzzLostReadings: whatever readings are lost, a difference has no number that the whole one does not have. A counter
// has risen by no more, and it rose in no more intervals.
func FuzzLostReadings(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6}, uint16(0b000100), uint16(0b100000), uint8(90))
	f.Add([]byte{9, 9, 200, 1, 0, 7, 8, 8, 8}, uint16(0b1), uint16(0b111), uint8(0))
	f.Fuzz(func(t *testing.T, values []byte, lostA, lostB uint16, late uint8) {
		var a, b points
		total := 0.0
		for i, v := range values[:min(len(values), 16)] {
			total += float64(v)
			at := time.Duration(i) * time.Second
			a = append(a, series.Point{At: at, Value: total})
			b = append(b, series.Point{At: at + time.Duration(late)*time.Millisecond, Value: float64(v)})
		}
		la, lb := kept(a, lostA), kept(b, lostB)
		whole := map[time.Duration]float64{}
		for _, p := range series.Minus(a, b) {
			whole[p.At] = p.Value
		}
		// If more than half is lost, the pace of the rest is another.
		pace := min(series.UsualStep(la), series.UsualStep(lb)) == time.Second
		for _, p := range series.Minus(la, lb) {
			if v, ok := whole[p.At]; pace && (!ok || v != p.Value) {
				t.Errorf("%v less %v: %v at %v, where all readings give %v, %v", la, lb, p.Value, p.At, v, ok)
			}
		}
		n, _ := series.Rise(a)
		if m, _ := series.Rise(la); m > n {
			t.Errorf("it rose by %v, and by %v where readings are lost", n, m)
		}
		up := func(r float64) bool { return r > 0 }
		in, _ := series.Intervals(up, a)
		lin, of := series.Intervals(up, la)
		if lin > in || lin > of {
			t.Errorf("it rose in %d intervals, and in %d of %d where readings are lost", in, lin, of)
		}
		if m := series.Median(series.Values(la)); math.IsNaN(m) || math.IsNaN(series.Mean(series.Values(la))) {
			t.Errorf("the median or mean of %v is no number", la)
		}
	})
}

func kept(list points, lost uint16) points {
	var out points
	for i, p := range list {
		if lost>>i&1 == 0 {
			out = append(out, p)
		}
	}
	return out
}
