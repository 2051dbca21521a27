package connections

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var paramPruneDrops = &check.Param{
	Name: "drops", Default: 1, Unit: "segments/s",
	Why: "each drop is retransmitted by the peer after a round trip or a timeout; one a second is more than a hiccup " +
		"of one reader",
}

var rcvbufPrune = &check.Check{
	Name:  "rcvbuf-prune",
	Stage: check.Connections,
	Doc: `Received data is dropped because receive buffers are full
When a socket's receive buffer is over its limit, the kernel first collapses what is queued (PruneCalled), then throws
away out-of-order data (RcvPruned) or the new segment (TCPRcvQDrop). The peer must send it again.

Measured: RcvPruned + TCPRcvQDrop per second. Pruning that frees enough (PruneCalled alone) costs some CPU and loses
nothing: info.

Cause: a program that reads too slowly, many small segments (each holds far more memory than data), a receive buffer
fixed by SO_RCVBUF, memory pressure.
Fix: read faster; drop a fixed SO_RCVBUF so that the kernel sizes it; then tcp_rmem's maximum.
Won't help: net.core.rmem_max, which bounds SO_RCVBUF only.
Disproved if Recv-Q is near zero on all sockets at all times.`,
	URL:    "https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/net/ipv4/tcp_input.c",
	Needs:  []metric.Metric{metric.RcvPruned, metric.PruneCalled},
	Uses:   []metric.Metric{metric.TCPRcvQDrop},
	Params: []*check.Param{paramPruneDrops},
	Run:    runRcvbufPrune,
}

func runRcvbufPrune(p *check.Pass) error {
	lost, err := evidence.NetRise(p, metric.RcvPruned, "segments dropped from full receive buffers")
	if err != nil {
		return err
	}
	called, err := evidence.NetRise(p, metric.PruneCalled, "receive buffers pruned")
	if err != nil {
		return err
	}
	if refused, ok := evidence.MaybeNetRise(p, metric.TCPRcvQDrop, "segments refused"); ok {
		lost.N = lost.N.Plus(refused.N).Named("segments dropped from full receive buffers")
	}
	p.Read(lost.Rate())
	if lost.N.Number() == 0 && called.N.Number() == 0 {
		return nil
	}
	f := check.Finding{
		Subject:  evidence.NetNSSubject(p),
		Severity: check.Info,
		Summary: fmt.Sprintf("receive buffers pruned %.0f times in %s, %.0f segments dropped", called.N.Number(),
			called.Span.Text(),
			lost.N.Number()),
		Evidence: []quantity.Value{lost.Rate(), called.Rate()},
		Remedies: []check.Remedy{{
			Action:  "find the program that does not read: the socket with the large Recv-Q",
			Command: evidence.InNetNS(p, "ss -tmnp"),
			Risk:    "none, it only reads",
			Effect:  "drops end when its Recv-Q stays small; take out a fixed SO_RCVBUF there",
		}, {
			Action:  "raise the largest receive buffer the kernel may choose",
			Command: evidence.InNetNS(p, "sysctl -w net.ipv4.tcp_rmem='4096 131072 16777216'"),
			Risk:    "up to 16 MiB of kernel memory for each slow connection: check tcp_mem",
			Effect:  "longer stalls of the reader are borne before segments are dropped",
		}},
		Placebos: []string{"net.core.rmem_max: it bounds SO_RCVBUF, not the size the kernel chooses"},
		Disproof: "Recv-Q is near zero on all sockets at all times",
	}
	if lost.Rate().AtLeast(p.Param(paramPruneDrops)) {
		f.Severity = check.Warning
		f.Summary = fmt.Sprintf("%s / %s = %s received and dropped, receive buffers are full", lost.N.Text(),
			lost.Span.Text(),
			lost.Rate().Text())
	}
	p.Report(f)
	return nil
}
