package evidence

import (
	"math"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// The laws that promises follow from.
const (
	// of code by its share of the CPU time (G. Amdahl, AFIPS Spring Joint Computer Conference, 1967)
	lawAmdahl = "Amdahl's law"
	// J. Little, Operations Research 9, 1961
	lawLittle = "Little's law"
	// P. Denning and J. Buzen, The Operational Analysis of Queueing Network Models, ACM Computing Surveys 10, 1978
	lawBounds = "operational bounds"
)

// A Part is a share that goes away, of the CPU time or of the time of requests, with its bounds.
type Part struct {
	Share, Low, High float64
	// Alone tells that nothing else goes with it. What causes the code to go away may take more than its own share:
	// garbage, page faults, what its callers did for it.
	Alone bool
}

// SampledPart is a share that k of n samples show.
func SampledPart(share quantity.Value, k, n int64) Part {
	if k == 0 || n < k {
		return Part{}
	}
	low, high := hotcode.Interval(k, n)
	scale := share.Number() * float64(n) / float64(k) // the samples cover a part of the CPU time
	return Part{Share: share.Number(), Low: low * scale, High: min(1, high*scale)}
}

// Times is what goes away if the code itself takes so much less, and all else stays.
func (a Part) Times(x float64) Part {
	return Part{Share: a.Share * x, Low: a.Low * x, High: a.High * x, Alone: true}
}

// rest is what is left: [low, expected, high].
func (a Part) rest() [3]float64 {
	return [3]float64{1 - min(a.High, 1), 1 - min(a.Share, 1), 1 - a.Low}
}

// served is what a target does for its clients: what promises are made from.
type served struct {
	requests, inProgress, cpu, time keynumber.Estimate // cpu and time: of a request
	known                           map[string]bool    // by metric
	guest                           bool
	connections                     float64 // of clients, mean
	cpus, busy                      float64 // of the host: online, and in use
	used                            float64 // CPUs of the target
	fullest                         float64 // CPUs of its busiest thread
}

// servedOf reads it once for all checks.
func servedOf(p *check.Pass) *served { return check.Shared(p, readServed) }

func readServed(rec *recording.Recording) *served {
	s := &served{known: map[string]bool{}, guest: keynumber.IsGuest(rec)}
	if rec.Meta.Target.Kind == "host" { // serves nobody by itself
		return s
	}
	src := keynumber.NewSource(rec, keynumber.Told{})
	for name, e := range map[string]*keynumber.Estimate{
		check.Throughput: &s.requests, check.CPUPerRequest: &s.cpu, check.RequestTime: &s.time,
	} {
		*e, s.known[name] = src.Estimate(name)
		s.known[name] = s.known[name] && e.Mean > 0
	}
	s.inProgress, s.known["in_progress"] = src.Owing()
	s.known["in_progress"] = s.known["in_progress"] && s.inProgress.Mean > 0
	s.used = s.cpu.Mean * s.requests.Mean
	for _, l := range rec.Info(metric.TargetListenPorts) {
		s.connections += MeanOf(rec.Gauge(metric.ListenerSockets,
			"listener", l.Label("listener"), "state", Established))
	}
	for _, g := range rec.Gauge(metric.CPUsOnline) {
		s.cpus = g.Last()
	}
	if others, ok := src.Others(); ok {
		s.busy = others + s.used
	}
	for _, c := range rec.Counter(metric.ThreadCPU) {
		if r, ok := c.Rate(); ok {
			s.fullest = max(s.fullest, r)
		}
	}
	return s
}

// saturating is the share of the clients' connections that wait for an answer from which on there is always more to
// do: with one in ten free on average, the others hardly ever find all of them so.
const saturating = 0.9

// saturated tells whether clients ask for more than is answered: only then more can be.
func (s *served) saturated() bool {
	return s.known[check.Throughput] && s.known["in_progress"] && s.connections >= 1 &&
		s.inProgress.Mean >= saturating*s.connections
}

// full is the use of a CPU, or of all, from which on there is nothing left of it.
const full = 0.9

// promise makes one of a law's factors [low, expected, high]. The error is that of what was measured, and of two runs
// of one program beside each other. Where it may take more than half of the gain, nothing is promised: an interval from
// almost as it is to almost nothing holds always.
func (s *served) promise(name string, e keynumber.Estimate, spread float64, by [3]float64, law string,
) []check.Promise {
	if !s.known[name] {
		return nil
	}
	const certainty = 0.95 // on each side
	err := keynumber.StudentQuantile(certainty, e.DF) * math.Hypot(e.StdErr/e.Mean, math.Sqrt2*spread)
	out := check.Promise{
		Metric: name, Unit: quantity.Seconds, From: e.Mean, Expect: e.Mean * by[1], Law: law,
		To: [2]float64{e.Mean * by[0] / (1 + err), e.Mean * by[2] * (1 + err)},
	}
	gain, least := out.From-out.Expect, out.From-out.To[1]
	if name == check.Throughput {
		out.Unit, gain, least = "1/s", out.Expect-out.From, out.To[0]-out.From
	}
	if gain <= 0 || least < gain/2 {
		return nil
	}
	return []check.Promise{out}
}

// WithoutCPU promises what comes of it when a part of the target's CPU time goes away: that time of each request, and
// more of them where a CPU is what they wait for.
func WithoutCPU(p *check.Pass, f *check.Finding, a Part) {
	s := servedOf(p)
	cpu := a.rest()
	if !a.Alone {
		cpu[0] = 0
	}
	f.Promise(s.promise(check.CPUPerRequest, s.cpu, keynumber.SpreadOfCPU(s.guest), cpu, lawAmdahl)...)
	if s.saturated() && (s.busy >= full*s.cpus || s.fullest >= full) {
		f.Promise(s.more(a.rest(), s.cpu.Mean*a.Share, lawAmdahl)...)
	}
}

// WithoutWait promises what comes of it when a part of the time of requests goes away: shorter ones, and more of them
// where clients ask again at once.
func WithoutWait(p *check.Pass, f *check.Finding, a Part) {
	s := servedOf(p)
	spread := keynumber.SpreadOfProgress + keynumber.SpreadOfLoad
	f.Promise(s.promise(check.RequestTime, s.time, spread, a.rest(), lawLittle)...)
	if s.saturated() {
		f.Promise(s.more(a.rest(), 0, lawLittle)...)
	}
}

// WaitPart is the part of the time of requests in which so many of them wait, by the error of those in progress: both
// are means of the same looks. It is nothing where a wait is not theirs alone.
func WaitPart(p *check.Pass, waiting float64) Part {
	s := servedOf(p)
	n := s.inProgress
	if !s.known["in_progress"] || waiting > mostOwned*n.Mean {
		return Part{}
	}
	share := min(1, waiting/n.Mean)
	return Part{
		Share: share, Low: share * n.Mean / max(n.High, n.Mean),
		High: min(1, share*n.Mean/max(n.Low, share*n.Mean)),
	}
}

// more promises throughput where clients ask again at once, with what is left of a request: as many as are in progress
// are answered in that time, up to what the host's CPUs can do. saved is the CPU time in seconds that each saves. The
// lower bound is that all of them wait for a CPU behind each other.
func (s *served) more(rest [3]float64, saved float64, law string) []check.Promise {
	x, n := s.requests.Mean, s.inProgress.Mean
	each := s.busy/x - saved // CPU time of the host for each request, then
	if s.busy == 0 || s.cpus == 0 || each <= 0 || rest[1] <= 0 {
		return nil
	}
	most := s.cpus / each
	behind := each / s.cpus * max(n-1, 0)
	by := [3]float64{n / (n/x*rest[2] + behind) / x, min(1/rest[1], most/x), most / x}
	if rest[0] > 0 {
		by[2] = min(1/rest[0], by[2])
	}
	by[0] = min(by[0], by[1])
	out := s.promise(check.Throughput, s.requests, keynumber.SpreadOfLoad, by, law)
	if len(out) > 0 && most/x <= 1/rest[1] {
		out[0].Law, out[0].Next = law+", "+lawBounds, "CPU"
	}
	return out
}

// WithQuota promises what comes of a higher CPU limit, where clients ask for more and the target uses all that it is
// allowed: more requests as the limit rises, up to the host's CPUs.
func WithQuota(p *check.Pass, f *check.Finding, use, to float64) {
	s := servedOf(p)
	if !s.saturated() || use <= 0 || s.busy == 0 || s.cpus == 0 {
		return
	}
	x, n := s.requests.Mean, s.inProgress.Mean
	most := s.cpus / (s.busy / x) / x     // as a factor: all that the host does goes with the requests
	alone := min(to, 1) / use             // one request at a time uses one CPU
	together := min(min(to, n)/use, most) // each has a CPU
	f.Promise(s.promise(check.Throughput, s.requests, keynumber.SpreadOfLoad,
		[3]float64{min(alone, together), together, together}, lawBounds)...)
	if i := len(f.Promises) - 1; i >= 0 && most < to/use {
		f.Promises[i].Next = "CPU"
		f.Promise()
	}
}
