package evidence

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// A NameServer is one that the target asked over UDP in the window.
type NameServer struct {
	Endpoint string         // ip:port
	Queries  quantity.Value // that were sent
	Answers  quantity.Value // that came
	Open     quantity.Value // questions without an answer at any moment, mean
	Each     quantity.Value // seconds until the answer; at least, where one has not come
	codes    map[string]float64
}

// NameServerMetrics are what [NameServersOf] reads.
func NameServerMetrics() []metric.Metric {
	return []metric.Metric{metric.DNSQueries, metric.DNSAnswers, metric.DNSSeconds, metric.BPFRuns}
}

// NameServersOf gives the name servers that the target waited for, those first that it waited for longest.
func NameServersOf(p *check.Pass) []NameServer {
	began := time.Duration(math.MaxInt64)
	for _, s := range p.Counter(metric.BPFRuns, "program", "ask") {
		began = s.Points[0].At
	}
	var out []NameServer
	for _, s := range p.Counter(metric.DNSSeconds) {
		n := NameServer{Endpoint: s.Label("endpoint"), codes: map[string]float64{}}
		of := []string{"endpoint", n.Endpoint}
		queries, answers := 0.0, 0.0
		for _, asked := range p.Counter(metric.DNSQueries, of...) {
			queries += riseSince(asked, began)
		}
		for _, answered := range p.Counter(metric.DNSAnswers, of...) {
			rise := riseSince(answered, began)
			n.codes[answered.Label("code")] += rise
			answers += rise
		}
		seconds := s.Points[len(s.Points)-1].At - min(began, s.Points[0].At)
		if queries == 0 || seconds <= 0 {
			continue
		}
		n.Queries = quantity.Of("questions to "+n.Endpoint, queries, "questions")
		n.Answers = quantity.Of("answers of "+n.Endpoint, answers, "answers")
		waited := quantity.Of("time without an answer from "+n.Endpoint, riseSince(s, began), quantity.Seconds)
		n.Open = waited.Per(quantity.Of("window", seconds.Seconds(), quantity.Seconds)).As("questions").
			Named("questions to %s without an answer, mean", n.Endpoint)
		n.Each = waited.Per(n.Queries).As(quantity.Seconds).Named("time of a question to %s, at least", n.Endpoint)
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b NameServer) int {
		return cmp.Or(cmp.Compare(b.Open.Number(), a.Open.Number()), strings.Compare(a.Endpoint, b.Endpoint))
	})
	return out
}

// riseSince is what a counter rose by: one that begins after the time began at zero.
func riseSince(s recording.CounterSeries, began time.Duration) float64 {
	first, last := s.Points[0], s.Points[len(s.Points)-1]
	if first.At > began {
		return last.Value
	}
	return max(0, last.Value-first.Value)
}

// Coded is how many answers had one of these codes.
func (n NameServer) Coded(name string, of func(code string) bool) quantity.Value {
	sum := 0.0
	for code, count := range n.codes {
		if of(code) {
			sum += count
		}
	}
	return quantity.Of(name, sum, "answers")
}

// Codes lists the codes of the answers, the most first.
func (n NameServer) Codes() []string {
	var list []string
	for code := range n.codes {
		if n.codes[code] > 0 {
			list = append(list, code)
		}
	}
	slices.SortFunc(list, func(a, b string) int {
		return cmp.Or(cmp.Compare(n.codes[b], n.codes[a]), strings.Compare(a, b))
	})
	return list
}
