package lab

import (
	"maps"
	"math/bits"
	"sync"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/lab/load"
)

// Stats is what a load has done so far.
type Stats struct {
	Addr      string            // a server's address, with the port the kernel chose
	Conns     uint64            // TCP connections established or accepted
	Units     uint64            // units of work done, see the options of each load; Latency and PerSecond count these
	Errors    map[string]uint64 // by errno name, such as EADDRNOTAVAIL; "EOF" when the peer closed too early
	PerSecond []uint64          // units done in each second since the start
	Latency   Latency
	Times     map[int]uint64 `json:",omitempty"` // units by the bucket of their time, for [Stats.LatencySince]
	Elapsed   time.Duration
	Ready     bool // the load has begun: a server listens
	Done      bool // the load has ended: the other fields are final

	Live string       `json:",omitempty"` // the last live line of a load.Plan
	Load *load.Result `json:",omitempty"` // the result of a load.Plan; nil until Done
}

// ErrorCount returns the number of errors of all kinds.
func (s Stats) ErrorCount() uint64 {
	var sum uint64
	for n := range maps.Values(s.Errors) {
		sum += n
	}
	return sum
}

// LatencySince describes the units done since an earlier report. ok is false if there were none.
func (s Stats) LatencySince(before Stats) (l Latency, ok bool) {
	var h histogram
	var count uint64
	for bucket, n := range s.Times {
		if n -= min(n, before.Times[bucket]); n > 0 && bucket >= 0 && bucket < len(h) {
			h[bucket], count = n, count+n
		}
	}
	return Latency{
			P50: h.quantile(0.5, count), P90: h.quantile(0.9, count), P99: h.quantile(0.99, count),
			Max: h.quantile(1, count),
		},
		count > 0
}

// EachTime calls take with the units done so far by their time: how many took at most that long. 16 bounds divide
// each power of two, so a bound is at most a sixteenth too high. The calls come in no particular order.
func (s Stats) EachTime(take func(atMost time.Duration, units uint64)) {
	const finer = subBuckets / 16
	coarse := map[int]uint64{}
	for bucket, n := range s.Times {
		coarse[bucket/finer] += n
	}
	for bucket, n := range coarse {
		take(upperBound(bucket*finer+finer-1), n)
	}
}

// Latency describes the time of a unit from when it was due, not from when a late generator began it. Percentiles are
// the upper bounds of histogram buckets, at most 1/64 too high.
type Latency struct {
	P50, P90, P99, Max time.Duration
}

// subBuckets divides each power of two of nanoseconds: 64 buckets have an error of 1.6 %, well below the difference
// between two runs.
const (
	subBits    = 6
	subBuckets = 1 << subBits
)

// histogram has subBuckets buckets for each power of two up to 2^63 ns.
type histogram [(64 - subBits + 1) * subBuckets]uint64

func bucketOf(d time.Duration) int {
	n := uint64(max(d, 0))
	if n < subBuckets {
		return int(n)
	}
	shift := bits.Len64(n) - subBits - 1
	return (shift+1)*subBuckets + int(n>>shift) - subBuckets
}

// upperBound returns the largest duration of a bucket.
func upperBound(bucket int) time.Duration {
	if bucket < subBuckets {
		return time.Duration(bucket)
	}
	shift := bucket/subBuckets - 1
	return time.Duration((uint64(bucket%subBuckets+subBuckets)+1)<<shift - 1)
}

// times returns the buckets that are not empty.
func (h *histogram) times() map[int]uint64 {
	out := map[int]uint64{}
	for bucket, n := range h {
		if n > 0 {
			out[bucket] = n
		}
	}
	return out
}

func (h *histogram) quantile(q float64, count uint64) time.Duration {
	if count == 0 {
		return 0
	}
	rank := uint64(q*float64(count-1)) + 1
	var seen uint64
	for bucket, n := range h {
		seen += n
		if seen >= rank {
			return upperBound(bucket)
		}
	}
	return upperBound(len(h) - 1)
}

// recorder gathers Stats from many goroutines.
type recorder struct {
	mu    sync.Mutex
	start time.Time
	stats Stats
	hist  histogram

	look func(*Stats) // fills in what package load counts; nil: nothing
}

func newRecorder() *recorder {
	return &recorder{start: time.Now(), stats: Stats{Errors: map[string]uint64{}}}
}

func (r *recorder) ready(addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Addr, r.stats.Ready = addr, true
}

func (r *recorder) conn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Conns++
}

// unit counts one unit of work that was due at due and is now done.
func (r *recorder) unit(due time.Time) {
	now := time.Now()
	took := now.Sub(due)
	second := int(now.Sub(r.start) / time.Second)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Units++
	r.hist[bucketOf(took)]++
	r.stats.Latency.Max = max(r.stats.Latency.Max, took)
	for len(r.stats.PerSecond) <= second {
		r.stats.PerSecond = append(r.stats.PerSecond, 0)
	}
	r.stats.PerSecond[second]++
}

func (r *recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Errors[load.ErrorName(err)]++
}

func (r *recorder) lookAt(look func(*Stats)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look = look
}

func (r *recorder) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Done = true
	r.stats.Elapsed = time.Since(r.start)
}

func (r *recorder) snapshot() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	s.Errors = maps.Clone(s.Errors)
	s.PerSecond = append([]uint64(nil), s.PerSecond...)
	if !s.Done {
		s.Elapsed = time.Since(r.start)
	}
	if r.look != nil {
		r.look(&s)
		return s
	}
	s.Latency.P50 = min(r.hist.quantile(0.50, s.Units), s.Latency.Max)
	s.Latency.P90 = min(r.hist.quantile(0.90, s.Units), s.Latency.Max)
	s.Latency.P99 = min(r.hist.quantile(0.99, s.Units), s.Latency.Max)
	s.Times = r.hist.times()
	return s
}
