package compare

import (
	"regexp"
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A tally is the samples of one recording by what they are in.
type tally struct {
	engine  string
	seconds float64 // of CPU time that the samples stand for
	counts  map[string]float64
	kernel  map[string]float64 // of the counts, those taken in the kernel
	inlined map[string]float64 // of the counts, those in code that is compiled into one with other methods'
	total   float64
	clumps  float64 // see Methods.Clustering
	calls   []call
}

// call is samples by whose time they are and what they were called for.
type call struct {
	hotcode.Attribution
	n        float64
	inKernel bool
}

// below tells whether one of these methods is on the stack.
func (c *call) below(methods map[string]bool) bool {
	return slices.ContainsFunc(c.Callers, func(x hotcode.Caller) bool { return methods[x.Name] })
}

// address is what differs in the names of classes and stubs from one run to the next.
var address = regexp.MustCompile(`0x[0-9a-f]+|\$\$Lambda[$/.][^.]*|\$Proxy\d+|GeneratedMethodAccessor\d+|LambdaForm\$\w+[/.]?\w*`)

func newTally(engine string, seconds float64) *tally {
	return &tally{
		engine: engine, seconds: seconds,
		counts: map[string]float64{}, kernel: map[string]float64{}, inlined: map[string]float64{},
	}
}

func (t *tally) add(c call) {
	t.calls = append(t.calls, c)
	t.counts[c.Name] += c.n
	t.total += c.n
	if c.inKernel {
		t.kernel[c.Name] += c.n
	}
	if c.Inlined {
		t.inlined[c.Name] += c.n
	}
}

func tallyOf(c *hotcode.CPU) *tally {
	t := newTally(c.Engine, c.Sampled())
	buckets := map[time.Duration]map[string]float64{}
	for i, a := range c.Attributed() {
		s := c.Samples[i]
		a.Name = address.ReplaceAllString(a.Name, "*")
		for j := range a.Callers {
			a.Callers[j].Name = address.ReplaceAllString(a.Callers[j].Name, "*")
		}
		x := call{a, float64(s.Count), len(s.Stack) > 0 && c.Frames[s.Stack[0]].Kind == stacks.Kernel}
		t.add(x)
		if buckets[s.At] == nil {
			buckets[s.At] = map[string]float64{}
		}
		buckets[s.At][x.Name] += x.n
	}
	t.clumps = t.clustering(buckets)
	return t
}

// clustering compares the scatter of the counts from second to second with that of independent samples (Pearson's chi-square per
// degree of freedom, over the methods with enough samples): a program that does one thing for a second and another in the next gives
// samples that tell less than their number says.
func (t *tally) clustering(buckets map[time.Duration]map[string]float64) float64 {
	const (
		leastBuckets = 4
		leastPerCell = 5 // the usual bound for chi-square
	)
	if len(buckets) < leastBuckets {
		return 1
	}
	chi, freedom := 0.0, 0.0
	for name, n := range t.counts {
		if n/float64(len(buckets)) < leastPerCell {
			continue
		}
		for _, counts := range buckets {
			all := 0.0
			for _, x := range counts {
				all += x
			}
			want := n * all / t.total
			if want > 0 {
				chi += square(counts[name]-want) / (want * (1 - n/t.total + 1e-9))
				freedom += 1 - 1/float64(len(buckets))
			}
		}
	}
	if freedom == 0 {
		return 1
	}
	return max(1, chi/freedom)
}

// but gives a tally without the samples that have one of these methods on the stack.
func (t *tally) but(without map[string]bool) *tally {
	if len(without) == 0 {
		return t
	}
	out := newTally(t.engine, t.seconds)
	for _, c := range t.calls {
		if !c.below(without) {
			out.add(c)
		}
	}
	out.total = t.total
	return out
}

// poolOf adds the profiles of recordings up; nil where one is missing, or they are of two kinds.
func poolOf(recs []*recording.Recording) *tally {
	var sum *tally
	for _, rec := range recs {
		c, ok := hotcode.CPUOf(rec)
		if !ok {
			return nil
		}
		t := tallyOf(c)
		if sum == nil {
			sum = t
			continue
		}
		if sum.engine != t.engine {
			return nil
		}
		for _, c := range t.calls {
			sum.add(c)
		}
		sum.seconds, sum.clumps = sum.seconds+t.seconds, max(sum.clumps, t.clumps)
	}
	return sum
}

func square(x float64) float64 { return x * x }
