package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/host/cgroupfs"
)

// bandwidth is a CPU limit. The zero value is no limit.
type bandwidth struct {
	cpus   float64 // quota / period
	period float64 // seconds
}

// parseMax reads cpu.max: "max 100000", or the quota and the period in microseconds (kernel/sched/core.c,
// cpu_max_show).
func parseMax(b []byte) (bandwidth, error) {
	f := bytes.Fields(b)
	if len(f) != 2 {
		return bandwidth{}, fmt.Errorf("want a quota and a period, got %.40q", b)
	}
	if string(f[0]) == "max" {
		return bandwidth{}, nil
	}
	return newBandwidth(f[0], f[1])
}

// newBandwidth makes one of a quota and a period in microseconds; a quota of -1 is no limit (v1).
func newBandwidth(quota, period []byte) (bandwidth, error) {
	q, err := strconv.ParseInt(string(bytes.TrimSpace(quota)), 10, 64)
	if err != nil || q < -1 || q == 0 {
		return bandwidth{}, fmt.Errorf("bad quota %.40q", quota)
	}
	p, err := strconv.ParseUint(string(bytes.TrimSpace(period)), 10, 63)
	if err != nil || p == 0 {
		return bandwidth{}, fmt.Errorf("bad period %.40q", period)
	}
	if q == -1 {
		return bandwidth{}, nil
	}
	return bandwidth{cpus: float64(q) / float64(p), period: float64(p) / 1e6}, nil
}

// noLimit is the value from which on a v1 memory limit means none: the kernel shows the largest multiple of the page
// size below 2^63 (include/linux/page_counter.h, PAGE_COUNTER_MAX), which depends on the page size.
const noLimit = 1 << 62

// parseLimit reads a file that holds "max" or a number; ok is false when there is no limit.
func parseLimit(b []byte) (limit float64, ok bool, err error) {
	if string(bytes.TrimSpace(b)) == "max" {
		return 0, false, nil
	}
	limit, err = cgroupfs.Number(b)
	if err != nil || limit >= noLimit {
		return 0, false, err
	}
	return limit, true, nil
}

// parseShares turns cpu.shares into the CPUs of the Kubernetes request that the kubelet would write as these shares:
// 1024 a CPU.
func parseShares(b []byte) (cpus float64, err error) {
	n, err := cgroupfs.Number(b)
	return n / sharesPerCPU, err
}

const sharesPerCPU = 1024

// parseWeight turns cpu.weight, 1 to 10000, into the same. Container runtimes map shares of 2 to 262144 to it along a
// line (KEP-2254); this is the inverse. Newer runtimes use a curve that gives small requests more weight, so the true
// request is smaller there. The weight is 0 in a group that only runs when the CPU is idle (cpu.idle).
func parseWeight(b []byte) (cpus float64, err error) {
	n, err := cgroupfs.Number(b)
	switch {
	case err != nil:
		return 0, err
	case n > maxWeight:
		return 0, fmt.Errorf("weight %.0f is above %d", n, maxWeight)
	case n == 0:
		return 0, nil
	}
	return (2 + (n-1)*(262144-2)/(maxWeight-1)) / sharesPerCPU, nil
}

// maxWeight is CGROUP_WEIGHT_MAX (include/linux/cgroup.h).
const maxWeight = 10000

// parseCPUs counts the CPUs of a list such as "0-3,8" (lib/bitmap.c, bitmap_print_to_pagebuf).
func parseCPUs(b []byte) (float64, error) {
	n := 0
	for part := range bytes.SplitSeq(bytes.TrimSpace(b), []byte(",")) {
		if len(part) == 0 && n == 0 {
			continue // a v1 group that has no CPU yet
		}
		low, high, isRange := bytes.Cut(part, []byte("-"))
		if !isRange {
			high = low
		}
		first, err := strconv.ParseUint(string(low), 10, 16)
		last, err2 := strconv.ParseUint(string(high), 10, 16)
		if err != nil || err2 != nil || last < first {
			return 0, fmt.Errorf("bad CPU list %.40q", b)
		}
		n += int(last-first) + 1
	}
	return float64(n), nil
}

// parseStalled finds the total of the lines "some" and "full" in seconds (Documentation/accounting/psi.rst). Kernels
// before 5.13 have no "full" for the CPU.
func parseStalled(b []byte) (map[string]float64, error) {
	out := map[string]float64{}
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) < 2 {
			return nil, fmt.Errorf("bad line %.40q", line)
		}
		total, ok := bytes.CutPrefix(f[len(f)-1], []byte("total="))
		n, err := strconv.ParseUint(string(total), 10, 64)
		kind := string(f[0])
		if !ok || err != nil || kind != "some" && kind != "full" {
			return nil, fmt.Errorf("bad line %.80q", line)
		}
		out[kind] = float64(n) / 1e6
	}
	if len(out) == 0 {
		return nil, errors.New("no line")
	}
	return out, nil
}
