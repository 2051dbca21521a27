package compare

import (
	"encoding/binary"
	"hash/maphash"
	"regexp"
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A tally counts the samples of one recording by the code they are in.
type tally struct {
	engine  string
	seconds float64 // CPU time that the samples stand for
	counts  map[string]float64
	kernel  map[string]float64 // the part of counts in the kernel
	inlined map[string]float64 // the part of counts in code compiled into one piece with other methods
	total   float64
	clumps  float64 // see Methods.Clustering
	calls   []call
	byHash  map[uint64]int // index of a call by its hash, or by the next free number
	names   *names
}

// A call is samples with the same method and the same callers.
type call struct {
	name              int32
	inKernel, inlined bool
	above             []caller // from the innermost outwards
	n                 float64
}

// A caller is the number of a name, doubled, plus one if it is inlined: a profile has millions of them.
type caller int32

func (c caller) name() int32   { return int32(c >> 1) }
func (c caller) inlined() bool { return c&1 == 1 }

// below reports whether one of these methods, by the numbers of their names, is on the stack.
func (c *call) below(methods []bool) bool {
	return slices.ContainsFunc(c.above, func(x caller) bool { return methods[x.name()] })
}

// names numbers the names of methods, over all recordings that are compared together.
type names struct {
	list    []string
	numbers map[string]int32
	plain   map[string]int32 // by the name with its address
	seed    maphash.Seed
	key     []byte // reused
	most    int    // names; 0 for no bound
}

func newNames() *names {
	return &names{numbers: map[string]int32{}, plain: map[string]int32{}, seed: maphash.MakeSeed()}
}

// of returns the number of a name, without what differs from one run to the next.
func (n *names) of(name string) int32 {
	if i, known := n.plain[name]; known {
		return i
	}
	bare := address.ReplaceAllString(name, "*")
	if n.most > 0 && len(n.plain) >= n.most {
		bare = otherMethods
	}
	i, known := n.numbers[bare]
	if !known {
		i = int32(len(n.list))
		n.list, n.numbers[bare] = append(n.list, bare), i
	}
	if bare != otherMethods {
		n.plain[name] = i
	}
	return i
}

// set marks the numbers of these names.
func (n *names) set(of map[string]bool) []bool {
	out := make([]bool, len(n.list))
	for name := range of {
		if i, known := n.numbers[name]; known {
			out[i] = true
		}
	}
	return out
}

// address matches what differs in the names of classes and stubs from one run to the next.
var address = regexp.MustCompile(
	`0x[0-9a-f]+|\$\$Lambda[$/.][^.]*|\$Proxy\d+|GeneratedMethodAccessor\d+|LambdaForm\$\w+[/.]?\w*`)

func newTally(engine string, seconds float64, of *names) *tally {
	return &tally{
		engine: engine, seconds: seconds, names: of, byHash: map[uint64]int{},
		counts: map[string]float64{}, kernel: map[string]float64{}, inlined: map[string]float64{},
	}
}

// add counts a call.
func (t *tally) add(c call) {
	t.count(c)
	t.calls[t.keep(c)].n += c.n
}

func (t *tally) count(c call) {
	name := t.names.list[c.name]
	t.counts[name] += c.n
	t.total += c.n
	if c.inKernel {
		t.kernel[name] += c.n
	}
	if c.inlined {
		t.inlined[name] += c.n
	}
}

// keep returns the index of a call, which has no samples at first. It copies the callers of a new call: most stacks
// recur, in the next second or recording.
func (t *tally) keep(c call) int {
	i, hash := t.find(&c)
	if i < 0 {
		i = len(t.calls)
		t.byHash[hash] = i
		c.above, c.n = slices.Clone(c.above), 0
		t.calls = append(t.calls, c)
	}
	return i
}

func (t *tally) has(c call) bool {
	i, _ := t.find(&c)
	return i >= 0
}

// find returns the index of an equal call, or -1 and the free number for its hash.
func (t *tally) find(c *call) (place int, hash uint64) {
	for hash = t.names.hash(c); ; hash++ {
		i, ok := t.byHash[hash]
		if !ok {
			return -1, hash
		}
		if x := &t.calls[i]; x.name == c.name && x.inKernel == c.inKernel && x.inlined == c.inlined &&
			slices.Equal(x.above, c.above) {
			return i, hash
		}
	}
}

// hash hashes everything but the number of samples.
func (n *names) hash(c *call) uint64 {
	n.key = binary.AppendUvarint(n.key[:0], uint64(c.name))
	for _, x := range c.above {
		n.key = binary.AppendUvarint(n.key, uint64(x))
	}
	return maphash.Bytes(n.seed, n.key)
}

func tallyOf(c *hotcode.CPU, all *names) *tally {
	t := newTally(c.Engine, c.Sampled(), all)
	buckets := map[time.Duration]map[string]float64{}
	var callers []caller
	c.Attributed(func(s stacks.Sample, a hotcode.Attribution) {
		callers = callers[:0]
		for _, x := range a.Callers {
			number := caller(all.of(x.Name) << 1)
			if x.Inlined {
				number++
			}
			callers = append(callers, number)
		}
		x := call{
			name: all.of(a.Name), inlined: a.Inlined, above: callers, n: float64(s.Count),
			inKernel: len(s.Stack) > 0 && c.Frames[s.Stack[0]].Kind == stacks.Kernel,
		}
		t.add(x)
		if buckets[s.At] == nil {
			buckets[s.At] = map[string]float64{}
		}
		buckets[s.At][all.list[x.name]] += x.n
	})
	t.clumps = t.clustering(buckets)
	return t
}

// clustering compares the scatter of the counts from second to second with that of independent samples (Pearson's
// chi-square per degree of freedom, over the methods with enough samples): samples of a program that does one thing
// for a second and another in the next say less than their number suggests.
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

// but returns a tally without the samples that have one of these methods on the stack.
func (t *tally) but(without map[string]bool) *tally {
	if len(without) == 0 {
		return t
	}
	out := newTally(t.engine, t.seconds, t.names)
	set := t.names.set(without)
	for _, c := range t.calls {
		if !c.below(set) {
			out.add(c)
		}
	}
	out.total = t.total
	return out
}

func square(x float64) float64 { return x * x }
