package evidence

import (
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// TestBindPoolsOfForeign: a recording of another program may have a source that found ports and never asked for one.
func TestBindPoolsOfForeign(t *testing.T) {
	p := passOver(t, func(a *recording.Appender, n float64) {
		a.Counter(metric.BindsAsked, n, metric.NetNSTarget, "10.0.0.1", "7", "asks")
		a.Counter(metric.BindsFound, n, metric.NetNSTarget, "10.0.0.2", "7", "asks")
		a.Counter(metric.BindSearchSeconds, n, metric.NetNSTarget, "10.0.0.3", "7", "asks")
	})
	pools := BindPools(p)
	if len(pools) != 1 || pools[0].Source != "10.0.0.1" || pools[0].Found != 0 {
		t.Errorf("pools %+v, want the one of 10.0.0.1, in which no port was found", pools)
	}
}

// passOver returns what a check sees of a recording with two samples.
func passOver(t *testing.T, sample func(a *recording.Appender, n float64)) *check.Pass {
	t.Helper()
	b := recording.NewBuilder()
	for n := range 2 {
		a := b.Appender()
		sample(a, float64(n))
		a.Commit()
	}
	return &check.Pass{Recording: b.Done(recording.Meta{})}
}
