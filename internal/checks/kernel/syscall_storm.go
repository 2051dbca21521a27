package kernel

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

const (
	callsPerSecond = quantity.Unit("calls/s")
	bytesPerCall   = quantity.Unit("B/call")
)

var (
	stormShare = &check.Param{
		Name: "share", Default: 0.3, Unit: quantity.Ratio,
		Why: "with less of the system time in one call, changing that call alone saves little",
	}
	stormCost = &check.Param{
		Name: "cost", Default: 0.1, Unit: "CPUs",
		Why: "a tenth of a CPU is 50 samples in 5 s, give or take 7; less is not worth a change to the program",
	}
	stormRate = &check.Param{
		Name: "rate", Default: 10000, Unit: callsPerSecond,
		Why: "a small call costs 0.3 to 1 µs beside its work: below this rate all of them together cost 1 % of a " +
			"CPU at most",
	}
	stormBytes = &check.Param{
		Name: "bytes", Default: 1024, Unit: bytesPerCall,
		Why: "copying 1 KiB takes 0.1 µs, a fraction of what the call itself costs: more in each call is nearly free",
	}
	stormErrors = &check.Param{
		Name: "errors", Default: 0.9, Unit: quantity.Ratio,
		Why: "a loop that reads until EAGAIN, as it should, has one failure for each success; nine in ten calls are " +
			"for nothing",
	}
)

var syscallStorm = &check.Check{
	Name:  "syscall-storm",
	Stage: check.Kernel,
	Doc: `One system call, made very often, has the kernel's time

A system call costs some 0.3 to 1 µs besides what it does. A program that writes or reads a few bytes with each, or
keeps asking for what is not there, spends its CPU time on the way into the kernel and back.

Samples of all CPUs show which call has most of a process's system time. It is a fact when the process is in the kernel
for a good part of its time and the call costs a good part of a CPU. The kernel counts read(2), write(2) and their kin,
and their bytes; with --deep all of the target's calls are counted, too. It is a warning when there are many calls that
move few bytes each, or nearly all of them fail. The size of calls on sockets and eventfds gives no warning: an answer
needs a send of its own, however short it is. The cost of the counting is left out of the shares, but it slows the
calls down meanwhile. The way into the kernel and back is the same for each call: with the counts, each call gets its
part of it.

Fix: a buffer (BufferedOutputStream, bufio.Writer, stdio without setvbuf(_IONBF) or autoflush), one call for many
pieces (writev, sendmmsg), or waiting (poll, epoll) instead of asking again. Risk: what is in a buffer is lost when the
process is killed, and readers see it later. Won't help: a faster disk, or a file in memory.
Disproof: strace -f -c -p PID (it slows the program by far) counts few calls, or perf trace -s -p PID.`,
	URL:   "https://man7.org/linux/man-pages/man3/setvbuf.3.html",
	Needs: []metric.Metric{metric.HostCPUProfileSamples, metric.ProcessCPU},
	Uses: []metric.Metric{
		metric.SyscallCalls, metric.SyscallErrors, metric.SyscallBytes, metric.ProcessCalls, metric.ProcessCallBytes,
		metric.ProcessChildrenCPU,
	},
	Params: []*check.Param{
		evidence.ParamSystemLevel, stormShare, stormCost, stormRate, stormBytes, stormErrors,
	},
	Facts: []check.Fact{evidence.OwnsCPU},
	Run:   runSyscallStorm,
}

// A storm is the system call with most of a process's system time.
type storm struct {
	pid, comm, call string
	samples         *stacks.Profile // of the call
	// way is the call's part of the samples on the way into the kernel and back, by its part of the calls
	way    int64
	share  quantity.Value // of the process's samples in the kernel
	system quantity.Value // share of the process's samples that are in the kernel
	cost   quantity.Value // CPUs
	owns   bool           // most of the process's CPU time is in the call or in the C library's function for it
}

