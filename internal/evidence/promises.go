package evidence

import (
	"math"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// The laws that promises follow from.
const (
	// for code, by its share of the CPU time (G. Amdahl, AFIPS Spring Joint Computer Conference, 1967)
	lawAmdahl = "Amdahl's law"
	// J. Little, Operations Research 9, 1961
	lawLittle = "Little's law"
	// P. Denning and J. Buzen, The Operational Analysis of Queueing Network Models, ACM Computing Surveys 10, 1978
	lawBounds = "operational bounds"
	// for what happens for no other reason
	lawGone = "its cause is gone"
)

// A Part is a share that goes away, of the CPU time or of the time of requests, with its bounds.
type Part struct {
	Share, Low, High float64
	// Alone reports that nothing else goes away with it. The change that removes the code or the wait may remove more
	// than its own share: garbage, page faults, what its callers did for it, what a lock's holder did under it.
	Alone bool
}

// partOf returns the part of the CPU time that goes into some functions with what they call.
func partOf(c *hotcode.CPU, frames stacks.Set) Part {
	var in stacks.Weight
	for _, s := range c.Samples {
		if s.Innermost(frames) >= 0 {
			in.Add(s)
		}
	}
	n := c.Profile.Total().Count
	if in.Count == 0 || n < in.Count || c.Total() <= 0 {
		return Part{}
	}
	low, high := hotcode.Interval(in.Count, n)
	share := float64(in.Value) / 1e9 / c.Total()
	scale := share * float64(n) / float64(in.Count) // the samples cover a part of the CPU time
	return Part{Share: share, Low: low * scale, High: min(1, high*scale)}
}

// Times returns what goes away if the code itself takes so much less, and all else stays.
func (a Part) Times(x float64) Part {
	return Part{Share: a.Share * x, Low: a.Low * x, High: a.High * x, Alone: true}
}

// rest returns what is left: [low, expected, high].
func (a Part) rest() [3]float64 {
	low := 0.0
	if a.Alone {
		low = 1 - min(a.High, 1)
	}
	return [3]float64{low, 1 - min(a.Share, 1), 1 - min(a.Low, 1)}
}

// of returns the part as a share of something x times smaller.
func (a Part) of(x float64) Part {
	return Part{Share: a.Share * x, Low: a.Low * x, High: a.High * x, Alone: a.Alone}
}

// served is what a target does for its clients. Promises are made from it.
type served struct {
	requests, inProgress, cpu, time keynumber.Estimate // cpu and time: per request
	known                           map[string]bool    // by metric
	guest                           bool
	connections                     float64 // of clients, mean
	cpus, busy                      float64 // of the host: online, and in use
	used                            float64 // CPUs that the target used
	fullest                         float64 // CPUs of its busiest thread

	// If a target serves nobody and counts what it does, the units in progress are its threads with work.
	job      bool
	occupied float64 // share of the time in which its workers have work
	looks    float64 // samples of its threads
}

// servedOf reads the served once for all checks.
func servedOf(p *check.Pass) *served {
	l, _ := LedgerOf(p)
	return check.Shared(p, func(rec *recording.Recording) *served { return readServed(rec, l) })
}

func readServed(rec *recording.Recording, l *ledger.Ledger) *served {
	s := &served{known: map[string]bool{}, guest: keynumber.IsGuest(rec)}
	if rec.Meta.Target.Kind == "host" { // it serves nobody by itself
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
	s.ofJob(rec, l)
	return s
}

// ofJob reads what is in progress in a target without clients, by its threads. It leaves out pools that use less than
// half of their time, such as a runtime's own: they do not do its work.
func (s *served) ofJob(rec *recording.Recording, l *ledger.Ledger) {
	if l == nil || l.Window <= 0 || !s.known[check.Throughput] || len(rec.Info(metric.TargetListenPorts)) > 0 {
		return
	}
	const inUse = 0.5
	working, workers := 0.0, 0.0
	for _, pool := range l.Pools {
		if n := pool.Working(); n >= inUse*pool.Workers {
			working, workers = working+n, workers+pool.Workers
		}
	}
	if working == 0 {
		return
	}
	n := working / l.Window
	s.job, s.occupied, s.looks, s.known["in_progress"] = true, working/workers, float64(l.Passes), true
	s.inProgress = keynumber.Estimate{Mean: n, Low: n, High: n, DF: s.requests.DF}
}

// saturating is the share of the clients' connections waiting for an answer from which on there is always more to do:
// with one in ten free on average, hardly ever are all of them free.
const saturating = 0.9

// saturated reports whether clients ask for more than is answered, or a job always has more to do: only then can
// throughput rise.
func (s *served) saturated() bool {
	if s.job {
		return s.occupied >= saturating
	}
	return s.known[check.Throughput] && s.known["in_progress"] && s.connections >= 1 &&
		s.inProgress.Mean >= saturating*s.connections
}

// full is the use of a CPU, or of all, from which on nothing is left of it.
const full = 0.9

// promise makes a promise from a law's factors [low, expected, high]. The error combines the error of the measurement
// with the spread between two runs of one program. If the error may take more than half of the gain, nothing is
// promised: an interval from almost as it is to almost nothing always holds.
func (s *served) promise(name string, e keynumber.Estimate, spread float64, by [3]float64, law string,
) []check.Promise {
	if !s.known[name] {
		return nil
	}
	const certainty = 0.95 // on each side
	err := keynumber.StudentQuantile(certainty, e.DF) * math.Hypot(e.StdErr/e.Mean, math.Sqrt2*spread)
	out := check.Promise{
		Metric: name, Unit: quantity.Seconds, From: e.Mean, Expect: e.Mean * by[1], Law: law,
		To: check.Bounds{e.Mean * by[0] / (1 + err), e.Mean * by[2] * (1 + err)},
	}
	gain, least := out.From-out.Expect, out.From-out.To[1]
	if name == check.Throughput {
		out.Unit, gain, least = "1/s", out.Expect-out.From, out.To[0]-out.From
	}
	if gain <= 0 || least < leastGain*gain {
		return nil
	}
	return []check.Promise{out}
}

// leastGain is the part of the gain below which the lower bound is too small to be worth a promise.
const leastGain = 0.4

// WithoutCPU promises the effect of removing a part of the target's CPU time: less of it per request, and more
// requests if a CPU is what they wait for.
func WithoutCPU(p *check.Pass, f *check.Finding, a Part) {
	s := servedOf(p)
	f.Promise(s.promise(check.CPUPerRequest, s.cpu, keynumber.SpreadOfCPU(s.guest), a.rest(), lawAmdahl)...)
	if !s.saturated() || s.busy < full*s.cpus && s.fullest < full {
		return
	}
	time := a // if requests wait for a CPU, their time shrinks with the CPU time they take
	if s.job {
		time = a.of(s.used / s.inProgress.Mean) // what its other threads take is in no unit's time
	}
	f.Promise(s.more(time, s.cpu.Mean*a.Share, lawAmdahl)...)
}

// replaced is the share of the old code's time that the code of a fix takes, at most. docs/accuracy.md has the CPU
// time of 36 such fixes: 30 took less than a tenth, four between a tenth and a quarter, and two more.
const replaced = 0.25

// WithoutCode is WithoutCPU for code that is replaced by other code.
func WithoutCode(p *check.Pass, f *check.Finding, a Part) {
	a.Low *= 1 - replaced
	WithoutCPU(p, f, a)
}

// connecting are the kernel functions that open and close connections, and that answer the peer that does
// (net/socket.c, net/ipv4/tcp_input.c and tcp_minisocks.c, Linux 6.18).
var connecting = hotcode.ParsePatterns("__sys_socket", "__sys_bind", "__sys_connect", "__sys_accept4", "__sock_release",
	"tcp_conn_request", "tcp_check_req")

// WithoutConnecting promises the effect of keeping connections open: it saves the CPU time for opening and closing
// the target's connections. The time of the other side and of a handshake in user mode goes with it.
func WithoutConnecting(p *check.Pass, f *check.Finding) {
	c, ok := hotcode.CodeOf(p.Recording)
	if !ok {
		return
	}
	frames, _ := hotcode.Frames(c.Profile, connecting)
	WithoutCPU(p, f, partOf(c, frames))
}

// WithoutWait promises the effect of removing a part of the time of requests: shorter requests, and more of them if
// clients ask again at once.
func WithoutWait(p *check.Pass, f *check.Finding, a Part) {
	s := servedOf(p)
	spread := keynumber.SpreadOfProgress + keynumber.SpreadOfLoad
	f.Promise(s.promise(check.RequestTime, s.time, spread, s.shorter(a), lawLittle)...)
	if s.saturated() {
		f.Promise(s.more(a, 0, lawLittle)...)
	}
}

// WithoutThreads promises the effect if so many threads, or connections, that work on requests no longer wait.
func WithoutThreads(p *check.Pass, f *check.Finding, waiting float64) {
	WithoutWait(p, f, WaitPart(p, waiting))
}

// shorter returns what is left of the time of a request. It is at least the CPU time of the request and, if clients
// ask again at once, at most the time if all requests queue for a CPU.
func (s *served) shorter(a Part) [3]float64 {
	rest := a.rest()
	if s.known[check.CPUPerRequest] && s.time.Mean > 0 {
		rest[1] = max(rest[1], min(1, s.cpu.Mean/s.time.Mean))
	}
	if s.saturated() && s.cpus > 0 && s.requests.Mean > 0 && s.time.Mean > 0 {
		rest[2] += s.behind(s.busy/s.requests.Mean) / s.time.Mean
	}
	rest[2] = max(rest[1], rest[2])
	return rest
}

// behind returns the time in seconds that a request waits if all others are ahead of it, each with so much CPU time.
func (s *served) behind(each float64) float64 { return each / s.cpus * max(s.inProgress.Mean-1, 0) }

// Gone promises that a share with a single cause drops to zero or almost zero: a limit stops nobody once it is gone,
// and nobody repeats what is answered.
func Gone(p *check.Pass, f *check.Finding, name string) {
	n, ok := keynumber.NewSource(p.Recording, keynumber.Told{}).Number(name)
	if !ok || n.Estimate.Low < 2*n.Floor {
		return
	}
	f.Promise(check.Promise{
		Metric: name, Unit: n.Unit, From: n.Estimate.Mean, To: check.Bounds{0, n.Floor}, Law: lawGone,
	})
}

// WaitPart returns the part of the time of requests in which so many of them wait, with the error of the requests in
// progress: both are means of the same samples. It is zero if the wait is not of requests alone.
func WaitPart(p *check.Pass, waiting float64) Part {
	s := servedOf(p)
	n := s.inProgress
	if !s.known["in_progress"] || waiting > mostOwned*n.Mean {
		return Part{}
	}
	share := min(1, waiting/n.Mean)
	if s.job {
		low, high := hotcode.Interval(int64(share*s.looks), int64(max(s.looks, 1)))
		return Part{Share: share, Low: min(low, share), High: max(high, share)}
	}
	return Part{
		Share: share, Low: share * n.Mean / max(n.High, n.Mean),
		High: min(1, share*n.Mean/max(n.Low, share*n.Mean)),
	}
}

// more promises throughput without a part of the time of a request, if clients ask again at once: the requests in
// progress are answered in what is left of that time, up to what the host's CPUs can do. saved is the CPU time in
// seconds that each request saves. The lower bound assumes that all requests queue for a CPU; there is an upper bound
// only if nothing else goes away with the part.
func (s *served) more(a Part, saved float64, law string) []check.Promise {
	x, n, rest := s.requests.Mean, s.inProgress.Mean, a.rest()
	each := s.busy/x - saved // CPU time of the host for each request, then
	if s.busy == 0 || s.cpus == 0 || each <= 0 || rest[1] <= 0 {
		return nil
	}
	most := s.cpus / each
	by := [3]float64{n / (n/x*rest[2] + s.behind(each)) / x, min(1/rest[1], most/x), most / x}
	if rest[0] > 0 {
		by[2] = min(1/rest[0], by[2])
	}
	if !a.Alone {
		by[2] = math.Inf(1)
	}
	by[0] = min(by[0], by[1])
	out := s.promise(check.Throughput, s.requests, s.spreadOfLoad(), by, law)
	if len(out) > 0 && most/x <= 1/rest[1] {
		out[0].Law, out[0].Next = law+", "+lawBounds, "CPU"
	}
	return out
}

// spreadOfLoad returns the spread between two runs of what clients get done: for a program that uses a CPU in a
// virtual machine, it grows with the spread of the CPU time (docs/decisions/0070).
func (s *served) spreadOfLoad() float64 {
	spread := keynumber.SpreadOfLoad
	if s.guest {
		spread += keynumber.SpreadOfCPU(true) * min(s.used, 1)
	}
	return spread
}

// WithQuota promises the effect of a higher CPU limit, if clients ask for more and the target uses all it is allowed:
// more requests as the limit rises, up to the host's CPUs. There is no upper bound: a program that is stopped and
// resumed takes more CPU time for a request than one that is not.
func WithQuota(p *check.Pass, f *check.Finding, use, to float64) {
	s := servedOf(p)
	if !s.saturated() || use <= 0 || s.busy == 0 || s.cpus == 0 {
		return
	}
	x, n := s.requests.Mean, s.inProgress.Mean
	most := s.cpus / (s.busy / x) / x     // as a factor: all that the host does grows with the requests
	alone := min(to, 1) / use             // one request at a time uses one CPU
	together := min(min(to, n)/use, most) // each has a CPU
	f.Promise(s.promise(check.Throughput, s.requests, s.spreadOfLoad(),
		[3]float64{min(alone, together), together, math.Inf(1)}, lawBounds)...)
	if i := len(f.Promises) - 1; i >= 0 && most < to/use {
		f.Promises[i].Next = "CPU"
		f.Promise()
	}
}
