package runtime

import (
	"fmt"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// runMutexes is the check for a program in Go, whose goroutines wait where the kernel does not see it.
func runMutexes(p *check.Pass) error {
	w, err := evidence.WaitingOf(p)
	if err != nil {
		return err
	}
	if full, ok := w.CPUsFull(p); ok {
		p.Read(full)
		return nil
	}
	sites := w.Sites(hotcode.ForLock)
	if len(sites) == 0 {
		p.Read(quantity.Of("goroutines that wait for a lock", 0, quantity.Goroutines))
		return nil
	}
	for i, s := range sites {
		waiters := w.Threads("goroutines that wait for the lock", s.Value)
		if i == 0 {
			p.Read(waiters)
		}
		share := quantity.Of("", float64(s.Value)/1e9, quantity.Seconds).
			Per(quantity.Of("", float64(s.Value+s.Inside)/1e9, quantity.Seconds)).
			Named("waiting for the lock, share of the time of goroutines in %s", s.Method)
		if waiters.AtLeast(p.Param(lockWaiters)) && share.AtLeast(p.Param(lockWarn)) {
			p.Report(mutexFinding(p, w, s, waiters, share))
		}
	}
	return nil
}

func mutexFinding(
	p *check.Pass, w *evidence.Waiting, s *evidence.WaitSite, waiters, share quantity.Value,
) check.Finding {
	holders := w.Threads(fmt.Sprintf("goroutines in %s that do not wait for it", s.Method), s.Inside)
	f := check.Finding{
		Subject:  check.Subject{Kind: "lock", ID: s.Method},
		Severity: check.Warning,
		Weight:   share.Number(),
		Summary:  fmt.Sprintf("%s wait for a lock, at %s", waiters.Text(), s.Name()),
		Evidence: []quantity.Value{waiters, holders, share},
		Notes: []string{
			strings.Join(s.Path, " ← "), fmt.Sprintf("%d samples of goroutines that wait", s.Count),
		},
		Remedies: []check.Remedy{{
			Action: "Hold the lock for less: no I/O, sleep, logging or remote call under it; split it, or copy what " +
				"is needed and let it go.",
			Risk:   "what the lock kept together may come apart",
			Before: "mu.Lock(); reply := remote.Call(); cache[key] = reply; mu.Unlock()",
			After:  "reply := remote.Call(); mu.Lock(); cache[key] = reply; mu.Unlock()",
			Effect: fmt.Sprintf("waiting goroutines from %s to none", waiters.Text()),
		}},
		Placebos: []string{"More goroutines: they wait, too.", "More CPUs: those that wait need none."},
		Disproof: "the mutex profile of net/http/pprof has no waits there.",
	}
	if _, parts := w.Inside(s.Method, hotcode.ForLock); len(parts) > 0 {
		f.Summary += "; who has it is one of those there that " + evidence.WithoutShare(parts[0])
		f.Notes = append(f.Notes, fmt.Sprintf("goroutines in %s that do not wait for it: %s", s.Method,
			strings.Join(parts, ", ")))
	}
	evidence.WithoutThreads(p, &f, waiters.Number())
	f.Marks = evidence.MarksOf(stacks.Goroutine, s.Hits)
	f.Confidence = evidence.SampledConfidence(s.Count, f.Doubts)
	return f
}