func runSyscallStorm(p *check.Pass) error {
	h, ok := hotcode.HostOf(p.Recording)
	if !ok || h.Duration <= 0 {
		return check.NotAssessed("profile for longer", "the samples of the CPUs cover no time")
	}
	samples := map[string]int64{}
	for _, x := range h.Samples {
		samples[strconv.Itoa(h.ThreadOf(x).ID)] += x.Count
	}
	var storms []storm
	for pid, comm := range stormProcesses(p) {
		if samples[pid] < evidence.EnoughKernel {
			continue // most of hundreds of processes have none, and searching the profile takes 0.1 ms
		}
		if s, ok := stormOf(p, h, pid, comm); ok {
			storms = append(storms, s)
		}
	}
	slices.SortFunc(storms, func(a, b storm) int {
		switch {
		case a.cost.Above(b.cost):
			return -1
		case b.cost.Above(a.cost):
			return 1
		}
		return strings.Compare(a.pid, b.pid)
	})
	p.Read(quantity.Of("processes sampled in the kernel often enough to tell by which call", float64(len(storms)),
		quantity.None))
	// Workers of one program do the same: only the one with most is reported.
	told := map[string]bool{}
	for i, s := range storms {
		if i == 0 {
			p.Read(s.share)
		}
		enough := s.share.AtLeast(p.Param(stormShare)) && s.system.AtLeast(p.Param(evidence.ParamSystemLevel)) &&
			s.cost.AtLeast(p.Param(stormCost))
		if enough && !told[s.comm+s.call] {
			told[s.comm+s.call] = true
			s.report(p)
		}
	}
	return nil
}

// stormProcesses returns the names of the target's processes by pid, or of all recorded ones when the target is the
// whole host.
func stormProcesses(p *check.Pass) map[string]string {
	own, all := map[string]string{}, map[string]string{}
	for _, s := range p.Counter(metric.ProcessCPU) {
		all[s.Label("pid")] = s.Label("comm")
		if s.Label("member") == "target" {
			own[s.Label("pid")] = s.Label("comm")
		}
	}
	if len(own) == 0 {
		return all
	}
	return own
}

// stormOf returns the storm of a process; ok is false with too few samples in the kernel.
func stormOf(p *check.Pass, h *hotcode.Host, pid, comm string) (s storm, ok bool) {
	id, err := strconv.Atoi(pid)
	if err != nil {
		return s, false
	}
	ofProcess := func(x stacks.Sample) bool { return h.ThreadOf(x).ID == id && !ownTracing(p, h.Profile, x) }
	all, kernel := h.Filter(ofProcess), h.System().Filter(ofProcess)
	if kernel.Total().Count < evidence.EnoughKernel {
		return s, false
	}
	calls := map[string]int64{}
	for _, x := range kernel.Samples {
		if entry := hotcode.Entry(kernel, x); strings.HasSuffix(entry, "()") {
			calls[entry] += x.Count
		}
	}
	way := kernel.Filter(func(x stacks.Sample) bool { return hotcode.OnTheWay(kernel, x) }).Total()
	parts := callParts(p)
	ofWay := func(call string) int64 { return int64(parts[call] * float64(way.Count)) }
	for call := range parts {
		calls[call] += ofWay(call)
	}
	call := evidence.Heaviest(calls)
	if call == "" {
		return s, false
	}
	s = storm{pid: pid, comm: comm, call: call, way: ofWay(call)}
	s.samples = kernel.Filter(func(x stacks.Sample) bool { return hotcode.Entry(kernel, x) == call })
	s.share = evidence.SampleShare(call, calls[call], kernel.Total().Count, "system")
	s.system = quantity.Of("in the kernel", float64(kernel.Total().Count), evidence.Samples).
		Per(quantity.Of("all", float64(all.Total().Count), evidence.Samples)).
		Named("system time, share of the CPU time of %s", evidence.PIDName(pid, comm))
	inCall := all.Filter(func(x stacks.Sample) bool { return hotcode.Entry(all, x) == call || s.wraps(all, x) }).Total()
	s.owns = float64(inCall.Count) >= mostOfCPU*float64(all.Total().Count)
	s.cost = quantity.Of("CPU time", (float64(s.samples.Total().Value)+parts[call]*float64(way.Value))/1e9,
		quantity.Seconds).
		Per(quantity.Of("window", h.Duration.Seconds(), quantity.Seconds)).As("CPUs").Named("CPU time in %s", call)
	return s, true
}

