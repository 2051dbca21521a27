package ebpf

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func syscallsCollector(l *Loader) collect.Collector {
	return collect.Collector{
		Name: "bpf-syscalls",
		Doc:  "The target's system calls by name: how many, how long, how many bytes, and how they failed.",
		Overhead: "measured by the kernel and recorded as bpf_program_seconds_total: 0.46 µs a system call of the " +
			"target's, of which " +
			"one that makes 500,000 a second loses a fifth; those of other processes take the kernel's slower path " +
			"meanwhile",
		Provides: append(Costs(), syscallMetrics()...),
		Requires: requires(),
		Since:    tracepointsWithTypes(),
		Pace:     collect.AtEnd,
		Deep:     true,
		Open: func(ctx context.Context, env collect.Env) (collect.Source, error) {
			if !env.Deep {
				return nil, collect.Unavailable(recording.StatusUnsupported, "add --deep",
					"each system call of the target would cost it half a microsecond: it is done with --deep only")
			}
			members, err := targetMembers(ctx, env, "each system call")
			if err != nil {
				return nil, err
			}
			s, err := l.open(ctx, bpf.LoadSyscalls, func(spec *cilium.CollectionSpec, _ *btf.Spec) error {
				return setTargets(spec, members)
			})
			if err != nil {
				return nil, err
			}
			return &callCounts{s}, nil
		},
	}
}

func syscallMetrics() []metric.Metric {
	return []metric.Metric{
		metric.SyscallCalls, metric.SyscallErrors, metric.SyscallSeconds, metric.SyscallBytes, metric.SyscallDurations,
	}
}

// callCounts is the source of bpf-syscalls.
type callCounts struct{ set *set }

// Close unloads the programs.
func (s *callCounts) Close() error { return s.set.Close() }

// Sample appends the calls since Open.
func (s *callCounts) Sample(_ context.Context, a *recording.Appender) error {
	if err := s.set.appendCost(a); err != nil {
		return err
	}
	if _, err := s.set.appendLost(a, "system calls of threads past the kernel's table",
		"failed system calls past the kernel's table",
		"system calls of an unknown number"); err != nil {
		return err
	}
	totals := s.set.collection.Maps[bpf.SyscallsMapTotals]
	for number := range totals.MaxEntries() {
		var each []bpf.SyscallsCallTotals // by CPU
		if err := totals.Lookup(number, &each); err != nil {
			return fmt.Errorf("read the system calls of number %d: %w", number, err)
		}
		appendCalls(a, callName(int32(number)), each)
	}
	failures := map[[2]string]uint64{}
	err := readHash(s.set.collection.Maps[bpf.SyscallsMapFailures], func(f bpf.SyscallsFailure, n *uint64) {
		failures[[2]string{callName(int32(f.Call)), errnoName(f.Error)}] += *n
	})
	for key, n := range failures {
		a.Gauge(metric.SyscallErrors, float64(n), key[:]...)
	}
	a.None(syscallMetrics()...)
	return err
}

func appendCalls(a *recording.Appender, name string, each []bpf.SyscallsCallTotals) {
	var sum bpf.SyscallsCallTotals
	for _, t := range each {
		sum.Calls += t.Calls
		sum.Ns += t.Ns
		sum.Bytes += t.Bytes
		for i, n := range t.Buckets {
			sum.Buckets[i] += n
		}
	}
	if sum.Calls == 0 {
		return
	}
	a.Gauge(metric.SyscallCalls, float64(sum.Calls), name)
	a.Gauge(metric.SyscallSeconds, float64(sum.Ns)*1e-9, name)
	if movesBytes(name) {
		a.Gauge(metric.SyscallBytes, float64(sum.Bytes), name)
	}
	for i, n := range sum.Buckets {
		if n > 0 {
			a.Gauge(metric.SyscallDurations, float64(n), name, durationBound(i, len(sum.Buckets)))
		}
	}
}

// durationBound returns the upper bound of bucket i (BUCKETS in syscalls.bpf.c).
func durationBound(i, buckets int) string {
	if i == buckets-1 {
		return "+Inf"
	}
	return strconv.FormatFloat((time.Duration(1024) << (2 * i)).Seconds(), 'g', 6, 64)
}

// movesBytes reports whether a call returns a number of bytes. recvmmsg and sendmmsg return messages.
func movesBytes(name string) bool {
	for _, prefix := range []string{"read", "write", "pread", "pwrite", "send", "recv", "splice", "copy_file_range"} {
		if strings.HasPrefix(name, prefix) {
			return name != "readlink" && name != "readlinkat" && name != "readahead" && !strings.HasSuffix(name, "mmsg")
		}
	}
	return false
}

// errnoName names an error. From 512 on they are the kernel's own, about restarting a call (include/linux/errno.h).
func errnoName(errno int32) string {
	if errno >= 512 && errno <= 516 {
		return "ERESTART"
	}
	if name := unix.ErrnoName(unix.Errno(errno)); name != "" {
		return name
	}
	return strconv.Itoa(int(errno))
}
