package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

const (
	// enoughKernel is how many samples in the kernel are enough to name what it does: with 95 % certainty a share of a half is known to
	// 15 points then, which ranks the first from the rest.
	enoughKernel = 40
	// namedFunctions and namedCalls are how many of them a finding names: those past them are small.
	namedFunctions, namedCalls = 4, 3
	// worthNamingShare is the least share of one that is named.
	worthNamingShare = 0.05
)

const profileSamples = quantity.Unit("samples")

// kernelNames says what the kernel's time is spent on.
type kernelNames struct {
	functions string           // "__inet_hash_connect 29 %, __inet_check_established 19 %"; the time of each alone
	calls     string           // "connect() 92 %"
	processes string           // "4021 (java) 88 %"
	evidence  []quantity.Value // of the first call
	samples   int64

	call, process string // with the most samples; "" if the stacks do not tell
}

// mostly is the share from which on a summary names one system call.
const mostly = 0.5

// summary is the end of a finding's one line; empty when no system call has most of the time.
func (n kernelNames) summary() string {
	if len(n.evidence) == 0 || n.evidence[0].Number() < mostly {
		return ""
	}
	return fmt.Sprintf("; most of it is %s, most by %s", n.call, n.process)
}

// systemNames says what the kernel does on behalf of processes; ok is false without a profile, or with too few samples in the
// kernel.
func systemNames(p *check.Pass) (n kernelNames, ok bool) {
	h, ok := hotcode.HostOf(p.Recording)
	if !ok {
		return n, false
	}
	return namesOf(p, h.System(), "system")
}

// softirqNames says what softirqs do. They are on behalf of nobody: who was interrupted is not told.
func softirqNames(p *check.Pass) (n kernelNames, ok bool) {
	h, ok := hotcode.HostOf(p.Recording)
	if !ok {
		return n, false
	}
	n, ok = namesOf(p, h.Softirq(), "softirq")
	n.calls, n.processes, n.evidence = "", "", nil
	return n, ok
}

func namesOf(p *check.Pass, prof *stacks.Profile, what string) (n kernelNames, ok bool) {
	n.samples = prof.Total().Count
	if n.samples < enoughKernel {
		return n, false
	}
	own := map[string]int64{}
	for _, s := range prof.Samples {
		own[prof.Frames[s.Stack[0]].Name] += s.Count
	}
	n.functions = rankedShares(own, n.samples, namedFunctions)
	calls := map[string]int64{}
	for _, g := range stacks.Group(prof, func(s stacks.Sample) string { return hotcode.Entry(prof, s) }) {
		if g.Key != "" {
			calls[g.Key] += g.Count
		}
	}
	n.calls = rankedShares(calls, n.samples, namedCalls)
	if n.call = heaviest(calls); n.call != "" {
		n.evidence = append(n.evidence, sampleShare(n.call, calls[n.call], n.samples, what))
	}
	names := processNames(p, prof)
	processes := map[string]int64{}
	for _, g := range stacks.Group(prof, func(s stacks.Sample) int { return prof.ThreadOf(s).ID }) {
		processes[names[g.Key]] += g.Count
	}
	n.processes, n.process = rankedShares(processes, n.samples, namedProcesses), heaviest(processes)
	return n, true
}

// sampleShare is the share of the kernel's samples that something has.
func sampleShare(of string, count, all int64, what string) quantity.Value {
	return quantity.Of(of, float64(count), profileSamples).
		Per(quantity.Of(what+" samples", float64(all), profileSamples)).Named("%s, share of the %s samples", of, what)
}

// processNames gives "4021 (java)" for each process of a profile: the process's own name where it was recorded, else a thread's.
func processNames(p *check.Pass, prof *stacks.Profile) map[int]string {
	comms := map[string]string{}
	for _, s := range p.Counter(metric.ProcessCPU) {
		comms[s.Label("pid")] = s.Label("comm")
	}
	out := map[int]string{}
	for _, t := range prof.Threads {
		pid := fmt.Sprint(t.ID)
		if _, known := out[t.ID]; !known {
			out[t.ID] = pidName(pid, cmp.Or(comms[pid], t.Name))
		}
	}
	return out
}

// rankedShares gives "connect() 92 %, close() 5 %".
func rankedShares(counts map[string]int64, all int64, most int) string {
	var names []string
	for name, n := range counts {
		if float64(n) >= worthNamingShare*float64(all) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	var parts []string
	for _, name := range names[:min(len(names), most)] {
		parts = append(parts, name+" "+quantity.Of("", float64(counts[name])/float64(all), quantity.Ratio).Text())
	}
	return strings.Join(parts, ", ")
}

// heaviest gives the key with the greatest count, the lesser of equals; "" of none.
func heaviest(counts map[string]int64) (best string) {
	for name, n := range counts {
		if best == "" || n > counts[best] || n == counts[best] && name < best {
			best = name
		}
	}
	return best
}

// notes are the lines of a finding that name what the kernel does.
func (n kernelNames) notes(what string) []string {
	var out []string
	if n.functions != "" {
		out = append(out, fmt.Sprintf("%s is in the kernel functions %s (of %d samples)", what, n.functions, n.samples))
	}
	if n.calls != "" {
		out = append(out, "entered by "+n.calls)
	}
	if n.processes != "" {
		out = append(out, "on behalf of "+n.processes)
	}
	return out
}

// kernelShare gives the share of all samples in the kernel that have one of these functions anywhere in their stack, and the kernel's
// functions of those that do, by their own time; ok is false without a profile or with too few samples. pids narrows it to
// processes; none is the whole host.
func kernelShare(p *check.Pass, what string, pids []int, functions ...string) (share quantity.Value, top string, ok bool) {
	h, ok := hotcode.HostOf(p.Recording)
	if !ok {
		return share, "", false
	}
	kernel := h.InKernel()
	if len(pids) > 0 {
		kernel = kernel.Filter(func(s stacks.Sample) bool { return slices.Contains(pids, h.ThreadOf(s).ID) })
	}
	all := kernel.Total().Count
	if all < enoughKernel {
		return share, "", false
	}
	hit := kernel.Containing(kernel.Set(func(f stacks.Frame) bool {
		return f.Kind == stacks.Kernel && slices.Contains(functions, f.Name)
	}))
	own := map[string]int64{}
	for _, s := range hit.Samples {
		own[hit.Frames[s.Stack[0]].Name] += s.Count
	}
	return sampleShare(what, hit.Total().Count, all, "kernel"), rankedShares(own, all, namedFunctions), true
}

// entryShare gives the share of a process's CPU samples that came into the kernel by an entry as [hotcode.Entry] names it; ok is false
// without a profile or with too few samples.
func entryShare(p *check.Pass, pid, entry string) (share quantity.Value, ok bool) {
	h, ok := hotcode.HostOf(p.Recording)
	n, err := strconv.Atoi(pid)
	if !ok || err != nil {
		return share, false
	}
	own := h.Of(n)
	all := own.Total().Count
	if all < enoughKernel {
		return share, false
	}
	hit := own.Filter(func(s stacks.Sample) bool { return hotcode.Entry(own, s) == entry })
	return sampleShare(entry, hit.Total().Count, all, "process's CPU"), true
}
