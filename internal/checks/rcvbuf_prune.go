package checks

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
)

var paramPruneDrops = &check.Param{
	Name: "drops", Default: 1, Unit: "segments/s",
	Why: "each drop is sent again by the peer after a round trip or a timeout; one a second is more than a hiccup of one reader",
}

var rcvbufPrune = &check.Check{
	Name:  "rcvbuf-prune",
	Stage: check.Connections,
	Doc: `Received data is dropped because receive buffers are full
When a socket's receive buffer is over its limit, the kernel first collapses what is queued (PruneCalled), then throws away
out-of-order data (RcvPruned) or the new segment (TCPRcvQDrop). The peer must send it again.

Measured: RcvPruned + TCPRcvQDrop per second. Pruning that frees enough (PruneCalled alone) costs some CPU and loses nothing: info.

Cause: a program that reads too slowly, many small segments (each holds far more memory than data), a receive buffer fixed by
SO_RCVBUF, memory pressure.
Cure: read faster; drop a fixed SO_RCVBUF so that the kernel sizes it; then tcp_rmem's maximum.
Placebo: net.core.rmem_max, which bounds SO_RCVBUF only.
Wrong if Recv-Q is near zero on all sockets at all times.`,
	URL:    "https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/net/ipv4/tcp_input.c",
	Needs:  []metric.Metric{metric.RcvPruned, metric.PruneCalled},
	Uses:   []metric.Metric{metric.TCPRcvQDrop},
	Params: []*check.Param{paramPruneDrops},
	Run:    runRcvbufPrune,
}

func runRcvbufPrune(p *check.Pass) error {
	lost, err := netRise(p, metric.RcvPruned, "segments dropped from full receive buffers")
	if err != nil {
		return err
	}
	called, err := netRise(p, metric.PruneCalled, "receive buffers pruned")
	if err != nil {
		return err
	}
	if refused, ok := maybeRise(p, metric.TCPRcvQDrop, "segments refused"); ok {
		lost.n = lost.n.Plus(refused.n).Named("segments dropped from full receive buffers")
	}
	p.Read(lost.rate())
	if lost.n.Number() == 0 && called.n.Number() == 0 {
		return nil
	}
	f := check.Finding{
		Subject:  netns(p),
		Severity: check.Info,
		Summary: fmt.Sprintf("receive buffers pruned %.0f times in %s, %.0f segments dropped", called.n.Number(), called.span.Text(),
			lost.n.Number()),
		Evidence: []quantity.Value{lost.rate(), called.rate()},
		Remedies: []check.Remedy{{
			Action:  "find the program that does not read: the socket with the large Recv-Q",
			Command: inNetNS(p, "ss -tmnp"),
			Risk:    "none, it only reads",
			Effect:  "drops end when its Recv-Q stays small; take out a fixed SO_RCVBUF there",
		}, {
			Action:  "raise the largest receive buffer the kernel may choose",
			Command: inNetNS(p, "sysctl -w net.ipv4.tcp_rmem='4096 131072 16777216'"),
			Risk:    "up to 16 MiB of kernel memory for each slow connection: check tcp_mem",
			Effect:  "longer stalls of the reader are borne before segments are dropped",
		}},
		Placebos: []string{"net.core.rmem_max: it bounds SO_RCVBUF, not the size the kernel chooses"},
		Disproof: "Recv-Q is near zero on all sockets at all times",
	}
	if lost.rate().AtLeast(p.Param(paramPruneDrops)) {
		f.Severity = check.Warning
		f.Summary = fmt.Sprintf("%s / %s = %s received and dropped, receive buffers are full", lost.n.Text(), lost.span.Text(),
			lost.rate().Text())
	}
	p.Report(f)
	return nil
}
