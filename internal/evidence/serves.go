package evidence

import (
	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
)

// Serves reports whether the target listens for clients: somebody waits for what it does. known is false of a whole
// host, and where its sockets could not be read.
func Serves(p *check.Pass) (serves, known bool) {
	return len(p.Info(metric.TargetListenPorts)) > 0,
		p.Meta.Target.Kind != "host" && p.Recorded(metric.TargetListenPorts)
}
