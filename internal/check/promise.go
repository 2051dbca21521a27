package check

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// A Promise is the predicted value of a number under the same load, once what a finding names is gone. It is derived
// from the recording alone, and a comparison checks it (docs/decisions/0077).
type Promise struct {
	Metric string        `json:"metric"` // cpu_per_request, request_time or requests
	Unit   quantity.Unit `json:"unit"`
	From   float64       `json:"from"`   // as it was measured
	Expect float64       `json:"expect"` // what the law predicts
	// To is the 90 % confidence bounds that follow from the law and the errors of measurement.
	To   Bounds `json:"to"`
	Law  string `json:"law"`                  // what it follows from
	Next string `json:"next_limit,omitempty"` // what holds it back then, if that is known
}

// Bounds are a lower and an upper bound. The upper bound is infinite, and null in JSON, if the law gives none.
type Bounds [2]float64

// Hold reports whether a value is within the bounds.
func (b Bounds) Hold(x float64) bool { return x >= b[0] && x <= b[1] }

// MarshalJSON writes [low, high].
func (b Bounds) MarshalJSON() ([]byte, error) {
	if math.IsInf(b[1], 1) {
		return json.Marshal([2]any{b[0], nil})
	}
	return json.Marshal([2]float64(b))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (b *Bounds) UnmarshalJSON(text []byte) error {
	var read [2]*float64
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*b = Bounds{0, math.Inf(1)}
	for i, x := range read {
		if x != nil {
			b[i] = *x
		}
	}
	return nil
}

// The metrics that promises are about.
const (
	CPUPerRequest = "cpu_per_request"       // seconds of the target's CPU time
	RequestTime   = "request_time"          // seconds, on average
	Throughput    = "requests"              // answered in a second
	Throttled     = "throttled_share"       // of the periods of a CPU limit
	Resent        = "retransmitted_share"   // of the TCP segments
	FailedConnect = "connects_failed_share" // of the attempts
)

// promiseLabels are the display names of the metrics.
var promiseLabels = map[string]string{
	CPUPerRequest: "CPU time per request", RequestTime: "time of a request", Throughput: "throughput",
	Throttled: "throttled periods", Resent: "TCP retransmits", FailedConnect: "connects that failed",
}

// Label returns the display name of the metric.
func (p *Promise) Label() string { return promiseLabels[p.Metric] }

// Text returns "throughput 195/s -> 380/s to 410/s (Little's law); next limit: CPU".
func (p *Promise) Text() string {
	s := fmt.Sprintf("%s %s -> %s (%s)", p.Label(), p.Number(p.From), p.Bounds(), p.Law)
	if p.Next != "" {
		s += "; next limit: " + p.Next
	}
	return s
}

// Bounds returns "380/s to 410/s".
func (p *Promise) Bounds() string {
	low, high := p.Number(p.To[0]), p.Number(p.To[1])
	switch {
	case math.IsInf(p.To[1], 1):
		return low + " at least"
	case low == high:
		return "about " + low
	case p.To[0] <= 0:
		return high + " at most"
	}
	return low + " to " + high
}

// Number returns a value of the metric as text.
func (p *Promise) Number(n float64) string {
	text := quantity.Of("", n, p.Unit).Text()
	return strings.Replace(text, " 1/s", "/s", 1)
}

// Promise adds what the finding's best fix brings, and makes it the expected effect of that fix.
func (f *Finding) Promise(promises ...Promise) {
	f.Promises = append(f.Promises, promises...)
	if len(f.Promises) == 0 || len(f.Remedies) == 0 {
		return
	}
	var texts []string
	for i := range f.Promises {
		texts = append(texts, f.Promises[i].Text())
	}
	f.Remedies[0].Effect = strings.Join(texts, "; ")
}
