package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// maxDelayReads bounds the threads whose waits for a CPU are read in one sample, those of the busiest processes first:
// 10 µs each.
const maxDelayReads = 2000

// whoReader reads who a process of the host is, and what it uses besides CPU time.
type whoReader struct {
	host     *host.Host
	pageSize float64
	delay    host.Probe     // whether the kernel counts waits for a CPU
	users    map[int]string // names, by id
	buf      []byte

	threads   int   // whose waits were read in this sample
	delays    bool  // some were
	io        bool  // the I/O of some process was read
	ioTrouble error // why the I/O of another was not
}

func newWhoReader(h *host.Host) *whoReader {
	return &whoReader{
		host: h, pageSize: float64(os.Getpagesize()), delay: h.Probe(host.Schedstat), users: map[int]string{},
		buf: make([]byte, 1024),
	}
}

// append appends what it reads of processes; it looks up the owners only of those in owned.
func (w *whoReader) append(
	ctx context.Context, a *recording.Appender, list []host.Process, owned map[host.TaskID]bool,
) error {
	uptime, err := readUptime(w.host)
	if err != nil {
		a.Missing(metric.ProcessStart, recording.StatusFailed, err.Error(), "")
	}
	w.threads, w.delays, w.io, w.ioTrouble = 0, false, false, nil
	for _, p := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		pid := strconv.Itoa(p.PID)
		if uptime > 0 {
			a.Gauge(metric.ProcessStart, max(0, uptime-seconds(p.StartTime)), pid, p.Comm)
		}
		w.appendInfo(a, p, owned[p.Task()])
		if p.Flags&host.FlagKernelThread != 0 {
			continue
		}
		a.Gauge(metric.HostProcessRSS, max(0, float64(p.RSS))*w.pageSize, pid, p.Comm)
		if cpuTicks(p.Stat) > 0 { // a process that never ran did not read, write or wait
			w.appendIO(a, p)
			w.appendDelay(a, p)
		}
	}
	a.None(metric.HostProcessRSS)
	w.report(a)
	return nil
}

func (w *whoReader) appendInfo(a *recording.Appender, p host.Process, owned bool) {
	cgroup, container, user := "", "", ""
	if owned {
		if o, err := w.host.Owner(p.PID); err == nil { // otherwise it has ended meanwhile, or is hidden
			cgroup, container, user = o.Cgroup, o.Container, w.userName(o.UID)
		}
	}
	a.Info(metric.ProcessInfo, strconv.Itoa(p.PID), p.Comm, strconv.Itoa(p.PPID), cgroup, container, user)
}

func (w *whoReader) userName(uid int) string {
	name, known := w.users[uid]
	if !known {
		name = w.host.UserName(uid)
		w.users[uid] = name
	}
	return name
}

func (w *whoReader) appendIO(a *recording.Appender, p host.Process) {
	pid := strconv.Itoa(p.PID)
	path := w.host.Proc + "/" + pid + "/io"
	b, err := host.ReadFile(path, w.buf)
	if err == nil {
		w.buf = b
		var n ioCounts
		if n, err = parseIO(b); err == nil {
			w.io = true
			a.Counter(metric.HostProcessIO, n.diskRead, pid, p.Comm, "read")
			a.Counter(metric.HostProcessIO, n.diskWritten, pid, p.Comm, "write")
			return
		}
	}
	if !gone(err) {
		w.ioTrouble = fmt.Errorf("%s: %w", path, err)
	}
}

// appendDelay adds up the waits of all threads, if all could be read.
func (w *whoReader) appendDelay(a *recording.Appender, p host.Process) {
	if w.delay.Status != host.Available || w.threads+p.Threads > maxDelayReads {
		return
	}
	tids, err := taskIDs(w.host, p.PID)
	if err != nil {
		return
	}
	w.threads += len(tids)
	pid, total := strconv.Itoa(p.PID), 0.0
	for _, tid := range tids {
		b, err := host.ReadFile(w.host.Proc+"/"+pid+"/task/"+strconv.Itoa(tid)+"/schedstat", w.buf)
		if gone(err) {
			continue
		}
		if err != nil {
			return
		}
		w.buf = b
		wait, err := parseRunDelay(b)
		if err != nil {
			return
		}
		total += wait
	}
	w.delays = true
	a.Gauge(metric.HostProcessDelay, total, pid, p.Comm)
}

func (w *whoReader) report(a *recording.Appender) {
	switch {
	case w.delay.Status != host.Available:
		a.Missing(metric.HostProcessDelay, recording.StatusUnsupported, w.delay.Reason, w.delay.Remedy)
	case !w.delays:
		a.None(metric.HostProcessDelay)
	}
	switch {
	case w.io:
	case w.ioTrouble != nil:
		a.Missing(metric.HostProcessIO, status(w.ioTrouble), w.ioTrouble.Error(), asRoot)
	default:
		a.Missing(metric.HostProcessIO, recording.StatusUnsupported, "no process has /proc/PID/io",
			"a kernel with CONFIG_TASK_IO_ACCOUNTING")
	}
}

// ioCounts is /proc/PID/io: bytes from and to disks, and the calls that read or wrote whatever, with their bytes
// (fs/proc/base.c, do_io_accounting). recv(2), send(2) and their kin do not count as such calls (fs/read_write.c).
type ioCounts struct {
	diskRead, diskWritten float64
	read, written         float64
	reads, writes         float64
}

func parseIO(b []byte) (n ioCounts, err error) {
	fields := map[string]*float64{
		"read_bytes": &n.diskRead, "write_bytes": &n.diskWritten,
		"rchar": &n.read, "wchar": &n.written, "syscr": &n.reads, "syscw": &n.writes,
	}
	for line := range bytes.Lines(b) {
		key, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		into, ok := fields[string(key)]
		if !ok {
			continue
		}
		v, err := strconv.ParseUint(string(value), 10, 64)
		if err != nil {
			return ioCounts{}, fmt.Errorf("bad %s %.40q", key, value)
		}
		*into = float64(v)
		delete(fields, string(key))
	}
	if len(fields) > 0 {
		return ioCounts{}, fmt.Errorf("%d of the six counts are missing", len(fields))
	}
	return n, nil
}
