package exporter

import (
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// HostName is the name of the window of the whole host.
const HostName = "host"

// A Window is what was measured of one target in the last seconds, and what the checks say about it. It never changes
// afterwards, so listeners may keep it.
type Window struct {
	Target    host.Target
	Name      string // [HostName], or the name of the cgroup, container or pod, as in the label target
	Recording *recording.Recording
	Result    *check.Result
	Begin     time.Time
	End       time.Time
}
