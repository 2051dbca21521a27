package connections

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var paramOverflowRate = &check.Param{
	Name: "rate", Default: 1, Unit: "sockets/s",
	Why: "a socket a second is more than a passing burst; the kernel logs \"time wait bucket table overflow\" from " +
		"the first",
}

// timeWaitBytes is about what a TIME_WAIT socket costs: struct inet_timewait_sock and its bind bucket, 256 to 300 bytes
// on 64-bit kernels.
const timeWaitBytes = 300

var timeWaitOverflow = &check.Check{
	Name:  "time-wait-overflow",
	Stage: check.Connections,
	Doc: `TIME_WAIT sockets are dropped because tcp_max_tw_buckets is reached
A side that closes first should keep the connection for 60 s, so that late segments and a lost last ACK meet a socket.
Above net.ipv4.tcp_max_tw_buckets the kernel skips TIME_WAIT (tcp_time_wait in net/ipv4/tcp_minisocks.c): a peer whose
FIN is repeated then gets a RST, and a late segment may reach a new connection of the same four-tuple.

Measured: TCPTimeWaitOverflow per second, which counts each such close.

Fix: fewer closes (keep-alive), or a larger tcp_max_tw_buckets, about 300 bytes each. The limit is at times set low
on purpose, to free local ports: that trades an error at connect() for rare resets. Won't help: tcp_fin_timeout.
Disproved if peers see no reset after their FIN.`,
	URL:    "https://www.kernel.org/doc/html/latest/networking/ip-sysctl.html",
	Needs:  []metric.Metric{metric.TCPTimeWaitOverflow},
	Uses:   []metric.Metric{metric.MaxTWBuckets, metric.TCPTimeWait},
	Params: []*check.Param{paramOverflowRate},
	Beyond: "what the peers see",
	Run:    runTimeWaitOverflow,
}

func runTimeWaitOverflow(p *check.Pass) error {
	over, err := evidence.NetRise(p, metric.TCPTimeWaitOverflow, "TIME_WAIT sockets dropped")
	if err != nil {
		return err
	}
	p.Read(over.Rate())
	if over.Rate().Below(p.Param(paramOverflowRate)) {
		return nil
	}
	f := check.Finding{
		Subject:  evidence.NetNSSubject(p),
		Severity: check.Warning,
		Summary: fmt.Sprintf("%s / %s = %s closed without TIME_WAIT", over.N.Text(), over.Span.Text(), over.Rate().
			Text()),
		Evidence: []quantity.Value{over.Rate()},
		Remedies: []check.Remedy{{
			Action: "keep connections open and use them again (connection pool, HTTP keep-alive)",
			Risk:   "idle connections hold memory and descriptors on both sides",
			Effect: "closes per second, and with them TIME_WAIT, fall to requests / requests per connection",
		}},
		Placebos: []string{evidence.FinTimeoutPlacebo},
		Disproof: "no peer sees a reset after its FIN (nstat TcpOutRsts does not move with TcpExtTCPTimeWaitOverflow)",
	}
	limit, ok := evidence.Setting(p, metric.MaxTWBuckets)
	if !ok {
		f.Confidence = check.Medium
		f.Doubts = []string{"net.ipv4.tcp_max_tw_buckets was not recorded"}
	} else {
		f.Evidence = append(f.Evidence, quantity.Of("tcp_max_tw_buckets", limit, quantity.Sockets))
		f.Remedies = append(f.Remedies, bucketRemedy(p, limit, over.PerSecond()))
	}
	for _, s := range p.Gauge(metric.TCPTimeWait, "netns", metric.NetNSTarget) {
		f.Evidence = append(f.Evidence, quantity.Of("TIME_WAIT sockets held", s.Max(), quantity.Sockets))
	}
	p.Report(f)
	return nil
}

// bucketRemedy makes room for the sockets dropped during one TIME_WAIT, on top of the present limit.
func bucketRemedy(p *check.Pass, limit, rate float64) check.Remedy {
	want := limit + rate*evidence.TimeWaitSeconds
	return check.Remedy{
		Action:  "allow more TIME_WAIT sockets",
		Command: evidence.InNetNS(p, check.Commandf("sysctl -w net.ipv4.tcp_max_tw_buckets=%.0f", want)),
		Risk: fmt.Sprintf("up to %s of kernel memory; on a client the ports stay taken for 60 s again, so check the "+
			"port range first",
			quantity.Of("", want*timeWaitBytes, quantity.Bytes).Text()),
		Effect: fmt.Sprintf("%.0f kept + %.0f/s × 60 s = %.0f: nothing is dropped", limit, rate, want),
	}
}
