package evidence

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// A NameServer is a name server that the target asked over UDP in the window.
type NameServer struct {
	Endpoint string                        // ip:port
	Queries  quantity.Value                // sent
	Answers  quantity.Value                // received
	Open     quantity.Value                // queries without an answer at any moment, mean
	Each     quantity.Value                // seconds until the answer; a lower bound if one is missing
	answers  map[string]map[string]float64 // by query type, then by code
}

// NameServerMetrics returns the metrics that [NameServersOf] reads.
func NameServerMetrics() []metric.Metric {
	return []metric.Metric{metric.DNSQueries, metric.DNSAnswers, metric.DNSSeconds, metric.BPFRuns}
}

// NameServersOf returns the name servers that the target waited for, the longest wait first.
func NameServersOf(p *check.Pass) []NameServer {
	began := time.Duration(math.MaxInt64)
	for _, s := range p.Counter(metric.BPFRuns, "program", "ask") {
		began = s.Points[0].At
	}
	var out []NameServer
	for _, s := range p.Counter(metric.DNSSeconds) {
		n := NameServer{Endpoint: s.Label("endpoint"), answers: map[string]map[string]float64{}}
		of := []string{"endpoint", n.Endpoint}
		queries, answers := 0.0, 0.0
		for _, asked := range p.Counter(metric.DNSQueries, of...) {
			queries += riseSince(asked, began)
		}
		for _, answered := range p.Counter(metric.DNSAnswers, of...) {
			rise, of := riseSince(answered, began), answered.Label("type")
			if n.answers[of] == nil {
				n.answers[of] = map[string]float64{}
			}
			n.answers[of][answered.Label("code")] += rise
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

// riseSince returns the increase of a counter; a counter that begins after the time began at zero.
func riseSince(s recording.CounterSeries, began time.Duration) float64 {
	first, last := s.Points[0], s.Points[len(s.Points)-1]
	if first.At > began {
		return last.Value
	}
	return max(0, last.Value-first.Value)
}

// Codes holds how many answers to queries of one type had each code.
type Codes struct {
	Type  string // of the queries: A, AAAA, or other
	count map[string]float64
}

// ByType returns the codes of the answers by query type, in the order of the types' names.
func (n NameServer) ByType() []Codes {
	var list []Codes
	for _, kind := range slices.Sorted(maps.Keys(n.answers)) {
		if c := (Codes{kind, n.answers[kind]}); len(c.Names()) > 0 {
			list = append(list, c)
		}
	}
	return list
}

// All counts the answers.
func (c Codes) All() quantity.Value {
	return c.Of("answers to questions of type "+c.Type, func(string) bool { return true })
}

// Of counts the answers that had one of these codes.
func (c Codes) Of(name string, codes func(code string) bool) quantity.Value {
	sum := 0.0
	for code, n := range c.count {
		if codes(code) {
			sum += n
		}
	}
	return quantity.Of(name, sum, "answers")
}

// Names lists the codes that answers had, the most first.
func (c Codes) Names() []string {
	list := slices.DeleteFunc(slices.Collect(maps.Keys(c.count)), func(code string) bool { return c.count[code] == 0 })
	slices.SortFunc(list, func(a, b string) int {
		return cmp.Or(cmp.Compare(c.count[b], c.count[a]), strings.Compare(a, b))
	})
	return list
}