// mostOfCPU is the least share of a process's samples in a call at which its hottest function is the one that makes
// the call.
const mostOfCPU = 0.5

// wraps reports whether a sample is in the C library's function with the call's name: the cost of the way into the
// kernel shows there, too.
func (s *storm) wraps(prof *stacks.Profile, x stacks.Sample) bool {
	return slices.ContainsFunc(x.Stack, func(i int) bool {
		return prof.Frames[i].Kind != stacks.Kernel && strings.TrimLeft(prof.Frames[i].Name, "_") == s.name()
	})
}

// callParts returns each system call's share of the calls that were counted, by its name with parentheses. It is
// empty when none were counted, and for a target of several processes, whose calls are counted together.
func callParts(p *check.Pass) map[string]float64 {
	counts, all := map[string]float64{}, 0.0
	for _, s := range p.Gauge(metric.SyscallCalls) {
		counts[s.Label("syscall")+"()"] += s.Last()
		all += s.Last()
	}
	if len(stormProcesses(p)) != 1 || all == 0 {
		return nil
	}
	for call := range counts {
		counts[call] /= all
	}
	return counts
}

// tracing lists the functions by which the kernel calls the programs that count system calls (kernel/entry/common.c;
// arch/arm64/kernel/ptrace.c).
var tracing = []string{
	"syscall_trace_enter", "syscall_trace_exit", "syscall_exit_work", "trace_syscall_enter",
	"trace_syscall_exit",
}

// ownTracing reports whether a sample is from perfdoctor's own counting of system calls.
func ownTracing(p *check.Pass, prof *stacks.Profile, s stacks.Sample) bool {
	return p.Recorded(metric.SyscallCalls) && hasFunction(prof, s, tracing)
}

func hasFunction(prof *stacks.Profile, s stacks.Sample, names []string) bool {
	return slices.ContainsFunc(s.Stack, func(i int) bool {
		return prof.Frames[i].Kind == stacks.Kernel && slices.Contains(names, prof.Frames[i].Name)
	})
}

// messages lists the functions of sockets (net/socket.c) and eventfds (fs/eventfd.c), where each message needs a call
// of its own.
var messages = []string{
	"sock_write_iter", "sock_read_iter", "sock_sendmsg", "__sock_sendmsg", "sock_recvmsg", "__sys_sendto",
	"__sys_recvfrom",
	"__sys_sendmsg", "__sys_recvmsg", "___sys_sendmsg", "___sys_recvmsg", "eventfd_write", "eventfd_read",
}

// messageShare is the least share of a call's samples at which the call counts as one on sockets or eventfds.
const messageShare = 0.1

// onMessages reports whether the call is, in part at least, on sockets or eventfds.
func (s *storm) onMessages() bool {
	hit := s.samples.Filter(func(x stacks.Sample) bool { return hasFunction(s.samples, x, messages) })
	return float64(hit.Total().Count) >= messageShare*float64(s.samples.Total().Count)
}

