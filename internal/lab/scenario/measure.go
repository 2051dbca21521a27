package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host/clock"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// The metrics of a phase, over the time of the diagnosis. The percentiles of an external program, and of a load that
// completed no request in that time, cover the time since its start.
const (
	Throughput = "throughput" // units a second
	P50        = "p50"        // seconds
	P90        = "p90"        // seconds
	P99        = "p99"        // seconds
	Errors     = "errors"     // a second
	// seconds of all CPUs of the machine, including everything that ran; for one process: [ofProcess]
	CPUPerUnit = "cpu_per_request"
	TargetCPU  = "target_cpu_per_request" // CPU seconds of the diagnosed process alone
	SoftirqPer = "softirq_per_request"    // the part of CPUPerUnit that is in softirq
	// packets processed by softnet on the machine: a packet counts once for each device that receives it
	PacketsPer = "packets_per_request"
	CPU        = "cpu"     // CPUs that the diagnosed process used: its CPU seconds a second
	Memory     = "memory"  // its peak resident bytes since its start
	Stopped    = "stopped" // share of the time that CPU limits throttled its group, summed over CPUs
	Paused     = "paused"  // share of the time that its JVM's garbage collector stopped it
)

// ofProcess stands between [CPUPerUnit] and the name of a process: what a fix saves in one process would be lost in
// the noise of the machine's total.
const ofProcess = " of "

const (
	unitsPerSec  = quantity.Unit("requests/s")
	errorsPerSec = quantity.Unit("errors/s")
	packetsEach  = quantity.Unit("packets")
	// cpuTick is the unit of /proc/stat in user space, in seconds, on every architecture Go runs on
	// (include/asm-generic/param.h).
	cpuTick = 0.01
	// summaryWait is how long a load generator may take to print its summary: wrk takes a tenth of a second.
	summaryWait = 3 * time.Second
)

// metricUnits returns all metrics, in the order of output.
func metricUnits() []struct {
	Name string
	Unit quantity.Unit
} {
	return []struct {
		Name string
		Unit quantity.Unit
	}{
		{Throughput, unitsPerSec},
		{P50, quantity.Seconds},
		{P90, quantity.Seconds},
		{P99, quantity.Seconds},
		{Errors, errorsPerSec},
		{CPUPerUnit, quantity.Seconds},
		{TargetCPU, quantity.Seconds},
		{SoftirqPer, quantity.Seconds},
		{PacketsPer, packetsEach},
		{CPU, quantity.CPUs},
		{Memory, quantity.Bytes},
		{Stopped, quantity.Ratio},
		{Paused, quantity.Ratio},
	}
}

// metricNames returns the metrics that a scenario with these processes can have, in the order of output.
func metricNames(processes []Process) []string {
	var names []string
	for _, m := range metricUnits() {
		names = append(names, m.Name)
	}
	for i := range processes {
		names = append(names, CPUPerUnit+ofProcess+processes[i].Name)
	}
	return names
}

// metricText returns a measured number with its unit.
func metricText(name string, n float64) string {
	whole, _, _ := strings.Cut(name, ofProcess)
	for _, m := range metricUnits() {
		if m.Name == whole {
			return quantity.Of(name, n, m.Unit).Text()
		}
	}
	return strconv.FormatFloat(n, 'g', 4, 64)
}

// reading is the state of load and machine at one moment.
type reading struct {
	stats   lab.Stats
	cpu     cpuTime
	packets uint32  // processed by softnet since boot; it wraps around
	peak    float64 // peak resident bytes of the diagnosed process; 0 when the whole machine is diagnosed
}

// peakOf reads the peak resident memory of a process, in bytes. It returns an error for a process that has ended.
func peakOf(pid int) (float64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	status, err := p.NewStatus()
	if err != nil {
		return 0, fmt.Errorf("status of process %d: %w", pid, err)
	}
	if status.VmHWM == 0 {
		return 0, fmt.Errorf("status of process %d: no line VmHWM: it has ended", pid)
	}
	return float64(status.VmHWM), nil
}

// cpuTime is CPU time of the machine since boot, in seconds.
type cpuTime struct{ busy, softirq, idle float64 }

const (
	// settleWait is how long a phase waits for the machine to become idle. idleEnough is the idle share that is
	// enough: a desktop or a monitoring agent uses less than the rest.
	settleWait  = 10 * time.Second
	settleProbe = 500 * time.Millisecond
	idleEnough  = 0.8
)

// settle waits a while for the machine to be idle, and returns the busy share of its CPU time at the end.
func settle(ctx context.Context) (busy float64, err error) {
	before, err := readCPU()
	for deadline := time.Now().Add(settleWait); err == nil; {
		if err = clock.Sleep(ctx, settleProbe); err != nil {
			return 0, err
		}
		var now cpuTime
		if now, err = readCPU(); err != nil {
			return 0, err
		}
		busy = (now.busy - before.busy) / max(now.busy-before.busy+now.idle-before.idle, cpuTick)
		if busy <= 1-idleEnough || time.Now().After(deadline) {
			return busy, nil
		}
		before = now
	}
	return 0, err
}

// readCPU reads the CPU time of all CPUs. Steal time is not used by this machine, and guest time is already part of
// user time.
func readCPU() (cpuTime, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return cpuTime{}, err
	}
	stat, err := fs.Stat()
	if err != nil {
		return cpuTime{}, err
	}
	c := stat.CPUTotal
	return cpuTime{busy: c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ, softirq: c.SoftIRQ, idle: c.Idle + c.Iowait},
		nil
}

