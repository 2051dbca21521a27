package connections

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramResetShare = &check.Param{
		Name: "share", Default: 0.05, Unit: quantity.Ratio,
		Why: "one connection in twenty that ends by a reset is above what impatient clients cause",
	}
	paramResetRate = &check.Param{
		Name: "rate", Default: 10, Unit: "connections/s",
		Why: "health checks end their connections by a reset, some a second at most",
	}
	paramResetConnections = &check.Param{
		Name: "connections", Default: 50, Unit: quantity.Connections,
		Why: "in fewer, two or three resets are already 5 %",
	}
)

var resetStorm = &check.Check{
	Name:  "reset-storm",
	Stage: check.Connections,
	Doc: `Many connections end by a reset
A reset drops what is in flight: a request fails, or its answer is lost.

Measured: EstabResets (established connections that ended by a reset, of either side) over connections opened and
accepted. At 5 % and ten a second it warns; resets sent (OutRsts) alone, or fewer, are info. On loopback both ends of
a connection are in the same counters, which leaves the share as it is. Where BPF programs may run, a reset counts for
a warning only if a request had no answer.

Causes: a program that closes with data unread, a process that died or was killed, an idle timeout of the peer shorter
than the client pool's, a load balancer that expires flows. Harmless: health checks, and clients and load generators
that close with SO_LINGER 0 to avoid TIME_WAIT.
Fix: read to the end before close(); idle timeout of the pool below the peer's. Won't help: any sysctl.
Disproved if neither side logs a failed request.`,
	URL:   "https://www.rfc-editor.org/rfc/rfc9293#section-3.5.2",
	Needs: []metric.Metric{metric.TCPEstabResets, metric.TCPOutRsts, metric.TCPActiveOpens, metric.TCPPassiveOpens},
	Uses: append([]metric.Metric{
		metric.TCPAbortOnTimeout, metric.TCPAbortOnMemory, metric.FlowResets, metric.ResetsUnanswered,
	},
		evidence.FlowUses()...),
	Params: []*check.Param{paramResetShare, paramResetRate, paramResetConnections},
	Facts:  []check.Fact{evidence.MemorySufficed},
	Beyond: "the logs of both sides",
	Run:    runResetStorm,
}

func runResetStorm(p *check.Pass) error {
	var rises [4]evidence.Growth
	for i, c := range []*metric.Counter{
		metric.TCPEstabResets, metric.TCPOutRsts, metric.TCPActiveOpens,
		metric.TCPPassiveOpens,
	} {
		r, err := evidence.NetRise(p, c, "")
		if err != nil {
			return err
		}
		rises[i] = r.As(quantity.Connections)
	}
	resets, sent := rises[0], rises[1]
	connections := rises[2].N.Plus(rises[3].N).Named("connections opened and accepted")
	if connections.Below(p.Param(paramResetConnections)) {
		p.Read(connections)
		return nil
	}
	cut := resets.N.Per(connections).Named("established connections reset, per connection")
	out := sent.N.Per(connections).Named("resets sent, per connection")
	p.Read(cut)
	limit := p.Param(paramResetShare)
	if !cut.AtLeast(limit) && !out.AtLeast(limit) {
		return nil
	}
	f := check.Finding{
		Subject:  evidence.NetNSSubject(p),
		Severity: check.Info,
		Summary: fmt.Sprintf("%.0f connections reset of %.0f = %s, %s; resets sent: %.0f", resets.N.Number(),
			connections.Number(),
			cut.Text(), resets.N.Per(resets.Span).Text(), sent.N.Number()),
		Evidence: []quantity.Value{
			cut, resets.N.Per(resets.Span).Named("established connections reset per second"),
			out,
		},
		Notes: abortNotes(p),
		Remedies: []check.Remedy{{
			Action:  "find who resets and when: at close with data unread, after an idle time, or at a process's end",
			Command: evidence.InNetNS(p, "tcpdump -ni any -c 200 'tcp[tcpflags] & tcp-rst != 0'"),
			Risk:    "costs CPU on a busy link: the command ends after 200 packets",
			Effect:  "names the peer and port; fixed, resets per connection fall below " + limit.Text(),
		}},
		Placebos: []string{"sysctls: a reset is a decision of a program or a middlebox"},
		Disproof: "neither side logs a failed request",
	}
	lost, known := unansweredResets(p, &f)
	if !known {
		lost, f.Confidence = resets.N, check.Medium
		f.Doubts = []string{"programs that close with SO_LINGER 0, such as load generators and health checks, look " +
			"the same and lose nothing"}
	}
	if lost.Per(connections).AtLeast(limit) && lost.Per(resets.Span).AtLeast(p.Param(paramResetRate)) {
		f.Severity = check.Warning
	}
	if r, ok := evidence.MaybeNetRise(p, metric.TCPAbortOnMemory, "aborted"); ok && r.N.Number() == 0 {
		f.Facts = []check.Fact{evidence.MemorySufficed}
	}
	nameResets(p, &f, resets.N)
	p.Report(f)
	return nil
}

// unansweredResets counts the resets by which a request lost its answer; known is false without BPF programs.
func unansweredResets(p *check.Pass, f *check.Finding) (n quantity.Value, known bool) {
	if !evidence.FlowsSeen(p) || !p.Recorded(metric.ResetsUnanswered) {
		return n, false
	}
	sum := 0.0
	for _, x := range evidence.FlowsBy(p, metric.ResetsUnanswered) {
		sum += x.N
	}
	n = quantity.Of("reset while a request had no answer", sum, quantity.Connections)
	f.Evidence = append(f.Evidence, n)
	return n, true
}

// resetsShown is how many flows are named: those of the two ends of one connection on the same host, and one more.
const resetsShown = 3

// nameResets names whose connections were reset and which side did it, where BPF programs saw that. A destination with
// at least half of the resets is the subject.
func nameResets(p *check.Pass, f *check.Finding, resets quantity.Value) {
	for _, way := range []struct{ direction, verb string }{
		{"sent", "reset by this side"},
		{"received", "reset by the peer"},
	} {
		flows := evidence.FlowsBy(p, metric.FlowResets, "direction", way.direction)
		for _, x := range flows[:min(len(flows), resetsShown)] {
			f.Evidence = append(f.Evidence, quantity.Of(way.verb+": "+x.Text(), x.N, quantity.Connections))
		}
		if len(flows) > 0 && 2*flows[0].N >= resets.Number() && flows[0].Side == "client" && f.Subject.Kind == "netns" {
			f.Subject = check.Subject{Kind: "destination", ID: flows[0].Endpoint}
		}
	}
}

// abortNotes adds the kernel's own reasons to abort, where there were any.
func abortNotes(p *check.Pass) []string {
	var out []string
	if r, ok := evidence.MaybeNetRise(p, metric.TCPAbortOnTimeout, "aborted"); ok && r.N.Number() > 0 {
		out = append(out, fmt.Sprintf("%.0f were aborted after their last retransmission (TCPAbortOnTimeout)",
			r.N.Number()))
	}
	if r, ok := evidence.MaybeNetRise(p, metric.TCPAbortOnMemory, "aborted"); ok && r.N.Number() > 0 {
		out = append(out, fmt.Sprintf("%.0f were aborted for want of memory or too many orphans (TCPAbortOnMemory)",
			r.N.Number()))
	}
	return out
}
