package runtime

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// runNamedLocks reports locks that are known by the function that waits for them. It returns whether there were such
// waits.
func runNamedLocks(p *check.Pass) bool {
	prof, ok := p.Ranked(stacks.Waits)
	if !ok || prof.Duration <= 0 || len(p.Info(metric.JVMInfo)) > 0 {
		return false
	}
	window := quantity.Of("window", prof.Duration.Seconds(), quantity.Seconds)
	found := hotcode.NamedLocks(prof)
	for i, n := range found {
		l := &nativeLock{sure: true, seconds: float64(n.Value) / 1e9, count: float64(n.Count), threads: n.Threads}
		share := l.share(window)
		if i == 0 {
			p.Read(share)
		}
		if share.AtLeast(p.Param(lockLevel)) {
			l.reportNamed(p, n, window, share)
		}
	}
	return len(found) > 0
}

func (l *nativeLock) reportNamed(p *check.Pass, n *hotcode.NamedLock, window, share quantity.Value) {
	waiters := l.waiters(window)
	f := check.Finding{
		Subject:  check.Subject{Kind: "lock", ID: n.At},
		Severity: check.Info,
		Weight:   share.Number(),
		Summary: fmt.Sprintf("%d threads of %s wait %s of their time for a lock, in %s", len(l.threads),
			l.pools(), share.Text(), n.Function),
		Evidence: []quantity.Value{share, waiters},
		Remedies: []check.Remedy{holdForLess(p, share)},
		Placebos: []string{"More threads: they wait, too."},
		Disproof: "gdb -p PID -batch -ex 'thread apply all bt', several times: no threads are in " + n.Function + ".",
	}
	if n.At != n.Function {
		f.Summary += ", at " + n.At
	}
	l.conclude(p, f, window, share, waiters)
}