// child names the program that makes most of the calls, if children that end make them and not the process itself.
// Their samples have the id of the process, and their stacks hold the file that runs. It is empty where that is not
// known.
func (s *storm) child(p *check.Pass) string {
	ended, _, _ := evidence.Rise("CPU time of children that ended", p.Counter(metric.ProcessChildrenCPU, "pid", s.pid))
	if ended.Number() == 0 {
		return ""
	}
	own := []string{s.comm}
	if command := p.Meta.Target.Cmdline; len(command) > 0 {
		own = append(own, filepath.Base(command[0])) // for an interpreter that changed its name
	}
	calls := map[string]int64{}
	for _, x := range s.samples.Samples {
		for _, i := range x.Stack {
			f := s.samples.Frames[i]
			if f.Kind == stacks.Native && f.Module != "" && !strings.Contains(f.Module, ".so") {
				calls[f.Module] += x.Count
				break
			}
		}
	}
	for program, n := range calls {
		isOwn := slices.ContainsFunc(own, func(name string) bool {
			return strings.HasPrefix(program, name) || strings.HasPrefix(name, program)
		})
		if 2*n > s.samples.Total().Count && !isOwn { // at most one has more than half
			return program
		}
	}
	return ""
}

func (s *storm) report(p *check.Pass) {
	who, call := evidence.PIDName(s.pid, s.comm), s.call
	if child := s.child(p); child != "" {
		call += " of " + child
	}
	f := check.Finding{
		Subject:    evidence.PIDSubject(s.pid, s.comm),
		Severity:   check.Info,
		Weight:     s.cost.Number(),
		Confidence: evidence.SampledConfidence(s.samples.Total().Count+s.way, nil),
		Summary:    fmt.Sprintf("%s has %s of the system time of %s, %s", call, s.share.Text(), who, s.cost.Text()),
		Evidence:   []quantity.Value{s.share, s.system, s.cost},
		Remedies: []check.Remedy{{
			Action: "Make fewer calls: buffer what is written or read, hand over many pieces with one call (writev, " +
				"sendmmsg), " +
				"or wait with poll or epoll instead of asking again.",
			Command: check.Commandf("strace -f -p %s -e trace=%s shows the file and the sizes", s.pid, s.name()),
			Risk: "What is in a buffer is lost if the process is killed, and readers see it later. " +
				"strace slows the program while it runs.",
			Effect: s.cost.Text() + " less at most",
		}},
		Placebos: []string{"A faster disk, or a file in memory: the cost is that of the calls, not of where the " +
			"bytes go."},
		Disproof: "perf trace -s -p " + check.Quote(s.pid) + " counts few calls of " + s.name(),
	}
	if s.way > 0 {
		const text = "%d of its samples are the way into the kernel and back, by its part of all calls counted"
		f.Notes = append(f.Notes, fmt.Sprintf(text, s.way))
	}
	if s.onMessages() {
		f.Notes = append(f.Notes, "the calls are on sockets or eventfds, where each message needs one: by itself "+
			"that is normal")
		f.Remedies[0].Action = "Nothing, if each call has a message of its own. Else gather several into one: " +
			"writev, sendmmsg, pipelining."
		f.Placebos = nil
	}
	if s.owns {
		f.Facts = append(f.Facts, evidence.OwnsCPU)
	}
	s.assessCalls(p, &f)
	p.Report(f)
}

func (s *storm) name() string { return strings.TrimSuffix(s.call, "()") }

// assessCalls adds what --deep counted, and judges it.
func (s *storm) assessCalls(p *check.Pass, f *check.Finding) {
	if !p.Recorded(metric.SyscallCalls) {
		if rate, size, ok := s.kernelCounts(p); ok {
			f.Evidence = append(f.Evidence, rate)
			s.judgeSize(p, f, rate, size)
			return
		}
		f.Notes = append(f.Notes, "--deep adds the calls a second, the bytes of each and how many fail: "+
			"without it, nobody knows whether they are too many")
		return
	}
	calls := gaugeSum("calls of all processes of the target", p.Gauge(metric.SyscallCalls, "syscall", s.name()))
	if calls.Number() == 0 || p.Meta.Duration <= 0 {
		f.Notes = append(f.Notes, "no call of this name was counted: its rate is not known")
		return
	}
	failed := gaugeSum("failed", p.Gauge(metric.SyscallErrors, "syscall", s.name()))
	rate := calls.Per(quantity.Of("window", p.Meta.Duration, quantity.Seconds)).As(callsPerSecond).
		Named("calls of %s", s.call)
	errors := failed.Per(calls).Named("calls of %s that fail", s.call)
	f.Evidence = append(f.Evidence, rate, errors)
	often := rate.AtLeast(p.Param(stormRate))
	// A futex call fails when the lock was free again: lock-contention reports that.
	if often && s.name() != "futex" && errors.AtLeast(p.Param(stormErrors)) {
		f.Severity = check.Warning
		f.Summary += fmt.Sprintf("; %s, and %s fail, most with %s", rate.Text(), errors.Text(), s.commonError(p))
		return
	}
	if size, ok := s.size(p, calls.Number()-failed.Number()); ok {
		s.judgeSize(p, f, rate, size)
	}
}

