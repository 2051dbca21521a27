package evidence

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

const (
	// EnoughKernel is how many samples in the kernel are enough to name what it does: a share of a half is then known
	// to 15 points with 95 % confidence, which separates the first from the rest.
	EnoughKernel = 40
	// NamedFunctions and namedCalls are how many functions and calls a finding names: further ones are small.
	NamedFunctions, namedCalls = 4, 3
	// worthNamingShare is the least share for which one is named.
	worthNamingShare = 0.05
)

// Samples is the unit of counts in a profile.
const Samples = quantity.Unit("samples")

// KernelNames says what the kernel's time is spent on.
type KernelNames struct {
	functions string           // "__inet_hash_connect 29 %, __inet_check_established 19 %"; by own time
	Calls     string           // "connect() 92 %"
	Processes string           // "4021 (java) 88 %"
	Evidence  []quantity.Value // for the first call
	samples   int64

	Call, Process string // with the most samples; "" if the stacks do not show it
}

// KernelNamesOf names what is in a profile of the kernel's time; ok is false if there are too few samples.
func KernelNamesOf(p *check.Pass, prof *stacks.Profile, what string) (n KernelNames, ok bool) {
	n.samples = prof.Total().Count
	if n.samples < EnoughKernel {
		return n, false
	}
	own := map[string]int64{}
	for _, s := range prof.Samples {
		own[prof.Frames[s.Stack[0]].Name] += s.Count
	}
	n.functions = RankedShares(own, n.samples, NamedFunctions)
	calls := map[string]int64{}
	for _, g := range stacks.Group(prof, func(s stacks.Sample) string { return hotcode.Entry(prof, s) }) {
		if g.Key != "" {
			calls[g.Key] += g.Count
		}
	}
	n.Calls = RankedShares(calls, n.samples, namedCalls)
	if n.Call = Heaviest(calls); n.Call != "" {
		n.Evidence = append(n.Evidence, SampleShare(n.Call, calls[n.Call], n.samples, what))
	}
	names := processNames(p, prof)
	processes := map[string]int64{}
	for _, g := range stacks.Group(prof, func(s stacks.Sample) int { return prof.ThreadOf(s).ID }) {
		processes[names[g.Key]] += g.Count
	}
	n.Processes, n.Process = RankedShares(processes, n.samples, NamedProcesses), Heaviest(processes)
	return n, true
}

// SampleShare returns the share of the kernel's samples that something has.
func SampleShare(of string, count, all int64, what string) quantity.Value {
	return quantity.Of(of, float64(count), Samples).
		Per(quantity.Of(what+" samples", float64(all), Samples)).Named("%s, share of the %s samples", of, what)
}

// processNames returns "4021 (java)" for each process of a profile, with the process's own name if it was recorded,
// else a thread's.
func processNames(p *check.Pass, prof *stacks.Profile) map[int]string {
	comms := map[string]string{}
	for _, s := range p.Counter(metric.ProcessCPU) {
		comms[s.Label("pid")] = s.Label("comm")
	}
	out := map[int]string{}
	for _, t := range prof.Threads {
		pid := fmt.Sprint(t.ID)
		if _, known := out[t.ID]; !known {
			out[t.ID] = PIDName(pid, cmp.Or(comms[pid], t.Name))
		}
	}
	return out
}

// RankedShares returns "connect() 92 %, close() 5 %".
func RankedShares(counts map[string]int64, all int64, most int) string {
	var names []string
	for name, n := range counts {
		if float64(n) >= worthNamingShare*float64(all) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]),
			cmp.Compare(a, b))
	})
	var parts []string
	for _, name := range names[:min(len(names), most)] {
		parts = append(parts, name+" "+quantity.Of("", float64(counts[name])/float64(all), quantity.Ratio).Text())
	}
	return strings.Join(parts, ", ")
}

// Heaviest returns the key with the greatest count, the least of equals; "" if there is none.
func Heaviest(counts map[string]int64) (best string) {
	for name, n := range counts {
		if best == "" || n > counts[best] || n == counts[best] && name < best {
			best = name
		}
	}
	return best
}

// Notes returns the lines of a finding that name what the kernel does.
func (n KernelNames) Notes(what string) []string {
	var out []string
	if n.functions != "" {
		out = append(out, fmt.Sprintf("%s is in the kernel functions %s (of %d samples)", what, n.functions, n.samples))
	}
	if n.Calls != "" {
		out = append(out, "entered by "+n.Calls)
	}
	if n.Processes != "" {
		out = append(out, "on behalf of "+n.Processes)
	}
	return out
}

// KernelShare returns the share of all samples in the kernel that have one of these functions anywhere in their
// stack, and the kernel functions of those samples, by own time; ok is false without a profile or with too few
// samples. pids limits it to processes; none means the whole host.
func KernelShare(p *check.Pass, what string, pids []int, functions ...string) (share quantity.Value, top string,
	ok bool,
) {
	h, ok := hotcode.HostOf(p.Recording)
	if !ok {
		return share, "", false
	}
	kernel := h.InKernel()
	if len(pids) > 0 {
		kernel = kernel.Filter(func(s stacks.Sample) bool { return slices.Contains(pids, h.ThreadOf(s).ID) })
	}
	all := kernel.Total().Count
	if all < EnoughKernel {
		return share, "", false
	}
	hit := kernel.Containing(kernel.Set(func(f stacks.Frame) bool {
		return f.Kind == stacks.Kernel && slices.Contains(functions, f.Name)
	}))
	own := map[string]int64{}
	for _, s := range hit.Samples {
		own[hit.Frames[s.Stack[0]].Name] += s.Count
	}
	return SampleShare(what, hit.Total().Count, all, "kernel"), RankedShares(own, all, NamedFunctions), true
}
