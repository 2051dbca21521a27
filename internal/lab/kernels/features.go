package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors"
	"github.com/perfdoctor/perfdoctor/internal/collectors/ebpf"
)

// A kernel is a column of the table.
type kernel struct {
	name    string
	release string // release of Debian's kernel, as for vm.FetchKernel; "" for the kernel of this machine
	arch    string // as GOARCH
}

// The kernels of the matrix, beginning with the oldest that must run BPF programs.
var (
	thisHost = kernel{name: "this machine"}
	linux510 = kernel{"5.10", "5.10", "amd64"}
	linux61  = kernel{"6.1", "6.1", "amd64"}
	linux612 = kernel{"6.12", "6.12", "amd64"}
	arm612   = kernel{"6.12 arm64", "6.12", "arm64"}
)

func kernels() []kernel { return []kernel{thisHost, linux510, linux61, linux612, arm612} }

// A feature is a row of the table: tests of this repository that must pass on every kernel that has what the feature
// needs.
type feature struct {
	name string
	// The floor of the feature is the oldest kernel it must work on. The tests may be skipped only on an older one.
	// The floor is that of the collector, or since, or there is none.
	collector string
	since     collect.Floor
	pkg       string   // below internal
	tests     []string // each must exist, and no part of it may be skipped
	env       []string
	// only lists the kernels that have what the tests need, and because says why the others lack it. Empty: all
	// kernels.
	only    []kernel
	because string
	// clock derives the guest's time from the count of instructions; see vm.Options.
	clock time.Duration
}

// knownPMU describes the machine to the tests of package perfevent.
const knownPMU = "PERFDOCTOR_TEST_PMU="

// instructionClock returns a row about hardware counters. Their correct values are known only in a guest whose time
// is derived from the count of instructions.
func instructionClock(name string, each time.Duration, tests ...string) feature {
	return feature{
		name: name, pkg: "kernel/perfevent", tests: tests, clock: each, env: []string{knownPMU + each.String()},
		only: []kernel{arm612}, because: "only an emulated arm64 machine with a clock of instructions has counters " +
			"whose values are known",
	}
}

// features returns the only list. A collector that declares a floor must have a row.
func features() []feature {
	return append(slices.Concat(connectionFeatures(), programFeatures(), counterFeatures()), feature{
		name: "experiments, and that they are undone", pkg: "cli/experiment",
		tests: []string{"TestInterference", "TestShows"},
	})
}

// connectionFeatures returns the rows of BPF programs about connections and their peers.
func connectionFeatures() []feature {
	return []feature{
		{
			name: "connections: each end of 1009, by process", collector: "bpf-connections", pkg: "collectors/ebpf",
			tests: []string{"TestShortConnections", "TestProcesses", "TestOtherNamespace"},
		},
		{
			name: "connections: each way to fail", collector: "bpf-connections", pkg: "collectors/ebpf",
			tests: []string{"TestFailures"},
		},
		{
			name: "connections: those given up, turned away, or reset", collector: "bpf-connections",
			pkg: "collectors/ebpf", tests: []string{"TestGivenUp", "TestTurnedAway"},
		},
		{
			name: "exchanges: each of 211, and its time, on both sides", collector: "bpf-exchanges",
			pkg: "collectors/ebpf", tests: []string{"TestExchanges"},
		},
		{
			name: "name servers: each of 24 questions, and its answer", collector: "bpf-dns", pkg: "collectors/ebpf",
			tests: []string{"TestDNS"},
		},
		{
			name: "connections: search for a port", collector: "bpf-connections", pkg: "collectors/ebpf",
			tests: []string{"TestPortSearch"},
		},
		{
			name: "search for a port, against fentry and fexit", collector: "bpf-connections", pkg: "collectors/ebpf",
			tests: []string{"TestPortSearchOfTheFunction"}, only: []kernel{linux510, linux61, linux612},
			because: "programs at functions may not load here, or are not there (arm64 before Linux 6.0)",
		},
		{
			name: "bind() for any port, found and not", collector: "bpf-binds", pkg: "collectors/ebpf",
			tests: []string{"TestBinds"},
		},
		{
			name: "connections: whose port bind() took", collector: "bpf-connections", pkg: "collectors/ebpf",
			tests: []string{"TestConnectsBound"},
		},
	}
}

