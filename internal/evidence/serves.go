package evidence

import (
	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// Serves reports whether the target listens for clients: somebody waits for what it does. known is false of a whole
// host, and where its sockets could not be read.
func Serves(p *check.Pass) (serves, known bool) {
	return len(p.Info(metric.TargetListenPorts)) > 0,
		p.Meta.Target.Kind != "host" && p.Recorded(metric.TargetListenPorts)
}

// RequestMetrics are what [RequestsAtMost], [RequestsOf] and [Noticed] read.
func RequestMetrics() []metric.Metric {
	return []metric.Metric{
		metric.TargetListenPorts, metric.ListenerSegments, metric.TCPPassiveOpens, metric.ListenerOwes,
		metric.ListenerQueue, metric.ThreadStateTime, metric.ThreadWaitTime, metric.ThreadStatePasses,
		metric.ThreadStillTime, metric.ThreadCPU, metric.ThreadRunDelay, metric.ProcessCPU,
	}
}

// RequestsAtMost bounds the requests to the target: no more than the segments with data that came on its own ports, and
// connections to them. It is zero where none came, or nobody counted.
func RequestsAtMost(p *check.Pass) quantity.Value {
	own := map[string]bool{}
	for _, s := range p.Info(metric.TargetListenPorts) {
		own[s.Label("listener")] = true
	}
	most := 0.0
	for _, s := range p.Gauge(metric.ListenerSegments) {
		if own[s.Label("listener")] {
			most += Risen(s)
		}
	}
	if opened, ok := MaybeNetRise(p, metric.TCPPassiveOpens, ""); ok {
		most += opened.N.Number()
	}
	return quantity.Of("requests, at most", most, quantity.Unit("requests"))
}

// Risen adds up the steps upwards of sums of which parts go away, as connections are closed.
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
