package connections

import (
	"fmt"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

var (
	paramCliffShare = &check.Param{
		Name: "range-share", Default: 0.5, Unit: quantity.Ratio,
		Why: "connect() tries the even ports first; once these are taken each call walks about half the range " +
			"(measured on 6.18: " +
			"17 µs a connect below, 225–275 µs above)",
	}
	paramCliffSystem = &check.Param{
		Name: "system-share", Default: 0.3, Unit: quantity.Ratio,
		Why: "the search is system time; below three tenths of the busy time it is not what holds the program back",
	}
	paramCliffBusy = &check.Param{
		Name: "busy-share", Default: 0.2, Unit: quantity.Ratio,
		Why: "on a host that idles, the split of its few busy ticks says nothing",
	}
	paramCliffSearch = &check.Param{
		Name: "search", Default: 50e-6, Unit: quantity.Seconds,
		Why: "measured on 6.18 with 8,000 ports: 3 to 17 µs a connect up to half of the range, 215 to 275 µs above; " +
			"between the two",
	}
	paramCliffLoad = &check.Param{
		Name: "searching", Default: 0.05, Unit: quantity.Threads,
		Why: "below a twentieth of one thread's time the searches slow each connect, but hold nothing back",
	}
	paramCliffKernel = &check.Param{
		Name: "kernel-share", Default: 0.05, Unit: quantity.Ratio,
		Why: "measured beyond half of the range: 48 % of the kernel's time; below it the kernel does not spend its " +
			"time in the search",
	}
	paramCliffOpens = &check.Param{
		Name: "connects", Default: 10, Unit: "connections/s",
		Why: "at 10 connects per second of 300 µs the search costs 0.3 % of a CPU: nobody would notice",
	}
)

var portSearchCliff = &check.Check{
	Name:  "port-search-cliff",
	Stage: check.Connections,
	Doc: `connect() searches long for a free local port
Once more than half the port range towards one destination is taken, connect() scans about half the range for each
connection (__inet_hash_connect and __inet_check_established in net/ipv4/inet_hashtables.c). No error, no counter:
only system time, and a rate of connections that falls by a factor of ten or more.

Where BPF programs may run, the check times the search of each connect, from SYN_SENT to the moment the SYN was sent,
so it shows before any connect fails. A search that is not slow is no finding, whatever the share of the range.

The profile of all CPUs names the kernel's functions and gives the search's CPU time per connect, which includes no
waiting. A profile without those functions disproves the cliff.

Measured otherwise: the ports in use to one destination (without TIME_WAIT that tcp_tw_reuse may take), divided by the
usable ports, while connects go on. The effect is the system time of the host or of a process that connects there;
without it, it is info.

Fix: fewer ports in TIME_WAIT (keep-alive, then tcp_tw_reuse=1). A wider range postpones the cliff, and makes it
deeper.
Disproved if a kernel profile shows neither of the two functions.`,
	URL:   "https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/net/ipv4/inet_hashtables.c",
	Needs: append(evidence.PortNeeds(), metric.CPUSeconds, metric.TCPActiveOpens),
	Uses:  append(evidence.PortUses(), metric.ProcessCPU, metric.HostCPUProfileSamples),
	Params: []*check.Param{
		paramCliffShare, paramCliffSystem, paramCliffBusy, paramCliffOpens, paramCliffSearch, paramCliffLoad,
		evidence.ParamPortsFull,
		paramCliffKernel, evidence.ParamReuseDelay,
	},
	Run: runPortSearchCliff,
}

func runPortSearchCliff(p *check.Pass) error {
	r, err := evidence.PortRangeOf(p)
	if err != nil {
		return err
	}
	opens, err := evidence.NetRise(p, metric.TCPActiveOpens, "connections opened")
	if err != nil {
		return err
	}
	loads := map[string]evidence.PortLoad{}
	var order []string
	for _, c := range evidence.ClientPaths(p) {
		l := evidence.PortLoadOf(r, c)
		if w, ok := loads[c.Destination]; !ok {
			order = append(order, c.Destination)
			loads[c.Destination] = l
		} else if l.Share.Above(w.Share) {
			loads[c.Destination] = l
		}
	}
	top := quantity.Of("ports in use to any destination", 0, quantity.Ratio)
	for _, d := range order {
		l := loads[d]
		if l.Share.Above(top) {
			top = l.Share
		}
		if l.Share.Above(p.Param(paramCliffShare)) {
			reportCliff(p, r, l, opens)
		}
	}
	p.Read(top)
	return nil
}

// reportCliff reports what was timed or sampled; where nothing was, what can be inferred.
func reportCliff(p *check.Pass, r evidence.PortRange, l evidence.PortLoad, opens evidence.Growth) {
	f := cliffFinding(p, r, l, opens)
	share, functions, profiled := evidence.KernelShare(p, "search for a local port", nil, searchFunctions...)
	mean, threads, timed := portSearch(p, l.Path.Destination)
	if profiled {
		p.Read(share)
		f.Doubts = slices.Clone(r.Doubts)
		f.Evidence = append(f.Evidence, share)
		if cpu, ok := searchCPU(p); ok {
			f.Evidence = append(f.Evidence, cpu)
			f.Summary += fmt.Sprintf("; it costs %s of CPU time a connect", cpu.Text())
		}
		if functions != "" {
			f.Notes = append(f.Notes, "the kernel's samples in it: "+functions)
		}
	}
	switch {
	case timed:
		timedCliff(p, f, r, l, mean, threads)
	case !profiled:
		p.Report(f)
	case share.AtLeast(p.Param(paramCliffKernel)):
		f.Confidence = check.High
		p.Report(f)
	}
}

// timedCliff reports a search by how long it takes.
func timedCliff(p *check.Pass, f check.Finding, r evidence.PortRange, l evidence.PortLoad, mean,
	threads quantity.Value,
) {
	p.Read(mean)
	if mean.Below(p.Param(paramCliffSearch)) {
		return
	}
	f.Severity, f.Confidence, f.Doubts = check.Info, check.High, r.Doubts
	f.Summary = fmt.Sprintf("connect() searches %s for a local port: %s of them are in use from %s", mean.Text(),
		l.Share.Text(),
		l.Path.Source)
	f.Evidence = append(f.Evidence, mean, threads)
	if threads.AtLeast(p.Param(paramCliffLoad)) {
		f.Severity = check.Warning
		f.Summary += fmt.Sprintf("; %s at it at any moment", threads.Text())
	}
	if failing, _ := evidence.Unavailable(p, l.Path.Destination); failing.Number() == 0 {
		f.Summary += "; no connect has failed yet"
	}
	p.Report(f)
}

// searchFunctions lists the functions that search for a local port (net/ipv4/inet_hashtables.c,
// net/ipv6/inet6_hashtables.c).
var searchFunctions = []string{"__inet_hash_connect", "__inet_check_established", "__inet6_check_established"}

// searchCPU returns the CPU time that a connect spends in the search, over all connects of the host whose search was
// seen to begin and end; ok is false when either is not measured.
func searchCPU(p *check.Pass) (cpu quantity.Value, ok bool) {
	h, ok := hotcode.HostOf(p.Recording)
	began, window := evidence.FlowSpan(p)
	if !ok || window.Number() <= 0 || h.Duration <= 0 {
		return cpu, false
	}
	connects := 0.0
	for _, s := range p.Counter(metric.PortSearches) {
		connects += evidence.RiseSince(s, began)
	}
	spent := h.Inclusive(h.Set(func(f stacks.Frame) bool {
		return f.Kind == stacks.Kernel && slices.Contains(searchFunctions, f.Name)
	}))
	if connects == 0 || spent.Count < evidence.EnoughKernel {
		return cpu, false
	}
	seconds := float64(spent.Value) / 1e9 * window.Number() / h.Duration.Seconds()
	return quantity.Of("CPU time sampled in the search", seconds, quantity.Seconds).
		Per(quantity.Of("connects", connects, quantity.Connections)).As(quantity.Seconds).
		Named("CPU time of the search per connect"), true
}

func cliffFinding(p *check.Pass, r evidence.PortRange, l evidence.PortLoad, opens evidence.Growth) check.Finding {
	effect, share := cliffEffect(p, l)
	// A full range lets connect() open nothing, so its calls no longer count, and each searches the whole range.
	trying := opens.Rate().AtLeast(p.Param(paramCliffOpens)) || l.Share.AtLeast(p.Param(evidence.ParamPortsFull))
	f := check.Finding{
		Subject:  evidence.DestinationSubject(l.Path),
		Severity: check.Info,
		Summary: fmt.Sprintf("%s of the ports in use from %s: connect() searches long", l.Share.Text(),
			l.Path.Source),
		Evidence: []quantity.Value{r.Usable, l.Share, opens.Rate()},
		Notes:    []string{evidence.OwnersOf(p, l.Path.Destination)},
		Remedies: evidence.FewerTimeWaitRemedies(p, r, l.Path),
		Placebos: []string{
			evidence.FinTimeoutPlacebo,
			"a wider port range: it postpones the cliff, and each search is then longer",
		},
		Disproof: "perf top -e cpu-clock:k shows neither __inet_hash_connect nor __inet_check_established",
		Doubts: append(slices.Clone(r.Doubts),
			"no kernel profile was recorded: that the search causes the system time is inferred"),
		Confidence: check.Medium,
	}
	if share.Work() != "" {
		f.Evidence = append(f.Evidence, share)
	}
	if effect && trying {
		f.Severity = check.Warning
		f.Summary += fmt.Sprintf("; %s is %s", share.Label(), share.Text())
	}
	return f
}

// cliffEffect returns the system share of the busy time: that of the host, or of a process seen connecting there if
// it is larger.
func cliffEffect(p *check.Pass, l evidence.PortLoad) (bool, quantity.Value) {
	_, all, err := evidence.CPUTimes(p)
	if err != nil || all.Busy().Number() == 0 {
		return false, quantity.Value{}
	}
	share := all.OfBusy("system", "system").Named("system share of the host's busy CPU time")
	if own, ok := ownerSystemShare(p, l.Path.Destination); ok && own.Above(share) {
		share = own
	}
	return all.Load().AtLeast(p.Param(paramCliffBusy)) && share.AtLeast(p.Param(paramCliffSystem)), share
}

// ownerMinCPU is the CPU time in the window, in seconds, below which a process's split is a handful of ticks (10 ms
// each at most).
const ownerMinCPU = 0.5

func ownerSystemShare(p *check.Pass, destination string) (quantity.Value, bool) {
	pids := map[string]bool{fmt.Sprint(p.Meta.Target.PID): true}
	for _, s := range p.Gauge(metric.DestinationOwner, "destination", destination) {
		pids[s.Label("pid")] = true
	}
	var system, all float64
	for _, s := range p.Counter(metric.ProcessCPU) {
		n, ok := s.Increase()
		if !ok || !pids[s.Label("pid")] {
			continue
		}
		all += n
		if s.Label("mode") == "system" {
			system += n
		}
	}
	if all < ownerMinCPU {
		return quantity.Value{}, false
	}
	return quantity.Of("system", system, quantity.Seconds).Per(quantity.Of("all", all, quantity.Seconds)).
		Named("system share of the connecting processes' CPU time"), true
}

// portSearch returns how long a connect to a destination searched for a local port on average, and how many threads
// were searching at any moment; ok is false when none was measured. It is wall-clock time: on a crowded host it
// includes waiting for a CPU.
func portSearch(p *check.Pass, destination string) (mean, threads quantity.Value, ok bool) {
	n, spent := evidence.FlowRise(p, metric.PortSearches, destination),
		evidence.FlowRise(p, metric.PortSearchSeconds, destination)
	_, window := evidence.FlowSpan(p)
	if n == 0 || window.Number() <= 0 {
		return quantity.Value{}, quantity.Value{}, false
	}
	time := quantity.Of("searched", spent, quantity.Seconds)
	mean = time.Per(quantity.Of("connects", n, quantity.Connections)).As(quantity.Seconds).
		Named("search for a local port per connect")
	return mean, time.Per(window).As(quantity.Threads).Named("threads searching at any moment"), true
}
