package waits

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// ofQueries is the rule for a program whose threads do not wait for the answers to its questions: an event loop asks
// many at once (c-ares, the resolver of nginx), and waits for whatever comes. If clients ask the target itself, it is
// a warning if they notice.
func (r row) ofQueries(p *check.Pass, limits params) {
	servers := evidence.NameServersOf(p)
	if len(servers) == 0 {
		return
	}
	s := servers[0]
	p.Read(s.Open)
	if s.Open.Below(p.Param(limits.threads).As("questions")) || s.Each.Below(p.Param(limits.request)) {
		return
	}
	at := ledger.Place{On: s.Endpoint}
	f := check.Finding{
		Subject:  check.Subject{Kind: "name server", ID: s.Endpoint},
		Severity: check.Info, Confidence: check.High, Weight: min(1, s.Open.Number()),
		Summary:  fmt.Sprintf("%s of the target wait for %s; %s", s.Open.Text(), nameServer(at), slowness(s)),
		Evidence: []quantity.Value{s.Queries, s.Answers, s.Open, s.Each},
		Remedies: r.remedies(at), Placebos: r.placebos, Disproof: r.disproof(nil, at),
	}
	if r, asked := evidence.RequestsOf(p); asked {
		waiting := s.Open.As(r.InProgress.Unit())
		if waiting.Above(r.InProgress) { // one has two questions a name open, and those that were given up
			waiting = r.InProgress
		}
		evidence.Noticed(p, &f, waiting, limits.request)
	} else {
		f.Severity = ofIdle(p)
	}
	p.Report(f)
}

// leastComputing is how many threads compute in a program that nobody asks and that name servers do not hold up. A
// program that waits for addresses has less than half of one.
const leastComputing = 0.5

// ofIdle is the severity of a fault of name servers in a program that nobody asks. A job that computes also asks
// them, for example where to send its metrics.
func ofIdle(p *check.Pass) check.Severity {
	if l, ok := evidence.LedgerOf(p); ok && l.Window > 0 && l.Computing()/l.Window >= leastComputing {
		return check.Info
	}
	return check.Warning
}

func slowness(s evidence.NameServer) string {
	if s.Answers.Number() == 0 {
		return "it answered none"
	}
	return "one takes " + s.Each.Text() + " and more"
}

var (
	dnsFailed = &check.Param{
		Name: "failed", Default: 0.1, Unit: quantity.Ratio,
		Why: "of the answers, and of the requests where clients ask the target: one in ten is an incident by itself",
	}
	dnsMissing = &check.Param{
		Name: "missing", Default: 0.9, Unit: quantity.Ratio,
		Why: "of the answers say that there is no such name: a search list makes up to three in four, for names that " +
			"exist (ndots:5 and three domains of Kubernetes)",
	}
	dnsAnswers = &check.Param{
		Name: "answers", Default: 5, Unit: "answers", Why: "fewer bad answers are an accident",
	}
)

var dnsFailing = &check.Check{
	Name: "dns-failing", Stage: check.Path,
	Doc: `A name server says no

SERVFAIL and REFUSED say that the server cannot or will not answer: its own servers are out of reach, a signature is
wrong, it does not serve this client. NXDOMAIN says that there is no such name. A program that gets such an answer
cannot connect. Most ask again at once, or wait and retry: the host is idle, and requests fail or are late.

A name that has fewer dots than ndots, and none at the end, is asked with each domain of the search list first; these
answers are NXDOMAIN, and cost a round trip each. So NXDOMAIN alone is a warning only where hardly any other answer
comes.

Fix: by the code. Won't help: a longer time limit, more threads. Disproof: dig @SERVER NAME answers NOERROR.

A look-up of an address asks for A and AAAA, and either is enough: the type with the better answers counts. Many
servers refuse AAAA for names of their own, which harms nobody.

Measured: the answers over UDP to the target's questions, by the code in their header. dns-slow reports a server that
does not answer at all.`,
	URL:    "https://www.rfc-editor.org/rfc/rfc1035#section-4.1.1",
	Needs:  []metric.Metric{metric.DNSAnswers},
	Uses:   append(evidence.NameServerMetrics(), evidence.RequestMetrics()...),
	Params: []*check.Param{dnsFailed, dnsMissing, dnsAnswers},
	Run:    runDNSFailing,
}

