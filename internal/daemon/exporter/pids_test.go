package exporter

import (
	"slices"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// ofProcesses are the names of labels whose values are ids of processes or threads.
func ofProcesses() []string { return []string{"pid", "tid", "waker_pid", "thread", "holder", "waker"} }

// TestNoProcessIDsInMetrics: no metric is exported by process id.
func TestNoProcessIDsInMetrics(t *testing.T) {
	all := policies()
	for _, m := range metric.All() {
		d := m.Describe()
		labels, p := d.Labels, all[d.Name]
		if p.leave != "" {
			continue
		}
		if p.keep != nil {
			labels = p.keep
		}
		for _, l := range labels {
			if slices.Contains(ofProcesses(), l) {
				t.Errorf("%s is exported by %s", d.Name, l)
			}
		}
	}
}
