package runtime

import (
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// TestAllocatingPools: pools are in the order of what they allocated. A pool that allocated nothing has no share.
func TestAllocatingPools(t *testing.T) {
	pools := func(bytes map[string]float64) []string {
		return allocatingPools(passOver(t, func(a *recording.Appender, _ float64) {
			for name, n := range bytes {
				a.Gauge(metric.JVMPoolAllocated, n, "7", name)
			}
		}), "7")
	}
	if got := pools(map[string]float64{"a": 0, "b": 0}); len(got) != 0 {
		t.Errorf("of nothing: %q", got)
	}
	got := strings.Join(pools(map[string]float64{"a": 1, "b": 5, "c": 3, "d": 1}), "\n")
	if b, c, a := strings.Index(got, `"b"`), strings.Index(got, `"c"`), strings.Index(got, `"a"`); b < 0 || c < b ||
		a < c {
		t.Errorf("want b, c and a in this order:\n%s", got)
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
