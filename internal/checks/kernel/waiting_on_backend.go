package kernel

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

var (
	backendShare = &check.Param{
		Name: "share", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the time in which a pool's threads have work: from a half on, nothing in this process matters more",
	}
	backendWaiters = &check.Param{
		Name: "waiters", Default: 0.5, Unit: quantity.Threads,
		Why: "less than half of one thread in a client at any moment fills neither a pool nor a single thread",
	}
	backendFull = &check.Param{
		Name: "occupied", Default: 0.9, Unit: quantity.Ratio,
		Why: "many healthy services wait for a database; it is a fault when hardly a thread is left for the next " +
			"request",
	}
	backendRequest = evidence.RequestSeconds()
	backendRuns    = &check.Param{
		Name: "running", Default: 0.5, Unit: quantity.Ratio,
		Why: "threads that run in half of the time in which they seem to wait do not wait for the network",
	}
)

var waitingOnBackend = &check.Check{
	Name:  "waiting-on-backend",
	Stage: check.Kernel,
	Doc: `Threads wait for an answer over the network

Threads of a pool that are in a client (HTTP, JDBC, Redis) wait for what is
behind it. No profile of the CPU shows that, and no tuning of this process
changes it.

Measured: for a JVM, in a wall-clock profile, the share of each pool's time
with work in which its threads sleep in a socket read or write below a known
client. For other programs: the time their threads are blocked in connect,
read, recv or poll of one socket, by destination, read from /proc again and
again; with --deep exactly, by the scheduler's events. A thread that waits for
a client's request or a pushed message has no work. The event loops of Go and
others wait for all connections at once, so their threads show nothing: there
the check counts the requests of clients that have no answer yet, and this
program's own requests to a destination that have none.

Waiting alone is a fact. It is a warning when hardly a thread of the pool is
idle, so that none is left for the next request, or when requests take long
enough to be noticed and as many of them are in progress as threads wait. If
twice as many or more are in progress, and no thread waits for a connection,
the requests wait for a thread, and the check says so.

A thread that runs inside a client does not wait. People once blamed the
network for weeks while a JSON reader was at work, because each thread dump had
read() in it. The check says so where threads in a client run most of the time.

Where an answer takes hardly longer than the round trip, the destination is not
slow: the line is long, and fewer round trips help.

Fix: find why the destination is slow; set timeouts, ask it less often or in
parallel, bound what waits (bulkhead). Won't help: more threads; they wait
there, too, and load it more. Disproof: the destination answers in less time
than the threads wait (tcpdump, its own logs).`,
	URL:   "https://www.brendangregg.com/tsamethod.html",
	Needs: []metric.Metric{metric.TargetInfo}, // and a profile, or the threads' states
	Uses: slices.Concat([]metric.Metric{
		metric.WallProfileSamples, metric.JVMInfo, metric.OffCPUProfileSamples, metric.DestinationAsked,
		metric.DestinationOwner,
	}, evidence.RequestMetrics(), evidence.AnswerMetrics()),
	Params: []*check.Param{backendShare, backendWaiters, backendFull, backendRuns, backendRequest},
	Run:    runWaitingOnBackend,
}

// clientFrames matches the calls of client libraries. A server that reads its own clients' requests makes none of
// them.
var clientFrames = hotcode.ParsePatterns(
	"sun.net.www.protocol.http.*", "sun.net.www.http.HttpClient.*", "jdk.internal.net.http.*", "java.net.http.*",
	"org.apache.http.impl.client.*", "org.apache.http.impl.execchain.*", "org.apache.hc.client5.*", "okhttp3.*",
	"retrofit2.*", "feign.*",
	"org.glassfish.jersey.client.*", "org.springframework.web.client.*", "org.jboss.resteasy.client.*",
	"org.eclipse.jetty.client.*",
	"org.postgresql.*", "com.mysql.*", "org.mariadb.*", "oracle.jdbc.*", "oracle.net.*", "com.microsoft.sqlserver.*",
	"org.h2.*",
	"com.ibm.db2.*", "redis.clients.*", "io.lettuce.*", "org.redisson.*", "net.spy.memcached.*", "com.mongodb.*",
	"com.datastax.*",
	"org.elasticsearch.client.*", "co.elastic.clients.*", "software.amazon.awssdk.*", "com.amazonaws.*",
	"io.grpc.stub.ClientCalls.*",
	"com.sun.jndi.ldap.*", "com.sun.mail.*", "javax.naming.*", "java.rmi.*", "sun.rmi.transport.*",
)

// A clientPool is what the threads of one pool do, in nanoseconds and samples.
type clientPool struct {
	name            string
	all, work       stacks.Weight // work: not idle
	waits, runs     stacks.Weight // in a client
	waitsAt, runsAt []evidence.Hit
	held            map[held]int64 // nanoseconds
}