// programFeatures returns the rows of other BPF programs.
func programFeatures() []feature {
	return []feature{
		{
			name: "softirqs, against /proc/softirqs", collector: "bpf-softirq", pkg: "collectors/ebpf",
			tests: []string{"TestSoftirqs", "TestSoftirqTurns"},
		},
		{
			name: "CPU profile, against schedstat", collector: "bpf-cpu-profile", pkg: "collectors/ebpf",
			tests: []string{"TestOwnCPU", "TestWholeHost"},
		},
		{
			name: "system calls by name, with errors and bytes", collector: "bpf-syscalls", pkg: "collectors/ebpf",
			tests: []string{"TestSyscalls"},
		},
		{
			name: "sleeps with their stacks", collector: "bpf-scheduler", pkg: "collectors/ebpf",
			tests: []string{"TestSleeps", "TestManyStacks"},
		},
		{
			name: "waits for a CPU, against schedstat", collector: "bpf-scheduler", pkg: "collectors/ebpf",
			tests: []string{"TestCPUWaits"},
		},
		{
			name: "throttled threads, against cpu.stat", collector: "bpf-scheduler", pkg: "collectors/ebpf",
			tests: []string{"TestThrottled"},
		},
		{
			name: "waits for a CPU by control group, against schedstat", collector: "bpf-run-queue",
			pkg:   "collectors/ebpf",
			tests: []string{"TestGroupWaits"},
		},
		{
			name: "throttled while waiting, against cpu.stat", collector: "bpf-run-queue", pkg: "collectors/ebpf",
			tests: []string{"TestGroupThrottled"},
		},
		{
			name: "CPU limits of all groups, against cpu.stat", since: ebpf.BandwidthFloor(), pkg: "collectors/ebpf",
			tests: []string{"TestBandwidth", "TestAllLimitsOfTheHost", "TestTooManyLimits"},
		},
		{
			name: "sockets in each state, against sock_diag", since: ebpf.SocketsFloor(), pkg: "collectors/ebpf",
			tests: []string{"TestSocketIterator"},
		},
		{
			name: "descriptors of sockets, against fstat", since: ebpf.SocketsFloor(), pkg: "collectors/ebpf",
			tests: []string{"TestHolders"},
		},
	}
}

// counterFeatures returns the rows of perf_event counters.
func counterFeatures() []feature {
	return []feature{
		instructionClock("instructions per cycle: 1.0000", time.Nanosecond, "TestKnownIPC"),
		instructionClock("instructions per cycle: 0.5000", 2*time.Nanosecond, "TestKnownIPC",
			"TestInstructionsOfALoop"),
		instructionClock("instructions per cycle: 0.2500", 4*time.Nanosecond, "TestKnownIPC"),
		instructionClock("instructions per cycle of a control group: 0.5000", 2*time.Nanosecond, "TestGroupIPC"),
		instructionClock("counters shared by 12 events, scaled", 2*time.Nanosecond, "TestMultiplexed"),
		instructionClock("events without a counter stay missing", 2*time.Nanosecond, "TestMissingEvents"),
		{
			name: "a PMU with cycles and no instructions", pkg: "kernel/perfevent", tests: []string{"TestPartialPMU"},
			env: []string{knownPMU + "partial"}, only: []kernel{arm612},
			because: "only an emulated arm64 machine has such counters",
		},
	}
}

// floor returns the feature's floor. declared are the floors of the collectors.
func (f feature) floor(declared map[string]collect.Floor) collect.Floor {
	if f.collector != "" {
		return declared[f.collector]
	}
	return f.since
}

// on reports whether the kernel can have the feature.
func (f feature) on(k kernel) bool { return len(f.only) == 0 || slices.Contains(f.only, k) }

// floors returns what the collectors declare, by name.
func floors() map[string]collect.Floor {
	all := map[string]collect.Floor{}
	for _, c := range collectors.All(collectors.Options{}) {
		if c.Since.Release != "" {
			all[c.Name] = c.Since
		}
	}
	return all
}

// checkList refuses a list that leaves something untested.
func checkList(list []feature, floors map[string]collect.Floor) error {
	seen := map[string]bool{}
	for _, f := range list {
		if _, ok := floors[f.collector]; f.collector != "" && !ok {
			return fmt.Errorf("feature %q: no collector %s declares the kernel it needs", f.name, f.collector)
		}
		if (len(f.only) > 0) != (f.because != "") {
			return fmt.Errorf("feature %q: the kernels it is for and the reason belong together", f.name)
		}
		seen[f.collector] = true
	}
	for name := range floors {
		if !seen[name] {
			return fmt.Errorf("collector %s declares the kernel it needs, but no feature of the list tests it", name)
		}
	}
	return nil
}
