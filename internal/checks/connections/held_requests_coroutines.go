package connections

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// byNobodysDesign holds the waits of coroutines that no long poll has: for something of the program's own that others
// hold, or for a time that it has set itself. The text says what they do.
var byNobodysDesign = map[hotcode.Wait]string{
	hotcode.ForLock: "wait for a lock", hotcode.ForPool: "wait for a connection or a turn that others have",
	hotcode.ForQueue: "wait for room in a queue", hotcode.ForSleep: "sleep",
}

// heldCoroutines names the coroutines of Python, or async functions of Node.js, in which requests wait in an event
// loop. It makes it a warning if most of them wait for something in the program's own hand; waiting is how many do.
// If they may wait by design, stand says where.
func heldCoroutines(
	p *check.Pass, h evidence.HeldRequests, f *check.Finding,
) (waiting float64, stand string, ok bool) {
	w, err := evidence.CoroutinesOf(p)
	if err != nil { // it is neither Python nor Node.js, or has no coroutines
		return 0, "", false
	}
	hits := map[hotcode.Wait][]evidence.Hit{}
	for _, s := range w.Samples {
		wait, at := w.Waits.Blocked(s) // the connections tell whether they have work
		hits[wait] = append(hits[wait], evidence.Hit{Sample: s, At: at})
	}
	own := maps.Clone(hits)
	maps.DeleteFunc(own, func(wait hotcode.Wait, _ []evidence.Hit) bool { return byNobodysDesign[wait] == "" })
	wait, most := evidence.MostWaited(own)
	n := coroutines(w, byNobodysDesign[wait], most)
	short := h.Each.Below(p.Param(paramHeldRequest))
	if short && (wait == hotcode.ForSleep || n.Number() < 1) { // a sleep may be all that a short request is for
		return 0, "", false
	}
	if n.Per(h.InProgress).Number() < p.Param(paramHeldShare).Number() || wait == hotcode.ForSleep && mayBePolls(p, n) {
		f.Notes = append(f.Notes, others(w, hits)...)
		return 0, whereMostStand(p, w, h, hits), false
	}
	at := evidence.Culprits(w.Profile, w.Owners, most, nil)[0]
	f.Severity, f.Confidence = check.Warning, check.High
	f.Evidence = append(f.Evidence, n)
	f.Notes = append(f.Notes, awaits(w, at, most))
	f.Marks = evidence.MarksOf(w.Event, most)
	f.Summary = fmt.Sprintf("%s in progress at any moment; each takes %s and more: %s %s at %s",
		h.InProgress.Text(), h.Each.Text(), n.Text(), byNobodysDesign[wait], at.Name())
	delete(own, wait)
	if holder, others := evidence.MostWaited(own); wait != hotcode.ForSleep && others != nil {
		what := evidence.Culprits(w.Profile, w.Owners, others, nil)[0]
		f.Evidence = append(f.Evidence, coroutines(w, byNobodysDesign[holder]+" meanwhile", others))
		f.Summary += fmt.Sprintf("; others %s at %s meanwhile", byNobodysDesign[holder], what.Name())
	}
	f.Remedies[0] = coroutineRemedy(wait, f.Remedies[0].Effect)
	f.Disproof = "another second finds the " + coroutineName(w) + " elsewhere"
	return n.Number(), "", true
}

// mayBePolls reports whether most of the requests that sleep do so for longer than the window: polls and heartbeats
// do, and a client that waits for an answer has given up by then.
func mayBePolls(p *check.Pass, asleep quantity.Value) bool {
	ended, known := evidence.EndedRequests(p)
	return known && ended.Number() < p.Param(paramHeldShare).Number()*asleep.Number()
}

// whereMostStand says where most of the requests stand that may wait by design; it is empty if they are in many
// places.
func whereMostStand(
	p *check.Pass, w *evidence.Waiting, h evidence.HeldRequests, hits map[hotcode.Wait][]evidence.Hit,
) string {
	waits := maps.Clone(hits)
	delete(waits, hotcode.Idle)
	_, most := evidence.MostWaited(waits)
	if len(most) == 0 {
		return ""
	}
	at := evidence.Culprits(w.Profile, w.Owners, most, nil)[0]
	n := w.Threads("", at.Value).As(quantity.Unit(coroutineName(w)))
	if n.Per(h.InProgress).Number() < p.Param(paramHeldShare).Number() {
		return ""
	}
	return fmt.Sprintf("; %s stand at %s", n.Text(), at.Name())
}

// awaits returns who awaits whom where most wait, innermost first.
func awaits(w *evidence.Waiting, at *evidence.Culprit, hits []evidence.Hit) string {
	const longest = 6 // the outermost add little for the reader
	var most []string
	heaviest := int64(0)
	for _, h := range hits {
		var names []string
		here := false
		for _, i := range h.Sample.Stack[:min(len(h.Sample.Stack), longest)] {
			name := hotcode.ReadableName(w.Frames[i])
			here = here || name == at.Method
			name, _, _ = strings.Cut(name, " (") // without its file
			names = append(names, name)
		}
		if here && h.Sample.Value > heaviest {
			most, heaviest = names, h.Sample.Value
		}
	}
	return strings.Join(most, " ← ")
}

// others says where coroutines stand that may wait by design.
func others(w *evidence.Waiting, hits map[hotcode.Wait][]evidence.Hit) (out []string) {
	for _, wait := range slices.Sorted(maps.Keys(hits)) {
		if wait == hotcode.Idle || wait == hotcode.NotWaiting {
			continue
		}
		at := evidence.Culprits(w.Profile, w.Owners, hits[wait], nil)[0]
		n := coroutines(w, "", hits[wait])
		out = append(out, fmt.Sprintf("%s wait for %s at %s", n.Text(), wait, at.Name()))
	}
	return out
}

// coroutines returns how many of them do so at any moment.
func coroutines(w *evidence.Waiting, what string, hits []evidence.Hit) quantity.Value {
	name := coroutineName(w)
	label := name + " that " + what + ", mean"
	return w.Threads(label, evidence.Weigh(hits).Value).As(quantity.Unit(name)).Named("%s", label)
}

// coroutineName returns what people call the samples of the profile.
func coroutineName(w *evidence.Waiting) string {
	for _, f := range w.Frames {
		switch {
		case strings.HasPrefix(f.Name, "JS:"):
			return "async functions"
		case strings.Contains(f.Name, "/gevent/"), strings.Contains(f.Name, "/eventlet/"):
			return "greenlets"
		}
	}
	return "coroutines"
}

func coroutineRemedy(wait hotcode.Wait, effect string) check.Remedy {
	switch wait {
	case hotcode.ForSleep:
		return check.Remedy{
			Action: "take the sleep out of what a request waits for: an event that is set, or a task that nobody " +
				"awaits",
			Risk: "what it was to wait for may not be there yet", Effect: effect,
		}
	case hotcode.ForLock:
		return check.Remedy{
			Action: "await less while the lock is held: what takes time comes before it is taken, or after it is " +
				"given back",
			Risk: "what the lock kept together may come apart", Effect: effect,
		}
	}
	return check.Remedy{
		Action: "raise the limit that they wait for (of the semaphore, the pool or the queue) to what is behind it " +
			"can serve, or give it back sooner",
		Risk: "what is behind it gets more requests at once", Effect: effect,
	}
}