// A held is a thread that waits with a request in hand, and whom it asks.
type held struct {
	thread int // by its index in the profile
	peer   string
}

// runWaitingOnBackend reads the profile of a JVM, which knows its clients, or else what BPF saw of the threads of any
// program.
func runWaitingOnBackend(p *check.Pass) error {
	if _, ok := p.Ranked(stacks.Wall); ok {
		return runJavaBackend(p)
	}
	if p.Recorded(metric.ThreadWaitTime) || p.Recorded(metric.ThreadStateTime) {
		return runNativeBackend(p)
	}
	because := metric.Metric(metric.WallProfileSamples)
	if p.Recorded(metric.JVMInfo) && len(p.Info(metric.JVMInfo)) == 0 {
		because = metric.ThreadStateTime
	}
	reason, remedy := p.Why(because)
	return check.NotAssessed(remedy, "%s", reason)
}

func runJavaBackend(p *check.Pass) error {
	w, err := evidence.WaitingOf(p)
	if err != nil {
		return err
	}
	pools := clientPools(p, w)
	if len(pools) == 0 {
		p.Read(quantity.Of("threads in a client", 0, quantity.Threads))
		return nil
	}
	for i, c := range pools {
		in := stacks.Weight{Count: c.waits.Count + c.runs.Count, Value: c.waits.Value + c.runs.Value}
		threads := w.Threads(fmt.Sprintf("threads of pool %q in a client", c.name), in.Value)
		share := quantity.Of("", float64(in.Value)/1e9, quantity.Seconds).
			Per(quantity.Of("", float64(c.work.Value)/1e9, quantity.Seconds)).
			Named("in a client, share of the time with work of pool %q", c.name)
		if i == 0 {
			p.Read(share)
		}
		if threads.Below(p.Param(backendWaiters)) || share.Below(p.Param(backendShare)) {
			continue
		}
		p.Report(c.finding(p, w, threads, share, in))
	}
	return nil
}

// clientPools returns the pools with threads in a client, those with most of that time first.
func clientPools(p *check.Pass, w *evidence.Waiting) []*clientPool {
	client, _ := hotcode.Frames(w.Profile, clientFrames)
	asked := askedOf(p, w)
	byPool := map[string]*clientPool{}
	for _, s := range w.Samples {
		name := w.Pool(s)
		if byPool[name] == nil {
			byPool[name] = &clientPool{name: name, held: map[held]int64{}}
		}
		byPool[name].add(w, s, s.Innermost(client), asked[s.Thread])
	}
	var out []*clientPool
	for _, c := range byPool {
		if c.waits.Count+c.runs.Count > 0 {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *clientPool) int {
		return cmp.Or(cmp.Compare(b.waits.Value+b.runs.Value, a.waits.Value+a.runs.Value),
			strings.Compare(a.name, b.name))
	})
	return out
}

// askedOf returns whom the threads of the profile ask, by the kernel: a program need not use a known client. Threads
// that run event loops are left out, since a blocked loop has a check of its own.
func askedOf(p *check.Pass, w *evidence.Waiting) map[int]ledger.Asked {
	l, ok := evidence.LedgerOf(p)
	if !ok {
		return nil
	}
	out, loops := map[int]ledger.Asked{}, w.EventLoops()
	for _, s := range w.Samples {
		if _, known := out[s.Thread]; !known && s.Thread >= 0 && !loops[s.Thread] {
			out[s.Thread] = l.Asks(w.ThreadOf(s).ID)
		}
	}
	return out
}

// add adds a sample: at is where it is in a known client, or -1; asked is what the kernel knows of its thread.
func (c *clientPool) add(w *evidence.Waiting, s stacks.Sample, at int, asked ledger.Asked) {
	wait, waitsAt := w.Waits.Of(s)
	if wait == hotcode.Idle && w.Waits.TakesTurn(s) {
		return // somebody has to select
	}
	c.all.Add(s)
	if wait == hotcode.Idle {
		return
	}
	c.work.Add(s)
	switch {
	case wait == hotcode.NotWaiting && at >= 0:
		c.runs.Add(s)
		c.runsAt = append(c.runsAt, evidence.Hit{Sample: s, At: at})
	case wait == hotcode.ForNetwork:
		request, asks := asksFor(w, asked, s, waitsAt)
		if at < 0 && !asks {
			return
		}
		c.waits.Add(s)
		c.waitsAt = append(c.waitsAt, evidence.Hit{Sample: s, At: waitsAt})
		if request && asks {
			c.held[held{s.Thread, asked.Peer}] += s.Value
		}
	}
}

