package evidence

import (
	"net/netip"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// Serves reports whether the target listens for clients: somebody waits for what it does. known is false for a whole
// host, and if the target's sockets could not be read.
func Serves(p *check.Pass) (serves, known bool) {
	return len(p.Info(metric.TargetListenPorts)) > 0 || servesUnix(p) || servesUDP(p),
		p.Meta.Target.Kind != "host" && p.Recorded(metric.TargetListenPorts)
}

// servesUnix reports whether the target listens on an AF_UNIX socket: only the target's own are recorded.
func servesUnix(p *check.Pass) bool { return len(p.Gauge(metric.UnixBacklog)) > 0 }

// firstEphemeral is the lowest port that a socket gets without asking for one (ip_local_port_range in
// Documentation/networking/ip-sysctl.rst): below it a UDP socket is a server's.
const firstEphemeral = 32768

// servesUDP reports whether the target has a UDP socket at a port of its choice.
func servesUDP(p *check.Pass) bool {
	own := func(s recording.GaugeSeries) bool {
		at, err := netip.ParseAddrPort(s.Label("listener"))
		return err == nil && at.Port() < firstEphemeral
	}
	return p.Meta.Target.Kind != "host" && slices.ContainsFunc(p.Gauge(metric.UDPQueue), own)
}

// RequestMetrics returns the metrics that [RequestsAtMost], [RequestsOf] and [Noticed] read.
func RequestMetrics() []metric.Metric {
	return append(LedgerMetrics(),
		metric.TargetListenPorts, metric.ListenerSegments, metric.TCPPassiveOpens, metric.ConnectionTurns,
		metric.ListenerOwes, metric.ListenerQueue, metric.UnixQueue, metric.UnixBacklog, metric.UDPQueue,
		metric.ExchangeDurations, metric.ExchangesCounted, metric.ThreadWaits,
	)
}

// answered is the number of requests per second.
type answered float64

func readAnswered(rec *recording.Recording) answered {
	return answered(keynumber.NewSource(rec, keynumber.Told{}).Answered())
}

// RequestsAtMost bounds the requests to the target: there are no more than answers that left its own ports. It is
// zero if none left, or nothing counted them.
func RequestsAtMost(p *check.Pass) quantity.Value {
	rate := float64(check.Shared(p, readAnswered))
	return quantity.Of("requests, at most", rate*p.Meta.Duration, quantity.Unit("requests")) // a sample may be missing
}

// Risen adds up the steps upwards of sums that lose parts when connections are closed.
func Risen(list ...recording.GaugeSeries) (n float64) {
	for _, s := range list {
		before, known := 0.0, false
		for _, point := range s.Points {
			if known {
				n += max(0, point.Value-before)
			}
			before, known = point.Value, true
		}
	}
	return n
}
