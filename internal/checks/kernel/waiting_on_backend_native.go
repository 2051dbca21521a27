package kernel

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A nativePool is what the threads of one pool of a process do in the window, in seconds.
type nativePool struct {
	pid, name string
	threads   map[string]float64 // work by thread
	work      float64            // ran, waited for a CPU, or was blocked for something that is no new work
	answers   float64            // blocked in connect, for an answer, or for room to send
	count     float64            // of these waits
	peers     map[string]float64 // answers by destination
}

// runNativeBackend is the check for programs without a runtime that tells what its threads wait for.
func runNativeBackend(p *check.Pass) error {
	window, err := evidence.OffCPUWindow(p)
	if err != nil {
		return err
	}
	read := false
	for _, c := range nativePools(p) {
		if c.answers == 0 {
			continue
		}
		share := quantity.Of("blocked for answers", c.answers, quantity.Seconds).
			Per(quantity.Of("with work", c.work, quantity.Seconds)).
			Named("waiting for answers, share of the time with work of pool %q", c.name)
		threads := quantity.Of("blocked for answers", c.answers, quantity.Seconds).Per(window).As(quantity.Threads).
			Named("threads of pool %q that wait for an answer", c.name)
		if !read {
			p.Read(share)
			read = true
		}
		if threads.AtLeast(p.Param(backendWaiters)) && share.AtLeast(p.Param(backendShare)) {
			p.Report(c.finding(p, window, share, threads))
		}
	}
	if !read {
		if many := waitsForMany(p); many.AtLeast(p.Param(backendWaiters)) {
			return check.NotAssessed("the program's own metrics of its calls, or ss -tinp for the connections it "+
				"has sent something on",
				"%s wait in epoll, poll or select for any of several sockets at once: which of them keeps work "+
					"waiting only the "+
					"program knows",
				many.Text())
		}
		p.Read(quantity.Of("waits for answers of a destination", 0, quantity.Events))
	}
	return nil
}

// waitsForMany gives the threads that wait for several sockets together, as event loops do. The kernel knows which
// sockets those are and which of them ended a wait, but for most of them, such as clients' idle connections, nobody
// waits.
func waitsForMany(p *check.Pass) quantity.Value {
	total := 0.0
	for _, w := range evidence.ThreadWaits(p) {
		if w.Reason == "other" && slices.Contains(waitCalls, w.Syscall) {
			total += w.Seconds
		}
	}
	window, err := evidence.OffCPUWindow(p)
	if err != nil {
		return quantity.Of("threads that wait for any of several sockets", 0, quantity.Threads)
	}
	return quantity.Of("waiting for any of several sockets", total, quantity.Seconds).Per(window).As(quantity.Threads)
}

// waitCalls are the system calls that wait for several descriptors.
var waitCalls = []string{"epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6"}

// nativePools gives the pools whose threads wait for answers most first.
func nativePools(p *check.Pass) []*nativePool {
	byPool := map[string]*nativePool{}
	of := func(pid, tid, comm string, work float64) *nativePool {
		name := metric.PoolOf(comm)
		c := byPool[pid+" "+name]
		if c == nil {
			c = &nativePool{pid: pid, name: name, threads: map[string]float64{}, peers: map[string]float64{}}
			byPool[pid+" "+name] = c
		}
		c.threads[tid] += work
		c.work += work
		return c
	}
	for _, w := range evidence.ThreadWaits(p) {
		wait := waitKind(&w)
		work := w.Seconds
		if wait == hotcode.Idle {
			work = 0
		}
		c := of(w.PID, w.TID, w.Comm, work)
		if wait == hotcode.ForNetwork {
			c.answers += w.Seconds
			c.count += w.Count
			c.peers[w.On] += w.Seconds
		}
	}
	for _, s := range p.Gauge(metric.ThreadCPUWait) {
		of(s.Label("pid"), s.Label("tid"), s.Label("comm"), s.Last())
	}
	for _, s := range p.Counter(metric.ThreadCPU) {
		n, _ := s.Increase()
		of(s.Label("pid"), s.Label("tid"), s.Label("comm"), n)
	}
	return evidence.SortedBy(byPool, func(c *nativePool) float64 { return c.answers })
}

// mainIdle is the share of its time below which a process's first thread is none of its workers: it waits for them to
// end.
const mainIdle = 0.01

