package kernel

import (
	"fmt"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

var (
	fsyncLevel = &check.Param{
		Name: "level", Default: 0.2, Unit: quantity.Ratio,
		Why: "a fifth of a thread's time goes to nothing but the disk",
	}
	fsyncWarn = &check.Param{
		Name: "warn", Default: 0.5, Unit: quantity.Ratio,
		Why: "the disk's latency sets the rate of a thread that waits for the disk more than it does anything else",
	}
)

// fsyncCalls make the caller wait until data is on the device.
var fsyncCalls = []string{"fsync", "fdatasync", "msync", "syncfs", "sync", "sync_file_range"}

var fsyncBound = &check.Check{
	Name:  "fsync-bound",
	Stage: check.Kernel,
	Doc: `Threads wait until their data is on the disk

fsync and fdatasync return when the device has the data: each costs the device's latency, whatever its bandwidth. A
thread that calls one for each record writes at most 1 / latency records a second.

Measured by the scheduler's events (always with --deep, else where the host switches between threads at most 5000 times
a second): the time a thread is blocked in fsync, fdatasync, msync or syncfs, as a share of the window, for the thread
of each pool that waits most; beside it the latency of the slowest device. From a fifth on it is a fact, from a half on
a warning.

Fix: sync once for many records (group commit, batches), or leave durability to replication where that is enough.
Risk: what was not synced is lost in a crash. Won't help: a device with more bandwidth. Disproof: strace -f -c -e
trace=fsync,fdatasync -p PID shows little time.`,
	URL:   "https://man7.org/linux/man-pages/man2/fsync.2.html",
	Needs: []metric.Metric{metric.ThreadWaitTime},
	Uses: []metric.Metric{
		metric.ThreadWaits, metric.OffCPUProfileSamples, metric.DiskReads, metric.DiskWrites, metric.DiskReadSeconds,
		metric.DiskWriteSeconds, metric.DiskBusySeconds,
	},
	Params: []*check.Param{fsyncLevel, fsyncWarn},
	Run:    runFsyncBound,
}

// A syncer is a thread that waits for its data to be on the device.
type syncer struct {
	pid, tid, comm, call string
	seconds, count       float64
}

func runFsyncBound(p *check.Pass) error {
	window, err := evidence.OffCPUWindow(p)
	if err != nil {
		return err
	}
	byThread := map[string]*syncer{}
	for _, w := range evidence.ThreadWaits(p) {
		if !slices.Contains(fsyncCalls, w.Syscall) {
			continue
		}
		if byThread[w.TID] == nil {
			byThread[w.TID] = &syncer{pid: w.PID, tid: w.TID, comm: w.Comm, call: w.Syscall}
		}
		byThread[w.TID].seconds += w.Seconds
		byThread[w.TID].count += w.Count
	}
	threads := evidence.SortedBy(byThread, func(s *syncer) float64 { return s.seconds })
	if len(threads) == 0 {
		p.Read(quantity.Of("waits in fsync", 0, quantity.Events))
		return nil
	}
	pools := map[string]bool{}
	for i, s := range threads {
		share := s.share(window)
		if i == 0 {
			p.Read(share)
		}
		pool := s.pid + " " + metric.PoolOf(s.comm)
		if share.AtLeast(p.Param(fsyncLevel)) && !pools[pool] {
			pools[pool] = true
			s.report(p, window, share, peersOf(threads, s))
		}
	}
	return nil
}

func (s *syncer) share(window quantity.Value) quantity.Value {
	return quantity.Of("blocked", s.seconds, quantity.Seconds).Per(window).
		Named("thread %s (%s) in %s, share of its time", s.tid,
			s.comm, s.call)
}

// peersOf counts the threads of a syncer's pool.
func peersOf(threads []*syncer, s *syncer) (n int) {
	for _, t := range threads {
		if t.pid == s.pid && metric.PoolOf(t.comm) == metric.PoolOf(s.comm) {
			n++
		}
	}
	return n
}

func (s *syncer) report(p *check.Pass, window, share quantity.Value, threads int) {
	waits := quantity.Of("waits", s.count, quantity.Events)
	each := quantity.Of("blocked", s.seconds, quantity.Seconds).Per(waits).As(quantity.Seconds).
		Named("a wait in %s, mean", s.call)
	f := check.Finding{
		Subject:  check.Subject{Kind: "pid", ID: fmt.Sprintf("%s (%s)", s.pid, s.comm)},
		Severity: check.Info,
		Weight:   share.Number(),
		Summary: fmt.Sprintf("thread %s (%s) waits in %s for %s of its time, %s each time", s.tid, s.comm, s.call,
			share.Text(),
			each.Text()),
		Evidence: []quantity.Value{share, each, waits.Per(window).Named("waits a second of this thread")},
		Notes: append([]string{fmt.Sprintf("threads of its pool that sync: %d", threads)},
			evidence.OffCPUPaths(p, func(x stacks.Sample) bool { return s.waits(p, x) })...),
		Remedies: []check.Remedy{{
			Action: "Sync once for many records: batches, group commit, or a commit delay where the database has one.",
			Risk:   "what was not synced is lost in a crash",
			Effect: fmt.Sprintf("time in %s from %s to below %s; records a second up by the size of a batch", s.call,
				share.Text(),
				p.Param(fsyncLevel).Text()),
		}},
		Placebos: []string{"A device with more bandwidth, or more memory: each sync waits for the latency of one " +
			"write."},
		Disproof: "strace -f -c -e trace=fsync,fdatasync -p " + s.pid + ": little time is spent in them.",
	}
	if slow, ok := evidence.SlowestDisk(p); ok {
		f.Evidence = append(f.Evidence, slow.Latency)
	}
	if share.AtLeast(p.Param(fsyncWarn)) {
		f.Severity = check.Warning
	}
	f.Confidence = evidence.SampledConfidence(int64(s.count), nil)
	p.Report(f)
}

// waits reports whether a sample shows this thread in its call. A call on a file has the class "file", whatever the
// call.
func (s *syncer) waits(p *check.Pass, x stacks.Sample) bool {
	prof, ok := p.Ranked(stacks.OffCPU)
	if !ok || fmt.Sprint(prof.ThreadOf(x).ID) != s.tid {
		return false
	}
	return slices.Contains(append([]string{"file"}, fsyncCalls...), x.Class)
}
