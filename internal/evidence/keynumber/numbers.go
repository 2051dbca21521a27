package keynumber

import (
	"cmp"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// Better is the direction in which a number should go.
type Better string

// The directions. Neither is for numbers that follow the load, such as requests per second: more of them does not
// mean a better program.
const (
	Less    Better = "less"
	More    Better = "more"
	Neither Better = ""
)

// A Number is one of the key numbers of a recording.
type Number struct {
	Name     string        `json:"name"`
	Label    string        `json:"label"`
	Unit     quantity.Unit `json:"unit"`
	Better   Better        `json:"better,omitempty"`
	Floor    float64       `json:"-"`     // below it the number counts as zero, whatever its ratio to another
	Estimate *Estimate     `json:"value"` // nil where it is not known
	Reason   string        `json:"-"`     // why it is not known
	Series   []float64     `json:"-"`     // one value per interval
}

// A measure is how a number is computed.
type measure struct {
	name, label string
	unit        quantity.Unit
	better      Better
	floor       float64 // as in [Number]
	of          func(*Source) ([]Interval, string)
}

// tiny is a pause per request, in seconds, too short to notice: a hundredth of the millisecond of a fast request.
const tiny = 10e-6

// measures lists the key numbers, in the order of the report. Numbers that grow with the work have a direction only
// per request: a program that does more in a second also collects more garbage in it.
func measures() []measure {
	return []measure{
		{"cpu_per_request", "CPU time per request", quantity.Seconds, Less, 0, (*Source).cpuPerWork},
		{"ipc", "instructions per cycle", quantity.None, More, 0, (*Source).ipc},
		{"errors", "requests that failed", quantity.Ratio, Less, 0.001, (*Source).failures},
		{"request_p50", "request p50, second by second", quantity.Seconds, Less, 1e-3, (*Source).requestP50},
		{"request_p99", "request p99, second by second", quantity.Seconds, Less, 1e-3, (*Source).requestP99},
		{"exchange_p50", "answer p50, as the server", quantity.Seconds, Less, 1e-3, (*Source).exchangeP50},
		{"exchange_p99", "answer p99, as the server", quantity.Seconds, Less, 1e-3, (*Source).exchangeP99},
		{"throttled_share", "throttled periods of the quota", quantity.Ratio, Less, 0.01, (*Source).throttled},
		{"slow_connects", "connects over the p99 before", quantity.Ratio, Less, 0.02, (*Source).slowConnects},
		{"slow_cpu_waits", "waits for a CPU over the p99 before", quantity.Ratio, Less, 0.02, (*Source).slowWaits},
		{"cpu_wait", "CPU wait per CPU-second used", quantity.Seconds, Less, 0.2, (*Source).cpuWait},
		{"gc_per_request", "GC pauses per request", quantity.Seconds, Less, tiny, (*Source).gcPerWork},
		{"safepoint_per_request", "safepoints per request", quantity.Seconds, Less, tiny, (*Source).safepointPerWork},
		{"retransmitted_share", "TCP retransmits", quantity.Ratio, Less, 0.002, (*Source).retransmits},
		{"connects_failed_share", "connects that failed", quantity.Ratio, Less, 0.001, (*Source).connectFailures},
		{"major_faults", "page faults that waited for a disk", "faults/s", Less, 5, (*Source).majorFaults},
		{"requests", "requests", "1/s", Neither, 1, (*Source).workRate},
		{"in_progress", "requests in progress", quantity.None, Neither, 0.5, (*Source).inProgress},
		{"cpu_used", "CPUs used by the target", quantity.CPUs, Neither, 0.02, (*Source).cpuUsed},
		{"gc_share", "time in GC pauses", quantity.Ratio, Neither, 0.01, (*Source).gcShare},
		{"safepoint_share", "time at safepoints", quantity.Ratio, Neither, 0.01, (*Source).safepointShare},
		{"switches", "context switches per CPU second", "1/s", Neither, 100, (*Source).switches},
		{"switches_per_request", "context switches per request", quantity.None, Neither, 1, (*Source).switchesPerWork},
		{"resident", "resident memory", quantity.Bytes, Neither, 1 << 20, (*Source).resident},
	}
}

// Numbers returns all key numbers of a source, including the unknown ones.
func (s *Source) Numbers() []Number {
	var out []Number
	for _, m := range measures() {
		out = append(out, s.number(m))
	}
	return out
}

func (s *Source) number(m measure) Number {
	list, why := m.of(s)
	n := Number{Name: m.name, Label: m.label, Unit: m.unit, Better: m.better, Floor: m.floor}
	switch {
	case m.name == "slow_connects" && s.slowConnect > 0:
		n.Label = tailLabel("connects", s.slowConnect)
	case m.name == "slow_cpu_waits" && s.slowWait > 0:
		n.Label = tailLabel("waits for a CPU", s.slowWait)
	}
	if e, ok := Mean(list); ok {
		n.Estimate, n.Series = &e, values(list)
	} else {
		n.Reason = cmp.Or(why, "there are too few samples of it")
	}
	return n
}

// Estimate returns one of the key numbers, or [RequestTime]; ok is false if it is not known.
func (s *Source) Estimate(name string) (e Estimate, ok bool) {
	if name == RequestTime {
		n, known := s.Owing()
		rate, ok := s.Estimate("requests")
		if !known || !ok || rate.Mean <= 0 {
			return e, false
		}
		return n.over(rate), true
	}
	if n, ok := s.Number(name); ok {
		return *n.Estimate, true
	}
	return e, false
}

// Number returns one of the key numbers; ok is false if it is not known.
func (s *Source) Number(name string) (n Number, ok bool) {
	for _, m := range measures() {
		if m.name == name {
			n = s.number(m)
			return n, n.Estimate != nil
		}
	}
	return n, false
}

// RequestTime is the mean time of a request in seconds: by Little's law (J. Little, Operations Research 9, 1961) the
// number in progress over the number answered per second.
const RequestTime = "request_time"

// Of returns the known key numbers of a recording. It drops sums that are not finite, as a made-up recording can
// have.
func Of(rec *recording.Recording) []Number {
	out := []Number{}
	for _, n := range NewSource(rec, Told{}).Numbers() {
		if n.Estimate != nil && n.Estimate.finite() {
			out = append(out, n)
		}
	}
	return out
}

func values(list []Interval) []float64 {
	var out []float64
	for _, o := range list {
		if o.Base > 0 {
			out = append(out, o.Num/o.Base)
		}
	}
	return out
}