// workers is how many threads the pool has for work.
func (c *nativePool) workers(window quantity.Value) int {
	n := len(c.threads)
	if work, ok := c.threads[c.pid]; ok && n > 1 && work < mainIdle*window.Number() {
		n--
	}
	return n
}

// largestPeer gives the destination that most is waited for.
func (c *nativePool) largestPeer() string {
	best := ""
	for on, n := range c.peers {
		if n > c.peers[best] || n == c.peers[best] && on < best {
			best = on
		}
	}
	return best
}

func (c *nativePool) finding(p *check.Pass, window, share, threads quantity.Value) check.Finding {
	peer := c.largestPeer()
	of := quantity.Of("blocked for it", c.peers[peer], quantity.Seconds).
		Per(quantity.Of("blocked for answers", c.answers,
			quantity.Seconds)).
		Named("of this for %s", peer)
	occupied := quantity.Of("with work", c.work, quantity.Seconds).
		Per(window.Times(quantity.Of("", float64(c.workers(window)), quantity.None))).Named("pool %q occupied", c.name)
	each := quantity.Of("blocked for answers", c.answers, quantity.Seconds).
		Per(quantity.Of("waits", max(1, c.count), quantity.Events)).
		As(quantity.Seconds).Named("a wait, mean")
	here := func(s stacks.Sample) bool {
		return hotcode.OffCPUWait(s.Class) == hotcode.ForNetwork && endsWith(s.Class, peer)
	}
	f := check.Finding{
		Subject:    check.Subject{Kind: "pool", ID: c.name},
		Severity:   check.Info,
		Confidence: evidence.SampledConfidence(int64(c.count), nil),
		Weight:     share.Number(),
		Summary: fmt.Sprintf("threads of pool %q (pid %s) wait for answers of %s in %s of their time with work", c.name,
			c.pid, peer,
			share.Text()),
		Evidence: []quantity.Value{share, of, threads, occupied, each},
		Notes:    evidence.OffCPUPaths(p, here),
		Remedies: []check.Remedy{{
			Action: "Find out why " + peer + " answers late; ask it less often or with a timeout, and bound who " +
				"waits for it.",
			Risk: "a timeout turns a slow answer into none",
			Effect: fmt.Sprintf("time waited from %s to below %s of the work", share.Text(), p.Param(backendShare).
				Text()),
		}},
		Placebos: []string{"More threads: they wait there, too, and load the destination more."},
		Disproof: "the destination answers in less time than the threads wait (its own log, tcpdump).",
	}
	if at := evidence.FirstOffCPUPath(p, here); at != "" {
		f.Summary += ", at " + at
	}
	if occupied.AtLeast(p.Param(backendFull)) {
		f.Severity = check.Warning
	}
	return f
}

// endsWith tells whether the class of a wait is for a destination.
func endsWith(class, peer string) bool {
	return len(class) > len(peer) && class[len(class)-len(peer):] == peer && class[len(class)-len(peer)-1] == ' '
}

// destinationNotes says for which destinations threads of a JVM waited, where BPF saw it: their names are Java's, the
// ids are the same.
func destinationNotes(p *check.Pass, w *evidence.Waiting, hits []evidence.Hit) []string {
	ids := map[string]bool{}
	for _, h := range hits {
		ids[strconv.Itoa(w.ThreadOf(h.Sample).ID)] = true
	}
	sums := map[string]*evidence.ThreadWait{}
	total := 0.0
	for _, t := range evidence.ThreadWaits(p) {
		if !ids[t.TID] || t.On == "" || waitKind(&t) != hotcode.ForNetwork {
			continue
		}
		if sums[t.On] == nil {
			sums[t.On] = &evidence.ThreadWait{On: t.On}
		}
		sums[t.On].Seconds += t.Seconds
		sums[t.On].Count += t.Count
		total += t.Seconds
	}
	var out []string
	list := evidence.SortedBy(sums, func(t *evidence.ThreadWait) float64 { return t.Seconds })
	for _, t := range list[:min(len(list), evidence.NamedCulprits)] {
		out = append(out, fmt.Sprintf("destination %s: %s of the time that these threads are blocked for answers, "+
			"%s each time", t.On,
			quantity.Of("", t.Seconds/total, quantity.Ratio).Text(), quantity.Of("", t.Seconds/max(1, t.Count),
				quantity.Seconds).Text()))
	}
	return out
}
