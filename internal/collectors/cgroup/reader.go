package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/host/cgroupfs"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// reader reads the files of groups into one sample, and remembers what it found.
type reader struct {
	a       *recording.Appender
	buf     []byte
	seen    map[metric.Metric]bool  // has a series in this sample
	trouble map[metric.Metric]error // why it has none in some level
	absent  map[metric.Metric]error // the kernel or this group lacks its file
	removed bool                    // a group was removed meanwhile
}

func newReader() *reader { return &reader{buf: make([]byte, 8192)} } // memory.stat has 2 to 6 KiB

func (r *reader) begin(a *recording.Appender) {
	r.a, r.removed, r.seen = a, false, map[metric.Metric]bool{}
	r.trouble, r.absent = map[metric.Metric]error{}, map[metric.Metric]error{}
}

// place records where the files of a controller are for a group, for the commands of a report.
func (r *reader) place(g group, controller string, version int) {
	r.a.Info(metric.CgroupDir, g.path, g.level, controller, strconv.Itoa(version), g.dir)
}

// read returns the content of a group's file, valid until the next read; nil when there is no file, which is noted for
// the metrics. It is not an error that a group has been removed meanwhile.
func (r *reader) read(g group, file string, ms ...metric.Metric) []byte {
	b, err := r.load(g, file, ms)
	if err != nil {
		r.note(r.absent, err, ms)
	}
	return b
}

// readLimit is read for the file of a limit. A missing file means that there is no limit: the root has none, and
// neither has a v2 group whose controller is off.
func (r *reader) readLimit(g group, file string, ms ...metric.Metric) []byte {
	b, _ := r.load(g, file, ms)
	return b
}

// load returns the content, or an error when the group is there and the file is not.
func (r *reader) load(g group, file string, ms []metric.Metric) ([]byte, error) {
	b, err := host.ReadFile(g.dir+"/"+file, r.buf)
	switch {
	case err == nil:
		r.buf = b
		return b, nil
	case errors.Is(err, unix.ENODEV), removed(g.dir): // ENODEV: removed after the open (fs/kernfs/file.c)
		r.removed = true
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.EOPNOTSUPP): // EOPNOTSUPP: PSI is off
		return nil, err
	default:
		r.note(r.trouble, err, ms)
	}
	return nil, nil
}

func removed(dir string) bool {
	_, err := os.Stat(dir)
	return errors.Is(err, fs.ErrNotExist)
}

// note keeps the first error of each metric, which is that of the group nearest to the target.
func (r *reader) note(in map[metric.Metric]error, err error, ms []metric.Metric) {
	for _, m := range ms {
		if in[m] == nil {
			in[m] = err
		}
	}
}

// bad notes that a file does not hold what it should; if a line is missing, the kernel is too old for it.
func (r *reader) bad(g group, file string, err error, ms ...metric.Metric) {
	in := r.trouble
	if errors.Is(err, cgroupfs.ErrNoKey) {
		in = r.absent
	}
	r.note(in, fmt.Errorf("%s/%s: %w", g.dir, file, err), ms)
}

func (r *reader) gauge(m *metric.Gauge, value float64, g group) {
	r.seen[m] = true
	r.a.Gauge(m, value, g.path, g.level)
}

func (r *reader) counter(m *metric.Counter, value float64, g group) {
	r.seen[m] = true
	r.a.Counter(m, value, g.path, g.level)
}

// noTree notes that no mounted tree shows the controller's groups.
func (r *reader) noTree(c controller) {
	where := "cgroup v2"
	if c.v1 != nil {
		where = "a cgroup v1 tree with the " + c.name + " controller, or cgroup v2,"
	}
	r.note(r.absent, fmt.Errorf("%s is not mounted or does not show the target", where), c.metrics)
}

// report says of each metric without a series whether there was none or it could not be measured.
func (r *reader) report(ms []metric.Metric) {
	for _, m := range ms {
		trouble, absent := r.trouble[m], r.absent[m]
		switch {
		case errors.Is(trouble, fs.ErrPermission):
			r.a.Missing(m, recording.StatusDenied, trouble.Error(), "run perfdoctor as root")
		case trouble != nil:
			r.a.Missing(m, recording.StatusFailed, trouble.Error(), "")
		case r.seen[m]:
		case absent != nil:
			r.a.Missing(m, recording.StatusUnsupported,
				absent.Error()+": this kernel lacks it, its controller is off for the group, or the group is the root",
				"")
		case r.removed: // no series, but there may have been something to measure
		default:
			r.a.None(m)
		}
	}
}

// number appends the one number of a file, divided by per. The metrics in also are missing when it is, since they need
// it too.
func (r *reader) number(g group, file string, m metric.Metric, per float64, also ...metric.Metric) (value float64,
	ok bool,
) {
	all := append(also, m)
	b := r.read(g, file, all...)
	if b == nil {
		return 0, false
	}
	n, err := cgroupfs.Number(b)
	if err != nil {
		r.bad(g, file, err, all...)
		return 0, false
	}
	r.append(g, m, n/per)
	return n / per, true
}

func (r *reader) append(g group, m metric.Metric, value float64) {
	switch m := m.(type) {
	case *metric.Gauge:
		r.gauge(m, value, g)
	case *metric.Counter:
		r.counter(m, value, g)
	}
}

// keyed appends the number of one line of a file that has been read.
func (r *reader) keyed(g group, file string, b []byte, key string, m metric.Metric, per float64) {
	n, err := cgroupfs.Key(b, key)
	if err != nil {
		r.bad(g, file, err, m)
		return
	}
	r.append(g, m, n/per)
}

// limit appends the limit that a file holds, if there is one.
func (r *reader) limit(g group, file string, m *metric.Gauge) {
	b := r.readLimit(g, file, m)
	if b == nil {
		return
	}
	limit, ok, err := parseLimit(b)
	if err != nil {
		r.bad(g, file, err, m)
	}
	if ok {
		r.gauge(m, limit, g)
	}
}
