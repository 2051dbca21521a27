package connections

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramSynShare = &check.Param{
		Name: "share", Default: 0.01, Unit: quantity.Ratio,
		Why: "each repeat costs a caller a second: at one in a hundred the 99th percentile of connects is 1 s",
	}
	paramSynEvents = &check.Param{
		Name: "events", Default: 10, Unit: "SYNs",
		Why: "a handful of lost SYNs in a window is chance",
	}
)

var synRetransmits = &check.Check{
	Name:  "syn-retransmits",
	Stage: check.Connections,
	Doc: `SYNs or SYN-ACKs are retransmitted
A lost SYN costs its caller 1 s, a second one 2 s more: connects are either fast or take a second.

Measured: TCPSynRetrans over ActiveOpens + PassiveOpens of the namespace, because the counter holds the SYN-ACKs that
a server repeats as well. One in a hundred, and at least ten, warns. A server open to the internet repeats SYN-ACKs to
scanners and vanished phones: where nearly all opens are passive, no destination here repeats a SYN and no listen
queue overflows, it is info.

Causes: a full accept queue (here or at the peer), a lossy or filtered path, conntrack, a SNAT core.
Fix: by cause; see syn-sent-pileup and accept-queue-overflow. Won't help: tcp_syn_retries (it only changes when
connect() gives up).
Disproved if connect latency has no steps at 1 s and 3 s.`,
	URL:    "https://www.rfc-editor.org/rfc/rfc6298",
	Needs:  []metric.Metric{metric.TCPSynRetrans, metric.TCPActiveOpens, metric.TCPPassiveOpens},
	Uses:   []metric.Metric{metric.SynSentRetrans, metric.ListenOverflows},
	Params: []*check.Param{paramSynShare, paramSynEvents},
	Run:    runSynRetransmits,
}

func runSynRetransmits(p *check.Pass) error {
	again, err := evidence.NetRise(p, metric.TCPSynRetrans, "retransmitted SYNs and SYN-ACKs")
	if err != nil {
		return err
	}
	active, err := evidence.NetRise(p, metric.TCPActiveOpens, "opened")
	if err != nil {
		return err
	}
	passive, err := evidence.NetRise(p, metric.TCPPassiveOpens, "accepted")
	if err != nil {
		return err
	}
	again = again.As("SYNs")
	opens := active.N.Plus(passive.N).Named("connections opened and accepted")
	if again.N.Below(p.Param(paramSynEvents)) {
		p.Read(again.N)
		return nil
	}
	if opens.Number() == 0 {
		p.Report(synFinding(p, again, active, passive, "and no connection was opened"))
		return nil
	}
	share := again.N.Per(opens).As(quantity.Ratio).Named("retransmitted SYNs per connection")
	p.Read(share)
	if share.AtLeast(p.Param(paramSynShare)) {
		f := synFinding(p, again, active, passive, fmt.Sprintf("for %.0f connections = %s", opens.Number(),
			share.Text()))
		f.Evidence = append(f.Evidence, share)
		p.Report(f)
	}
	return nil
}

func synFinding(p *check.Pass, again, active, passive evidence.Growth, per string) check.Finding {
	f := check.Finding{
		Subject:  evidence.NetNSSubject(p),
		Severity: check.Warning,
		Summary: fmt.Sprintf("%.0f SYNs or SYN-ACKs retransmitted %s; each costs its caller 1 s or more",
			again.N.Number(), per),
		Evidence: []quantity.Value{
			again.Rate(), quantity.Of("connections opened", active.N.Number(), quantity.Connections),
			quantity.Of("connections accepted", passive.N.Number(), quantity.Connections),
		},
		Remedies: []check.Remedy{{
			Action: "find where they are lost: a full accept queue (ListenOverflows on the accepting side) or the " +
				"path",
			Command: evidence.InNetNS(p, "nstat -az TcpExtListenOverflows TcpExtTCPSynRetrans") + "; " +
				evidence.InNetNS(p, "ss -tno state syn-sent"),
			Risk:   "none, it only reads",
			Effect: "names the side to fix; TCPSynRetrans then stands still",
		}},
		Placebos: []string{"tcp_syn_retries and tcp_synack_retries: they change when a side gives up, not what is " +
			"lost"},
		Disproof: "connect latency has no steps at 1 s and 3 s",
	}
	over, _ := evidence.MaybeNetRise(p, metric.ListenOverflows, "")
	waiting := waitingDestinations(p)
	f.Notes = append(f.Notes, waiting...)
	// At ten to one the counter consists of SYN-ACKs to clients that this host cannot answer for.
	if passive.N.Number() > 10*active.N.Number() && len(waiting) == 0 && over.N.Number() == 0 {
		f.Severity, f.Confidence = check.Info, check.Medium
		f.Doubts = []string{"nearly all opens are accepted ones: these may be SYN-ACKs to scanners or clients that " +
			"went away"}
	}
	return f
}

// waitingDestinations names the destinations that do not answer.
func waitingDestinations(p *check.Pass) []string {
	var out []string
	for _, s := range p.Gauge(metric.SynSentRetrans) {
		if s.Max() > 0 {
			out = append(out, fmt.Sprintf("up to %.0f sockets repeat their SYN to %s", s.Max(), s.Label("destination")))
		}
	}
	return out
}