func runDNSFailing(p *check.Pass) error {
	for _, s := range evidence.NameServersOf(p) {
		if s.Answers.Number() == 0 {
			continue
		}
		bad, share, why := failedAnswers(p, s)
		p.Read(share)
		if bad.Below(p.Param(dnsAnswers)) || share.Below(p.Param(dnsFailed)) {
			continue
		}
		f := check.Finding{
			Subject:  check.Subject{Kind: "name server", ID: s.Endpoint},
			Severity: ofIdle(p), Confidence: check.High,
			Summary: fmt.Sprintf("%s of the answers of the name server %s are %s", share.Text(), s.Endpoint,
				strings.Join(why, " and ")),
			Evidence: []quantity.Value{share, s.Queries, s.Each},
			Remedies: dnsRemedies(s.Endpoint, why),
			Placebos: []string{"A longer time limit or more threads: the answer came, and stays the same."},
			Disproof: dig(s.Endpoint) + " for a name that the program uses answers NOERROR.",
		}
		if most := evidence.RequestsAtMost(p); most.Number() > 0 {
			of := bad.As(most.Unit()).Per(most).Named("answers that say no, of the requests to the target")
			f.Evidence = append(f.Evidence, of)
			f.Severity, f.Weight = check.Info, min(1, of.Number())
			if of.AtLeast(p.Param(dnsFailed)) {
				f.Severity = check.Warning
			}
		}
		p.Report(f)
	}
	return nil
}

// failedAnswers counts the answers that say no, with their codes, to the type of question that fares best: a look-up
// of an address asks for A and AAAA, and is content with either. Other types count if no address is asked for:
// resolvers also ask for HTTPS and SRV, and do without.
func failedAnswers(p *check.Pass, s evidence.NameServer) (bad, share quantity.Value, codes []string) {
	list := s.ByType()
	if addresses := slices.DeleteFunc(slices.Clone(list), otherType); len(addresses) > 0 {
		list = addresses
	}
	for i, c := range list {
		b, names := saysNo(p, c)
		if of := b.Per(c.All()); i == 0 || of.Number() < share.Number() {
			bad, codes = b, names
			share = of.Named("answers of %s that say no, of questions of type %s", s.Endpoint, c.Type)
		}
	}
	return bad, share, codes
}

func otherType(c evidence.Codes) bool { return c.Type != "A" && c.Type != "AAAA" }

// saysNo counts the answers that say no, with their codes. NXDOMAIN counts if hardly any other code comes.
func saysNo(p *check.Pass, c evidence.Codes) (bad quantity.Value, codes []string) {
	missing := c.Of("answers NXDOMAIN", func(code string) bool { return code == "NXDOMAIN" })
	all := missing.Per(c.All()).AtLeast(p.Param(dnsMissing))
	failed := func(code string) bool { return code != "NOERROR" && (code != "NXDOMAIN" || all) }
	for _, code := range c.Names() {
		if failed(code) {
			codes = append(codes, code)
		}
	}
	return c.Of("answers that say no", failed), codes
}

func dnsRemedies(server string, codes []string) []check.Remedy {
	if slices.Contains(codes, "NXDOMAIN") {
		return []check.Remedy{{
			Action: "Correct the name that the program asks for, or enter it at " + server + ".",
			Risk:   "a name that was meant for another environment reaches that one",
			Effect: "answers that say no: none",
		}}
	}
	return []check.Remedy{{
		Action: "Ask " + server + " for its reason (its log; dig +trace for SERVFAIL, its access list for REFUSED), " +
			"or put another one first in /etc/resolv.conf.",
		Risk:   "another server may not know internal names",
		Effect: "answers that say no: none",
	}}
}