// read reads the load p, the machine and the process target, if it is not 0.
func (p *process) read(target int) (reading, error) {
	cpu, err := readCPU()
	if err != nil {
		return reading{}, err
	}
	packets, err := readSoftnet()
	if err != nil {
		return reading{}, err
	}
	r := reading{cpu: cpu, packets: packets}
	if target != 0 {
		if r.peak, err = peakOf(target); err != nil {
			return reading{}, err
		}
	}
	if p.child != nil {
		r.stats = p.child.Stats()
	}
	return r, nil
}

// readSoftnet adds up what softnet has processed on all CPUs. The counters have 32 bits and wrap around; so does the
// sum, and the difference of two is right all the same.
func readSoftnet() (sum uint32, err error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	cpus, err := fs.NetSoftnetStat()
	if err != nil {
		return 0, err
	}
	for _, cpu := range cpus {
		sum += cpu.Processed
	}
	return sum, nil
}

// measures maps metrics to values. A metric that could not be measured is missing.
type measures map[string]float64

// measure returns what happened between two readings that are window seconds apart.
func measure(before, after reading, window float64) measures {
	m := measures{}
	elapsed := (after.stats.Elapsed - before.stats.Elapsed).Seconds()
	if elapsed > 0 {
		m[Throughput] = float64(after.stats.Units-before.stats.Units) / elapsed
		m[Errors] = float64(after.stats.ErrorCount()-before.stats.ErrorCount()) / elapsed
		if after.stats.Latency.Max > 0 { // a server of package load does not measure it
			latency, some := after.stats.LatencySince(before.stats)
			if !some {
				latency = after.stats.Latency
			}
			m[P50], m[P90], m[P99] = latency.P50.Seconds(), latency.P90.Seconds(), latency.P99.Seconds()
		}
	}
	if after.peak > 0 {
		m[Memory] = after.peak
	}
	m.perUnit(before, after, window)
	return m
}

// perUnit divides the machine's CPU time and packets by the units done in the same time.
func (m measures) perUnit(before, after reading, window float64) {
	units := m[Throughput] * window
	if units <= 0 {
		return
	}
	m[CPUPerUnit] = (after.cpu.busy - before.cpu.busy) / units
	m[SoftirqPer] = (after.cpu.softirq - before.cpu.softirq) / units
	m[PacketsPer] = float64(after.packets-before.packets) / units
}

// ofTarget adds the CPU time of the diagnosed process and divides it by the units of the same time, so that it
// excludes what else the machine did. The whole machine has no such metric: that is CPUPerUnit. A process that ran
// and was throttled by no limit was stopped for no time. A program that is not a JVM has no pauses.
func (m measures) ofTarget(rec *recording.Recording) {
	used := rateOf(rec.Counter(metric.ProcessCPU, "member", "target")) // CPUs
	if used > 0 {
		m[CPU] = used
		m[Stopped] = rateOf(rec.Counter(metric.CgroupThrottledTime))
	}
	if used > 0 && m[Throughput] > 0 {
		m[TargetCPU] = used / m[Throughput]
	}
	for _, kind := range metric.GCPauseKinds() {
		if series := rec.Counter(metric.JVMGCSeconds, "kind", kind); len(series) > 0 {
			m[Paused] += rateOf(series)
		}
	}
}

// ofProcesses adds the CPU time per unit of load of each of the scenario's processes.
func (m measures) ofProcesses(rec *recording.Recording, pids map[string]int) {
	for name, pid := range pids {
		used := rateOf(rec.Counter(metric.ProcessCPU, "pid", strconv.Itoa(pid))) // CPUs
		if used > 0 && m[Throughput] > 0 {
			m[CPUPerUnit+ofProcess+name] = used / m[Throughput]
		}
	}
}

// rateOf returns how much the counters together grow a second.
func rateOf(series []recording.CounterSeries) float64 {
	sum := 0.0
	for _, s := range series {
		if r, ok := s.Rate(); ok {
			sum += r
		}
	}
	return sum
}

// summary ends an external program with SIGINT, which makes load generators print their own measurements, and reads
// those.
func (p *process) summary(ctx context.Context, m measures) error {
	if p.Run.Throughput == "" && p.Run.P99 == "" {
		return nil
	}
	if err := p.other.Signal(unix.SIGINT); err != nil {
		return err
	}
	select {
	case <-p.done():
	case <-time.After(summaryWait):
		return fmt.Errorf("process %s: still running %v after SIGINT", p.Name, summaryWait)
	case <-ctx.Done():
		return ctx.Err()
	}
	out, err := os.ReadFile(filepath.Join(p.dir, stdoutName))
	if err != nil {
		return err
	}
	if p.Run.Throughput != "" {
		if m[Throughput], err = p.find(out, p.Run.Throughput, parseNumber); err != nil {
			return err
		}
	}
	if p.Run.P99 != "" {
		m[P99], err = p.find(out, p.Run.P99, parseSeconds)
	}
	return err
}

func parseNumber(s string) (float64, error) { return strconv.ParseFloat(s, 64) }

func parseSeconds(s string) (float64, error) {
	d, err := time.ParseDuration(s)
	return d.Seconds(), err
}

func (p *process) find(out []byte, pattern string, read func(string) (float64, error)) (float64, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return 0, err
	}
	match := re.FindSubmatch(out)
	if match == nil {
		return 0, fmt.Errorf("process %s: %q is not in its output after SIGINT", p.Name, pattern)
	}
	n, err := read(string(match[1]))
	if err != nil {
		return 0, fmt.Errorf("process %s: %w", p.Name, err)
	}
	return n, nil
}