// asksFor reports whether a thread that waits for the network, in the call at an index, has a request in hand, and
// whether it asks somebody. Who waits for messages may do so by design, unless it has a request in hand; and so may a
// library's own thread, which reads the answers to what others asked.
func asksFor(w *evidence.Waiting, asked ledger.Asked, s stacks.Sample, at int) (request, asks bool) {
	request, _ = w.Waits.Serves(s)
	own := asked.Answers && w.Owners.Nearest(w.Profile, s.Stack, at, nil).Owner == hotcode.Application
	return request, asked.Peer != "" && (request || own)
}

func (c *clientPool) finding(p *check.Pass, w *evidence.Waiting, threads, share quantity.Value,
	in stacks.Weight,
) check.Finding {
	runs := quantity.Of("running", float64(c.runs.Value)/1e9, quantity.Seconds).
		Per(quantity.Of("in a client", float64(in.Value)/1e9, quantity.Seconds)).
		Named("running, share of the time in a client")
	if runs.AtLeast(p.Param(backendRuns)) {
		return c.contradiction(p, w, runs, share)
	}
	list := evidence.Culprits(w.Profile, w.Owners, c.waitsAt, nil)
	occupied := quantity.Of("with work", float64(c.work.Value)/1e9, quantity.Seconds).
		Per(quantity.Of("time of its threads", float64(c.all.Value)/1e9, quantity.Seconds)).
		Named("pool %q occupied", c.name)
	note, doubts := evidence.Interval(c.waits.Count, c.work.Count, p.Param(backendShare))
	f := check.Finding{
		Subject:    check.Subject{Kind: "pool", ID: c.name},
		Severity:   check.Info,
		Confidence: evidence.SampledConfidence(c.waits.Count, doubts),
		Weight:     share.Number(),
		Summary: fmt.Sprintf("threads of pool %q wait for the network in %s of their time with work, at %s",
			c.name, share.Text(), list[0].Name()),
		Evidence: []quantity.Value{share, threads, occupied, runs},
		Remedies: []check.Remedy{{
			Action: "Find out why the destination answers late; ask it less often or with a timeout, and bound the " +
				"threads that wait for it.",
			Risk: "a timeout turns a slow answer into none",
			Effect: fmt.Sprintf("time in the client from %s to below %s of the work", share.Text(),
				p.Param(backendShare).Text()),
		}},
		Placebos: []string{moreThreads},
		Disproof: "the destination answers in less time than the threads wait (its own log, tcpdump).",
		Doubts:   doubts,
	}
	f.Remedies = append(f.Remedies, check.Remedy{
		Action: "If the destination is as fast as it can be, and can do more at once: hold no thread while a call " +
			"is under way. " +
			"Virtual threads (JDK 21) or an asynchronous client, with a bound of calls for each destination.",
		Risk:   "without that bound an overloaded destination gets all that would have waited here",
		Effect: fmt.Sprintf("calls at once from %s to the bound", threads.Text()),
	})
	for _, x := range list[:min(len(list), evidence.NamedCulprits)] {
		f.Notes = append(f.Notes, fmt.Sprintf("%s of it at %s: %s", evidence.PartText(x.Value, c.waits.Value), x.Name(),
			strings.Join(x.Path, " ← ")))
	}
	destinations := destinationsOf(p, w, c.waitsAt)
	f.Notes = append(append(f.Notes, destinationNotes(destinations)...), note)
	if occupied.AtLeast(p.Param(backendFull)) {
		f.Severity = check.Warning
	}
	noticed(p, &f, threads)
	c.hangs(p, w, &f)
	most := ""
	if len(destinations) > 0 {
		most = destinations[0].On
	}
	promise(p, &f, most, threads)
	return f
}

// allOfIt is the share of the window from which on a thread waits for all of it: samples at its ends may be missing.
const allOfIt = 0.95

// hangs makes it a warning if threads with a request in hand wait for all of the window, and no answer came in it.
func (c *clientPool) hangs(p *check.Pass, w *evidence.Waiting, f *check.Finding) {
	n, peers := 0, map[string]bool{}
	for at, waited := range c.held {
		if float64(waited) >= allOfIt*float64(w.Duration) && evidence.Silent(p, at.peer) {
			n++
			peers[at.peer] = true
		}
	}
	if n == 0 {
		return
	}
	f.Severity = check.Warning
	f.Summary += fmt.Sprintf("; %d of them wait all the time, each with a request: no answer of %s comes", n,
		strings.Join(slices.Sorted(maps.Keys(peers)), ", "))
	f.Remedies = slices.Insert(f.Remedies, 0, check.Remedy{
		Action: "Give the read a time limit, and look at what it waits for: more bytes than are sent, an end of the " +
			"connection that its peer keeps open, or a peer that is stuck itself.",
		Risk:   "a limit turns a late answer into none",
		Effect: fmt.Sprintf("threads that stand there from %d to none", n),
	})
}