// kernelCounts returns the process's reads or writes per second and the bytes of each, as the kernel counts them; ok
// is false for other calls.
func (s *storm) kernelCounts(p *check.Pass) (rate, size quantity.Value, ok bool) {
	direction := ""
	switch s.name() {
	case "read", "pread64", "readv", "preadv", "preadv2":
		direction = "read"
	case "write", "pwrite64", "writev", "pwritev", "pwritev2":
		direction = "write"
	}
	match := []string{"pid", s.pid, "direction", direction}
	calls, span, counted := evidence.Rise("calls that "+direction, p.Counter(metric.ProcessCalls, match...))
	moved, _, counted2 := evidence.Rise("bytes", p.Counter(metric.ProcessCallBytes, match...))
	if !counted || !counted2 || calls.Number() == 0 {
		return rate, size, false
	}
	return calls.Per(span).As(callsPerSecond).Named("calls that %s, of %s", direction, evidence.PIDName(s.pid, s.comm)),
		moved.Per(calls).As(bytesPerCall).Named("bytes of each"), true
}

// judgeSize warns of many calls that move little each.
func (s *storm) judgeSize(p *check.Pass, f *check.Finding, rate, size quantity.Value) {
	f.Evidence = append(f.Evidence, size)
	f.Summary += fmt.Sprintf("; %s of %s each", rate.Text(), quantity.Of("", size.Number(), quantity.Bytes).Text())
	if rate.AtLeast(p.Param(stormRate)) && size.Below(p.Param(stormBytes)) && !s.onMessages() {
		f.Severity = check.Warning
		f.Remedies[0].Effect = fmt.Sprintf("with a buffer of 8 KiB from %s to %s; %s less at most", rate.Text(),
			quantity.Of("", rate.Number()*size.Number()/bufferBytes, callsPerSecond).Text(), s.cost.Text())
	}
}

// bufferBytes is the buffer size of java.io.BufferedOutputStream and of PerlIO; stdio and bufio have 4 KiB.
const bufferBytes = 8192

// size returns the bytes of a call; ok is false for calls that move none.
func (s *storm) size(p *check.Pass, calls float64) (quantity.Value, bool) {
	moved := p.Gauge(metric.SyscallBytes, "syscall", s.name())
	if len(moved) == 0 || calls <= 0 {
		return quantity.Value{}, false
	}
	return gaugeSum("bytes", moved).Per(quantity.Of("calls that did not fail", calls, quantity.Events)).
		As(bytesPerCall).Named("bytes of a call of %s", s.call), true
}

func (s *storm) commonError(p *check.Pass) string {
	counts := map[string]int64{}
	for _, e := range p.Gauge(metric.SyscallErrors, "syscall", s.name()) {
		counts[e.Label("error")] += int64(e.Last())
	}
	return evidence.Heaviest(counts)
}

// gaugeSum adds up the last values of series of one metric.
func gaugeSum(label string, series []recording.GaugeSeries) quantity.Value {
	sum, unit := 0.0, quantity.Events
	if len(series) > 0 {
		unit = series[0].Metric.Describe().Unit
	}
	for _, s := range series {
		sum += s.Last()
	}
	return quantity.Of(label, sum, unit)
}
