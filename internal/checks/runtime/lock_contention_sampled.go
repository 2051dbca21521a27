package runtime

import (
	"fmt"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// runMutexes is the check for a program in Go, whose goroutines wait unseen by the kernel, or in Python, whose
// functions the kernel does not know.
func runMutexes(p *check.Pass, w *evidence.Waiting, err error) error {
	if err != nil {
		return err
	}
	if full, ok := w.CPUsFull(p); ok {
		p.Read(full)
		return nil
	}
	sites := w.Sites(hotcode.ForLock)
	if len(sites) == 0 {
		p.Read(quantity.Of(w.Who()+" that wait for a lock", 0, w.Unit()))
		return nil
	}
	for i, s := range sites {
		waiters := w.Threads(w.Who()+" that wait for the lock", s.Value)
		if i == 0 {
			p.Read(waiters)
		}
		share := s.Share().Named("waiting for the lock, share of the time of %s in %s", w.Who(), s.Method)
		if !w.InGo() && !w.AreRequests(p, s) {
			continue
		}
		if waiters.AtLeast(p.Param(lockWaiters).As(w.Unit())) && share.AtLeast(p.Param(lockWarn)) {
			f := mutexFinding(p, w, s, waiters, share)
			if w.KeepsOut(s) {
				f.Facts = append(f.Facts, evidence.EachOther)
			}
			p.Report(f)
		}
	}
	return nil
}

// lockExamples show a lock that is held for too long, and the same lock held for less, by the prefix of a language's
// function names. In .NET they have none.
var lockExamples = []struct{ prefix, before, after string }{
	{"py::", "with lock: cache[key] = remote.call()", "reply = remote.call()\nwith lock: cache[key] = reply"},
	{
		"RUBY:", "lock.synchronize { cache[key] = remote.call }",
		"reply = remote.call\nlock.synchronize { cache[key] = reply }",
	},
	{
		"", "lock (gate) { cache[key] = remote.Call(); }",
		"var reply = remote.Call(); lock (gate) { cache[key] = reply; }",
	},
}

// lockExample returns the example in the language of a site.
func lockExample(w *evidence.Waiting, s *evidence.WaitSite) (before, after string) {
	if w.InGo() {
		return "mu.Lock(); reply := remote.Call(); cache[key] = reply; mu.Unlock()",
			"reply := remote.Call(); mu.Lock(); cache[key] = reply; mu.Unlock()"
	}
	for _, e := range lockExamples {
		if strings.HasPrefix(s.Method, e.prefix) {
			return e.before, e.after
		}
	}
	return "", ""
}

func mutexFinding(
	p *check.Pass, w *evidence.Waiting, s *evidence.WaitSite, waiters, share quantity.Value,
) check.Finding {
	before, after := lockExample(w, s)
	holders := w.Threads(fmt.Sprintf("%s in %s that do not wait for it", w.Who(), s.Method), s.Inside)
	f := check.Finding{
		Subject:  check.Subject{Kind: "lock", ID: s.Method},
		Severity: check.Warning,
		Weight:   share.Number(),
		Summary:  fmt.Sprintf("%s wait for a lock, at %s", waiters.Text(), s.Name()),
		Evidence: []quantity.Value{waiters, holders, share},
		Notes: []string{
			strings.Join(s.Path, " ← "), fmt.Sprintf("%d samples of %s that wait", s.Count, w.Who()),
		},
		Remedies: []check.Remedy{{
			Action: "Hold the lock for less: no I/O, sleep, logging or remote call under it; split it, or copy what " +
				"is needed and let it go.",
			Risk:   "what the lock kept together may come apart",
			Before: before,
			After:  after,
			Effect: fmt.Sprintf("waiting %s from %s to none", w.Who(), waiters.Text()),
		}},
		Placebos: []string{"More " + w.Who() + ": they wait, too.", "More CPUs: those that wait need none."},
		Disproof: "another second finds the " + w.Who() + " elsewhere.",
	}
	if _, parts := w.Inside(s.Method, hotcode.ForLock); len(parts) > 0 {
		f.Summary += "; the holder is one of those there that " + evidence.WithoutShare(parts[0])
		f.Notes = append(f.Notes, fmt.Sprintf("%s in %s that do not wait for it: %s", w.Who(), s.Method,
			strings.Join(parts, ", ")))
	}
	evidence.WithoutThreads(p, &f, waiters.Number())
	f.Marks = evidence.MarksOf(w.Event, s.Hits)
	f.Confidence = evidence.SampledConfidence(s.Count, f.Doubts)
	return f
}