// promise says what is gained if a destination, on which so many threads or connections wait, answers sooner. If it
// answers at once, the line takes the time, and nothing is promised.
func promise(p *check.Pass, f *check.Finding, destination string, waiting quantity.Value) {
	a, ok := evidence.AnswersAtOnce(p, destination)
	if !ok {
		evidence.WithoutThreads(p, f, waiting.Number())
		return
	}
	who := destination
	if strings.Contains(f.Summary, destination) {
		who = "it"
	}
	f.Summary += fmt.Sprintf("; %s answers at once: of %s, the line takes %s", who, a.Takes.Text(), a.Line.Text())
	f.Evidence = append(f.Evidence, a.Takes, a.Line, a.Share)
	f.Remedies = []check.Remedy{{
		Action: "Make fewer round trips: keep connections open, ask for several things at once or in parallel, cache " +
			"answers; or move nearer to it.",
		Risk:   "a cached answer gets old",
		Effect: "a round trip saved takes " + a.Line.Text() + " off a request",
	}}
	f.Placebos = append(f.Placebos, "a faster "+destination+": it takes no time")
	f.Disproof = "ping, or the time of connect() to it, shows that the line takes less."
}

// moreThreads does not help, unless the requests wait for a thread.
const moreThreads = "More threads: they wait there, too, and load the destination more."

// noticed makes it a warning if those who ask notice the wait, and says so if it leaves the program short of threads.
func noticed(p *check.Pass, f *check.Finding, threads quantity.Value) {
	evidence.Noticed(p, f, threads, backendRequest)
	l, ok := evidence.LedgerOf(p)
	r, asked := evidence.RequestsOf(p)
	if !ok || !asked || r.InProgress.Number() < manyMore*threads.Number() || threads.Number() < aPool ||
		!evidence.ShortOfThreads(p, l) {
		return
	}
	f.Summary += fmt.Sprintf("; %s are in progress, each takes %s and more: the others wait for a thread",
		r.InProgress.Text(), r.Each.Text())
	f.Evidence = append(f.Evidence, r.InProgress, r.Each)
	f.Placebos = []string{"more connections: each thread has its own"}
	f.Remedies = append(f.Remedies, check.Remedy{
		Action: "If the destination is as fast as it can be, and can do more at once: more threads, as many as it " +
			"can answer.",
		Risk:   "if it cannot, its answers take longer by as much, and the requests wait there",
		Effect: "threads at once from " + threads.Text() + " to what it can do",
	})
}

const (
	// manyMore is the number of requests per thread from which on most of them wait for a thread.
	manyMore = 2
	// aPool is the least number of threads in a pool: a single one serves all, and that is its own rule
	// (held-requests).
	aPool = 2
)

// contradiction says that what looks like waiting is work.
func (c *clientPool) contradiction(p *check.Pass, w *evidence.Waiting, runs, share quantity.Value) check.Finding {
	list := evidence.Culprits(w.Profile, w.Owners, c.runsAt, nil)
	f := check.Finding{
		Subject:  check.Subject{Kind: "pool", ID: c.name},
		Severity: check.Info,
		Weight:   share.Number(),
		Summary: fmt.Sprintf("threads of pool %q seem to wait for the network, at %s, but they run in %s of that time",
			c.name,
			list[0].Name(), runs.Text()),
		Evidence: []quantity.Value{share, runs},
		Remedies: []check.Remedy{{
			Action: "Do not look at the network: look at the findings about the code, and at where the CPU time goes.",
			Risk:   "none",
			Effect: "none by itself",
		}},
		Placebos: []string{"A longer or shorter read timeout: no thread waits for a read."},
		Disproof: "top -H shows these threads idle.",
	}
	if used, ok := hotcode.CodeOf(p.Recording); ok && used.Window > 0 {
		f.Evidence = append(f.Evidence, quantity.Of("CPU time", used.Total(), quantity.Seconds).
			Per(quantity.Of("window", used.Window, quantity.Seconds)).As(quantity.CPUs).
			Named("CPUs used by the process"))
	}
	return f
}

// waitKind returns the kind of a wait.
func waitKind(w *evidence.ThreadWait) hotcode.Wait { return hotcode.OffCPUWait(waitClass(w)) }

// waitClass returns the class that a wait's samples have in the off-CPU profile.
func waitClass(w *evidence.ThreadWait) string {
	if w.Reason == "other" {
		return w.Syscall
	}
	return strings.TrimSpace(w.Reason + " " + w.On)
}
