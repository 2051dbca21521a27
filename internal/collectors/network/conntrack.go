package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func conntrackCollector() collect.Collector {
	return collect.Collector{
		Name:     "conntrack",
		Doc:      "Entries, limit and drops of the connection tracking table.",
		Overhead: "0.1 ms a sample and namespace",
		Provides: []metric.Metric{
			metric.ConntrackEntries, metric.ConntrackMax, metric.ConntrackTimeWait,
			metric.ConntrackDrops, metric.ConntrackInsertFailed, metric.ConntrackEarlyDrops,
		},
		Open: openConntrack,
	}
}

// conntrackSource keeps the sysctl files open: they stay bound to the namespace they were opened in, so that a sample
// need not enter it again.
type conntrackSource struct {
	proc   string
	spaces []conntrackSpace
}

type conntrackSpace struct {
	namespace
	entries, limit, timeWait *os.File
}

func openConntrack(_ context.Context, env collect.Env) (collect.Source, error) {
	s := &conntrackSource{proc: env.Host.Proc}
	for _, n := range namespaces(env) {
		c := conntrackSpace{namespace: n}
		err := n.enter(env, func() error { return c.open(env.Host.Proc) })
		if err != nil {
			err = errors.Join(err, c.close())
		}
		switch {
		case err == nil:
			s.spaces = append(s.spaces, c)
		case n.label == metric.NetNSTarget && errors.Is(err, os.ErrNotExist):
			return nil, errors.Join(collect.Unavailable(recording.StatusUnsupported,
				"nothing: without it there is no table to fill up",
				"connection tracking is not in use here (no nf_conntrack)"), s.Close())
		case n.label == metric.NetNSTarget:
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

func (c *conntrackSpace) open(proc string) error {
	for _, f := range []struct {
		file   **os.File
		metric *metric.Gauge
	}{{&c.entries, metric.ConntrackEntries}, {&c.limit, metric.ConntrackMax}, {&c.timeWait, metric.ConntrackTimeWait}} {
		path := strings.TrimPrefix(f.metric.Describe().Source, "/proc")
		var err error
		if *f.file, err = os.Open(proc + path); err != nil {
			return err
		}
	}
	return nil
}

func (c *conntrackSpace) close() error {
	var errs []error
	for _, f := range []*os.File{c.entries, c.limit, c.timeWait} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// Sample appends one sample.
func (s *conntrackSource) Sample(_ context.Context, a *recording.Appender) error {
	for i := range s.spaces {
		c := &s.spaces[i]
		if err := s.sampleOne(c, a); err != nil && !c.gone(s.proc, err) {
			return err
		}
	}
	return nil
}

func (s *conntrackSource) sampleOne(c *conntrackSpace, a *recording.Appender) error {
	for _, g := range []struct {
		metric *metric.Gauge
		file   *os.File
	}{{metric.ConntrackEntries, c.entries}, {metric.ConntrackMax, c.limit}, {metric.ConntrackTimeWait, c.timeWait}} {
		v, err := rereadNumber(g.file)
		if err != nil {
			return err
		}
		a.Gauge(g.metric, v, c.label)
	}
	return s.drops(c, a)
}

// Close closes the files.
func (s *conntrackSource) Close() error {
	var errs []error
	for i := range s.spaces {
		errs = append(errs, s.spaces[i].close())
	}
	return errors.Join(errs...)
}

func (s *conntrackSource) drops(c *conntrackSpace, a *recording.Appender) error {
	fs, err := procfs.NewFS(c.procDir(s.proc))
	if err != nil {
		return err
	}
	stats, err := fs.ConntrackStat()
	if errors.Is(err, os.ErrNotExist) && !c.gone(s.proc, err) {
		for _, m := range []metric.Metric{
			metric.ConntrackDrops, metric.ConntrackInsertFailed,
			metric.ConntrackEarlyDrops,
		} {
			a.Missing(m, recording.StatusUnsupported,
				"the kernel has no net/stat/nf_conntrack (CONFIG_NF_CONNTRACK_PROCFS is off)", "")
		}
		return nil
	}
	if err != nil {
		return err
	}
	var drop, failed, early float64
	for _, st := range stats { // one line per CPU
		drop, failed, early = drop+float64(st.Drop), failed+float64(st.InsertFailed), early+float64(st.EarlyDrop)
	}
	a.Counter(metric.ConntrackDrops, drop, c.label)
	a.Counter(metric.ConntrackInsertFailed, failed, c.label)
	a.Counter(metric.ConntrackEarlyDrops, early, c.label)
	return nil
}

func rereadNumber(f *os.File) (float64, error) {
	var buf [32]byte
	n, err := f.ReadAt(buf[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	v, err := strconv.ParseUint(strings.TrimSpace(string(buf[:n])), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: bad number %.40q", f.Name(), buf[:n])
	}
	return float64(v), nil
}
