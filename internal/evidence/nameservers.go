package evidence

import (
	"cmp"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
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
	return []metric.Metric{metric.DNSQueries, metric.DNSAnswers, metric.DNSSeconds}
}

// NameServersOf gives the name servers that the target waited for, those first that it waited for longest.
func NameServersOf(p *check.Pass) []NameServer {
	var out []NameServer
	for _, s := range p.Counter(metric.DNSSeconds) {
		endpoint := s.Label("endpoint")
		n := NameServer{Endpoint: endpoint, codes: map[string]float64{}}
		waited, seconds, ok := Rise("time without an answer from "+endpoint,
			p.Counter(metric.DNSSeconds, "endpoint", endpoint))
		if !ok || seconds.Number() <= 0 {
			continue
		}
		n.Queries, _, _ = Rise("questions to "+endpoint, p.Counter(metric.DNSQueries, "endpoint", endpoint))
		answers := 0.0
		for _, of := range p.Counter(metric.DNSAnswers, "endpoint", endpoint) {
			rise := of.Points[len(of.Points)-1].Value - of.Points[0].Value
			n.codes[of.Label("code")] += rise
			answers += rise
		}
		n.Answers = quantity.Of("answers of "+endpoint, answers, quantity.Events)
		if n.Queries.Number() == 0 {
			continue
		}
		n.Open = waited.Per(seconds).As("questions").Named("questions to %s without an answer, mean", endpoint)
		n.Each = waited.Per(n.Queries).As(quantity.Seconds).Named("time of a question to %s, at least", endpoint)
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b NameServer) int {
		return cmp.Or(cmp.Compare(b.Open.Number(), a.Open.Number()), strings.Compare(a.Endpoint, b.Endpoint))
	})
	return out
}

// Coded is how many answers had one of these codes.
func (n NameServer) Coded(name string, of func(code string) bool) quantity.Value {
	sum := 0.0
	for code, count := range n.codes {
		if of(code) {
			sum += count
		}
	}
	return quantity.Of(name, sum, quantity.Events)
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
