package keynumber

import (
	"maps"
	"math"
	"net/netip"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// leastWork is the rate in 1/s from which on segments stand for requests: a health check every few seconds is no
// load.
const leastWork = 1

// Work is what the target did: requests, if the caller knows them or those of a load generator are recorded, else
// what it answered on its own ports. It does not include what others in its network namespace send.
type Work struct {
	PerSecond float64
	Recorded  bool // there is a rate; a rate of segments may be too low to stand for requests
	Counted   bool // clients counted requests
	curve     curve
}

// Known reports whether there is something that stands for requests.
func (w *Work) Known() bool { return w.Counted || w.Recorded && w.PerSecond >= leastWork }

// Work returns what the target did.
func (s *Source) Work() Work {
	w := Work{curve: s.answered()}
	w.Counted = w.curve.total() > 0
	if !w.Counted {
		w.curve = s.served()
	}
	w.PerSecond, w.Recorded = w.curve.perSecondTotal(), len(w.curve.at) > 1
	return w
}

// served returns what was answered on the target's own ports, at most: for each connection the lesser of the data
// segments received and sent. Connections are read while they live. When one ends, its number moves from that sum
// into the kernel's count of ended ones, so both together only rise. It is empty if connections come and go and
// nothing counts the ended ones.
func (s *Source) served() curve {
	own, ports := s.listeners()
	var living []recording.GaugeSeries
	for listener := range own {
		living = append(living, s.rec.Gauge(metric.ListenerSegments, "listener", listener)...)
	}
	var list []recording.CounterSeries
	for _, c := range s.rec.Counter(metric.ConnectionTurns, "netns", metric.NetNSTarget, "side", "server") {
		if at, err := netip.ParseAddrPort(c.Label("endpoint")); err == nil && ports[at.Port()] {
			list = append(list, c)
		}
	}
	if len(own) == 0 || !s.rec.Recorded(metric.ConnectionTurns) && s.accepts() {
		return curve{}
	}
	return steps(living, s.ended(list))
}

// ended adds up what ended connections had answered. It is empty if nothing counted.
func (s *Source) ended(turns []recording.CounterSeries) curve {
	if !s.rec.Recorded(metric.ConnectionTurns) {
		return curve{}
	}
	return s.connections(turns)
}

// accepts reports whether the target accepts connections that end unseen: one a second and more, too many for the
// living ones to make up for.
func (s *Source) accepts() bool {
	opened := sumOf(s.rec.Counter(metric.TCPPassiveOpens, "netns", metric.NetNSTarget))
	return opened.perSecondTotal() >= leastWork
}

// steps adds up the steps upwards of the living connections and the ended ones together. A step downwards comes from
// connections that ended uncounted: nothing distinguishes a client from a listener that has accepted none since.
func steps(living []recording.GaugeSeries, ended curve) curve {
	sums := map[float64]float64{}
	for _, g := range living {
		for _, p := range g.Points {
			sums[p.At.Seconds()] += p.Value
		}
	}
	if len(sums) == 0 {
		return ended
	}
	rises, last, known := map[float64]float64{}, 0.0, false
	for _, at := range slices.Sorted(maps.Keys(sums)) {
		now := sums[at]
		if len(ended.at) > 0 {
			if at < ended.at[0] {
				continue
			}
			now += ended.value(at)
		}
		rises[at] = 0
		if known {
			rises[at] = max(now-last, 0)
		}
		last, known = now, true
	}
	return cumulated(rises)
}

// Answered returns how many requests a second the target answered on its own ports, at most, while it was observed; 0
// if there were none, or that is not known.
func (s *Source) Answered() float64 { return s.served().perSecondTotal() }

// listeners returns the target's own listeners and their ports: one that listens on all addresses has connections at
// each.
func (s *Source) listeners() (own map[string]bool, ports map[uint16]bool) {
	own, ports = map[string]bool{}, map[uint16]bool{}
	for _, l := range s.rec.Info(metric.TargetListenPorts) {
		own[l.Label("listener")] = true
		if at, err := netip.ParseAddrPort(l.Label("listener")); err == nil {
			ports[at.Port()] = true
		}
	}
	return own, ports
}

// noWork says why a number per request is not known.
const noWork = "how many requests there were is not known (--requests)"

func (s *Source) perWork(c curve) ([]Interval, string) {
	w := s.Work()
	if !w.Known() {
		return nil, noWork
	}
	return c.per(w.curve), notRecorded
}

func (s *Source) cpuPerWork() ([]Interval, string) { return s.perWork(s.cpu()) }

func (s *Source) workRate() ([]Interval, string) {
	w := s.Work()
	if !w.Known() {
		return nil, noWork
	}
	return w.curve.perSecond(), ""
}

// failures returns the requests that clients counted as failed, out of all they tried.
func (s *Source) failures() ([]Interval, string) {
	failed, answered := counters(s.rec, metric.LoadErrors), counters(s.rec, metric.LoadRequests)
	list := failed.per(answered)
	for i := range list {
		list[i].Base += list[i].Num
	}
	return list, "no load generator's errors are in the recording"
}

// inProgress returns the requests without an answer. By Little's law (J. Little, Operations Research 9, 1961) the
// requests that ended in a second took together as many seconds as there were requests in progress, on average. If no
// client measured their times, the sockets of the target's own ports show how many connections have an answer due or
// wait to be accepted.
func (s *Source) inProgress() ([]Interval, string) {
	if series := s.rec.Counter(metric.LoadDurations); len(series) > 0 {
		return littles(series), "there are too few samples of it"
	}
	return s.owing(metric.ListenerOwes, metric.ListenerQueue), notRecorded
}

// owing adds up what the sockets of the target's own ports show about requests without an answer.
func (s *Source) owing(states ...*metric.Gauge) []Interval {
	own, _ := s.listeners()
	var list []recording.GaugeSeries
	for listener := range own {
		for _, state := range states {
			list = append(list, s.rec.Gauge(state, "listener", listener)...)
		}
	}
	return Readings(list)
}

// Owing returns how many requests lack an answer or the end of one, by the sockets if they show it. It leaves out
// requests that a client has not sent yet because all of its connections wait. ok is false if nothing shows it.
func (s *Source) Owing() (e Estimate, ok bool) {
	if e, ok = Mean(s.owing(metric.ListenerOwes, metric.ListenerQueue, metric.ListenerHeld)); ok {
		return e, true
	}
	return s.Estimate("in_progress")
}

// littles returns for each interval the seconds that the requests ending in it took, over its length. A series that
// begins later than the others began at zero.
func littles(series []recording.CounterSeries) []Interval {
	first := math.Inf(1)
	for _, c := range series {
		first = min(first, c.Points[0].At.Seconds())
	}
	seconds := map[float64]float64{first: 0}
	for _, c := range series {
		last, bound := 0.0, boundOf(c.Series)
		for i, p := range c.Points {
			at := p.At.Seconds()
			if n := rise(last, p.Value); n > 0 && (i > 0 || at > first) && !math.IsInf(bound, 1) {
				seconds[at] += n * bound
			} else {
				seconds[at] += 0
			}
			last = p.Value
		}
	}
	return cumulated(seconds).perSecond()
}
