package waits

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// ofRequests leaves out the goroutines without a request in hand, unless none has one. Goroutines that a library
// began for itself also wait, beside those that wait for them.
func ofRequests(w *evidence.Waiting) *evidence.Waiting {
	own := *w
	own.Profile = w.Filter(func(s stacks.Sample) bool {
		request, _ := w.Waits.Serves(s)
		return request
	})
	if len(own.Samples) == 0 {
		return w
	}
	return &own
}

// ofGoroutines is the rule for a program in Go. Its threads do not wait where its goroutines do, so only the stacks
// of the goroutines show what they wait for. The place says what a thread's place would say.
func (r row) ofGoroutines(p *check.Pass, limits params) (found bool) {
	w, err := evidence.WaitingOf(p)
	if err != nil || !w.InGo() {
		return false
	}
	w = ofRequests(w)
	sites := w.Sites(r.inGo)
	var hits []evidence.Hit
	for _, site := range sites {
		hits = append(hits, site.Hits...)
	}
	total := evidence.Weigh(hits)
	waiting := w.Threads("goroutines that wait so, mean", total.Value)
	share := waiting.Per(w.WithWork()).Named("of the goroutines with work that wait")
	p.Read(share)
	if len(sites) == 0 || share.Below(p.Param(limits.share)) ||
		waiting.Below(p.Param(limits.threads).As(quantity.Goroutines)) {
		return false
	}
	site, at := sites[0], ledger.Place{}
	if servers := evidence.NameServersOf(p); r.asks && len(servers) > 0 {
		at.On = servers[0].Endpoint // a goroutine's own stack does not show it
	}
	f := check.Finding{
		Subject:  check.Subject{Kind: "pool", ID: site.Pool},
		Severity: check.Warning, Confidence: evidence.SampledConfidence(total.Count, nil),
		Weight:   min(1, share.Number()),
		Summary:  fmt.Sprintf("%s are %s, at %s", waiting.Text(), r.what(at), hotcode.At(site.Method, site.Line)),
		Evidence: []quantity.Value{waiting, share},
		Remedies: r.remedies(at), Placebos: r.placebos, Disproof: r.disproof(nil, at),
		Marks: evidence.MarksOf(w.Event, hits),
	}
	evidence.WithoutThreads(p, &f, waiting.Number())
	p.Report(f)
	return true
}
