package load

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Result is what a load has done. Durations are nanoseconds in JSON.
type Result struct {
	Start   time.Time     `json:"start"`
	Elapsed time.Duration `json:"elapsed"` // until the last request ended

	Requests uint64 `json:"requests"` // answered
	Conns    uint64 `json:"conns"`    // connections established, with their TLS handshake
	Resumed  uint64 `json:"resumed"`  // the part of Conns that resumed a TLS session
	// Retries is the number of requests sent again because the server had closed the kept connection before it read
	// them, as RFC 9110 section 9.2.2 lets a client do.
	Retries uint64 `json:"retries"`
	// Unfinished is the number of requests that were due but not answered when the load ended. Latency does not
	// include their waits.
	Unfinished uint64 `json:"unfinished"`
	// Errors counts errors by errno name, such as EADDRNOTAVAIL. ETIMEDOUT includes the plan's own timeout. EOF is a
	// peer that closed too early, and "HTTP 503" an answer.
	Errors map[string]uint64 `json:"errors,omitempty"`

	BytesSent     uint64 `json:"bytes_sent"` // with HTTP heads, without TLS, TCP and IP
	BytesReceived uint64 `json:"bytes_received"`

	// CPU time of the process that made the load. If the load has its own process, that is the cost of the generator.
	// Otherwise it includes whatever else the process did.
	CPUUser   time.Duration `json:"cpu_user"`
	CPUSystem time.Duration `json:"cpu_system"`

	Seconds []Second `json:"seconds"`

	Latency Histogram `json:"latency"` // answered requests, from when they were due
	Connect Histogram `json:"connect"` // from socket() to the connection's use, with the TLS handshake
	Wait    Histogram `json:"wait"`    // from due to begun: the generator's delay, and the wait for a free connection
}

// Second is one second of a load. The last one may be shorter.
type Second struct {
	At       time.Duration     `json:"at"`  // from the load's start to the end of the second
	For      time.Duration     `json:"for"` // its length
	Requests uint64            `json:"requests"`
	Conns    uint64            `json:"conns"`
	Errors   map[string]uint64 `json:"errors,omitempty"`
	P50      time.Duration     `json:"p50"` // of the requests that were answered in this second
	P99      time.Duration     `json:"p99"`
	Max      time.Duration     `json:"max"`
}

// TPS returns the requests answered per second.
func (s Second) TPS() float64 { return rate(s.Requests, s.For) }

// TPS returns the requests answered per second, over the whole load.
func (r Result) TPS() float64 { return rate(r.Requests, r.Elapsed) }

func rate(n uint64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// CPUPerRequest returns the generator's CPU time per answered request, or 0 if there was none.
func (r Result) CPUPerRequest() time.Duration {
	if r.Requests == 0 {
		return 0
	}
	return (r.CPUUser + r.CPUSystem) / time.Duration(r.Requests)
}

// ErrorCount returns the number of errors of all kinds.
func (r Result) ErrorCount() uint64 { return sum(r.Errors) }

func sum(errors map[string]uint64) uint64 {
	var n uint64
	for _, count := range errors {
		n += count
	}
	return n
}

// String returns the live line of the second:
//
//	3s: 9876 TPS, p50 1.2ms, p99 3.4ms, max 9.9ms, 12 connections, 30 EADDRNOTAVAIL
func (s Second) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %.0f TPS", s.At.Round(100*time.Millisecond), s.TPS())
	if s.Requests > 0 {
		fmt.Fprintf(&b, ", p50 %v, p99 %v, max %v", short(s.P50), short(s.P99), short(s.Max))
	}
	if s.Conns > 0 {
		fmt.Fprintf(&b, ", %d connections", s.Conns)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Errors)) {
		fmt.Fprintf(&b, ", %d %s", s.Errors[name], name)
	}
	return b.String()
}

// String returns one line for people:
//
//	510 requests in 2.6s: 196 TPS, p50 1ms p90 2ms p99 3ms p99.9 9ms max 9ms; 4 connections; 11µs CPU each; 30 EOF
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d requests in %v: %.0f TPS", r.Requests, short(r.Elapsed), r.TPS())
	if r.Requests > 0 {
		fmt.Fprintf(&b, ", %v", r.Latency)
	}
	fmt.Fprintf(&b, "; %d connections", r.Conns)
	for _, part := range []struct {
		n    uint64
		name string
	}{{r.Resumed, "resumed"}, {r.Retries, "sent again"}, {r.Unfinished, "unfinished"}} {
		if part.n > 0 {
			fmt.Fprintf(&b, ", %d %s", part.n, part.name)
		}
	}
	if r.Requests > 0 {
		fmt.Fprintf(&b, "; %v CPU each", short(r.CPUPerRequest()))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Errors)) {
		fmt.Fprintf(&b, "; %d %s", r.Errors[name], name)
	}
	return b.String()
}

// Merge adds another load that ran at the same time, as when several processes share one. Each quantile of a second
// becomes the larger of the two: the P99 of both loads together is not above that. CPU times are added, so the two
// loads must be from different processes.
func (r *Result) Merge(other Result) {
	r.Elapsed = max(r.Elapsed, other.Elapsed)
	r.Requests += other.Requests
	r.Conns += other.Conns
	r.Resumed += other.Resumed
	r.Retries += other.Retries
	r.Unfinished += other.Unfinished
	r.BytesSent += other.BytesSent
	r.BytesReceived += other.BytesReceived
	r.CPUUser += other.CPUUser
	r.CPUSystem += other.CPUSystem
	r.Errors = mergeErrors(r.Errors, other.Errors)
	r.Latency.Merge(other.Latency)
	r.Connect.Merge(other.Connect)
	r.Wait.Merge(other.Wait)
	for i, s := range other.Seconds {
		if i == len(r.Seconds) {
			r.Seconds = append(r.Seconds, Second{})
		}
		r.Seconds[i] = r.Seconds[i].merge(s)
	}
}

func (s Second) merge(other Second) Second {
	return Second{
		At: max(s.At, other.At), For: max(s.For, other.For),
		Requests: s.Requests + other.Requests, Conns: s.Conns + other.Conns,
		Errors: mergeErrors(s.Errors, other.Errors),
		P50:    max(s.P50, other.P50), P99: max(s.P99, other.P99), Max: max(s.Max, other.Max),
	}
}

func mergeErrors(a, b map[string]uint64) map[string]uint64 {
	if len(a) == 0 {
		return maps.Clone(b)
	}
	a = maps.Clone(a)
	for name, n := range b {
		a[name] += n
	}
	return a
}
