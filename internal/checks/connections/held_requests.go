package connections

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
)

var (
	paramHeldRequest = evidence.RequestSeconds()
	paramHeldShare   = &check.Param{
		Name: "held", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the time of requests: where most of it is work or a wait that is seen, other checks tell of it",
	}
)

var heldRequests = &check.Check{
	Name:  "held-requests",
	Stage: check.Connections,
	Doc: `Requests wait inside a program that has nothing to do

Clients wait for answers, and the program neither computes for them nor waits for
anybody else: it holds them back by a timer, a limit or a queue of its own, as
limit_req of nginx, a pooler's queue, or a full pool of workers does.

Measured: requests in progress by the sockets of clients without an answer, and
by Little's law how long each takes; set against the threads that run or wait
with work at hand, and the connections that wait for an answer of others.

It is not a fault on its own: long polls, subscriptions and blocking
reads of a queue look the same, and are meant to.

Fix: find the limit in the program's configuration or its log, and raise it or
send less. Won't help: more CPUs. Disproof: clients wait by design.`,
	URL: "https://nginx.org/en/docs/http/ngx_http_limit_req_module.html",
	Needs: []metric.Metric{
		metric.ListenerOwes, metric.DestinationAsked,
	},
	Uses:   append([]metric.Metric{metric.DestinationOwner, metric.TargetInfo}, evidence.RequestMetrics()...),
	Params: []*check.Param{paramHeldRequest, paramHeldShare},
	Beyond: "what clients wait for by design",
	Run:    runHeldRequests,
}

func runHeldRequests(p *check.Pass) error {
	if _, known := evidence.Serves(p); !known {
		return check.NotAssessed("name a process", "whose requests these are is known of a target only")
	}
	l, ok := evidence.LedgerOf(p)
	if !ok || l.Window <= 0 {
		return check.NotAssessed("profile for longer", "the states of threads were looked at in no pass")
	}
	h, ok := evidence.HeldOf(p)
	p.Read(quantity.Of("requests without an answer, mean", h.InProgress.Number(), "requests"))
	if !ok || h.Each.Below(p.Param(paramHeldRequest)) {
		return nil
	}
	p.Read(h.Share)
	if h.Share.AtLeast(p.Param(paramHeldShare)) {
		f := heldFinding(p, h)
		evidence.WithoutWait(p, &f, evidence.WaitPart(p, h.Share.Number()*h.InProgress.Number()))
		p.Report(f)
	}
	return nil
}

func heldFinding(p *check.Pass, h evidence.HeldRequests) check.Finding {
	return check.Finding{
		Subject:    evidence.TargetSubject(p),
		Severity:   check.Info,
		Confidence: check.Medium,
		Summary: fmt.Sprintf("%s in progress at any moment; each takes %s and more, while %s have work and "+
			"%s: the program holds them back by a timer, a limit or a queue of its own, or by design (long polls)",
			h.InProgress.Text(), h.Each.Text(), h.Works.Text(), askText(h.Asks)),
		Evidence: []quantity.Value{h.InProgress, h.Each, h.Works, h.Asks, h.Share},
		Remedies: []check.Remedy{{
			Action: "look for a limit in its configuration and log (rate limits, queues, sizes of pools)",
			Risk:   "the limit may protect something that is asked more then",
			Effect: fmt.Sprintf("up to %s of a request's time is saved", h.Share.Text()),
		}},
		Placebos: []string{"more CPUs: it uses those that it has for a small part of the time"},
		Disproof: "clients wait by design: long polls, subscriptions, streams",
	}
}

func askText(asks quantity.Value) string {
	if asks.Number() == 0 {
		return "nobody else is asked"
	}
	return asks.Text() + " wait for answers of others"
}
