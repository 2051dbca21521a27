package scenario

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/perfdoctor/perfdoctor/internal/input/strictyaml"
	"github.com/perfdoctor/perfdoctor/internal/lab"
)

// examCPUs is the number of CPUs of a small machine. A site that is built outside a scenario may name these in an
// affinity.
const examCPUs = 2

// ReadSite reads a site from a node of a file, as strictly as a scenario, with the changes laid over it one after the
// other. Messages use name for that part of the file.
func ReadSite(file, name string, system *yaml.Node, changes ...*yaml.Node) (*Site, error) {
	for _, change := range changes {
		system = merge(system, change)
	}
	s := &Scenario{Needs: Needs{CPUs: examCPUs}}
	d := &strictyaml.Decoder{File: file}
	d.Decode(system, &s.Site)
	if err := d.Err(); err != nil {
		return nil, invalid{err}
	}
	v := validator{file: file, root: system, prefix: name + ": "}
	v.site(&s.Site)
	v.machine(VMNever, &s.Site)
	v.affinity(s)
	if len(v.errs) > 0 {
		return nil, invalid{errors.Join(v.errs...)}
	}
	return &s.Site, nil
}

// Running is a site while it runs.
type Running struct {
	PID  int            // the process that Diagnose.Target names; 0: the machine
	PIDs map[string]int // by process name
	Host *lab.Host      // the first one in the file
}

// Watched is what was measured while a site was observed.
type Watched struct {
	Measured   map[string]float64 // by metric, without those that need a recording
	BusyBefore float64            // share of the machine's CPU time in use before the site was built
	Seconds    float64            // how long it was observed
}

// Watch builds the site in a lab of that name, starts its processes and, after the warm-up, calls during and measures
// the load meanwhile. Then it removes everything.
func (s *Site) Watch(ctx context.Context, name string, during func(context.Context, Running) error) (*Watched, error) {
	w := &Watched{}
	var err error
	w.BusyBefore, err = s.inLab(ctx, name, "", func(b *built) error {
		pid, load, err := b.warmUp(ctx)
		if err != nil {
			return err
		}
		before, err := load.read(pid)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := during(ctx, b.running(pid)); err != nil {
			return errors.Join(err, b.alive())
		}
		w.Seconds = time.Since(began).Seconds()
		after, err := load.read(pid)
		if err != nil {
			return errors.Join(err, b.alive())
		}
		m := measure(before, after, w.Seconds)
		if load.other != nil {
			if err := load.summary(ctx, m); err != nil {
				return err
			}
			m.perUnit(before, after, w.Seconds)
		}
		w.Measured = m
		return b.alive()
	})
	return w, err
}

func (b *built) running(pid int) Running {
	return Running{PID: pid, PIDs: b.pidsByName(), Host: b.hosts[b.site.Hosts[0].Name]}
}

// Check describes the move and reports whether it holds between two measurements.
func (m *Move) Check(before, after map[string]float64) (said string, holds bool) {
	j := judge{phase: &Phase{Measured: after}}
	j.move(m, &Phase{Measured: before})
	var lines []string
	for _, a := range j.phase.Assertions {
		lines = append(lines, a.What+": "+a.Got)
	}
	return strings.Join(lines, "; "), j.phase.held()
}

// MetricText returns a measured number with its unit.
func MetricText(metric string, n float64) string { return metricText(metric, n) }
