package exporter

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// own counts what the exporter itself does.
type own struct {
	registry        *prometheus.Registry
	windows, late   prometheus.Counter
	findingsDropped prometheus.Counter
	seriesDropped   *prometheus.CounterVec
	targetsDropped  prometheus.Counter
	sampleSeconds   *prometheus.CounterVec
	lost            *prometheus.CounterVec
	targets         prometheus.Gauge
}

func newOwn(version string) *own {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: namespace + name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: namespace + name, Help: help}, labels)
	}
	o := &own{
		registry: prometheus.NewRegistry(),
		windows:  counter("windows_total", "Windows of the host and its targets that are over."),
		late:     counter("windows_late_total", "Windows that ended more than a sample's interval late."),
		findingsDropped: counter("findings_dropped_total",
			"Findings that were not exported because there were more than --finding.max, in each window."),
		targetsDropped: counter("targets_dropped_total",
			"Control groups above --target.cpu that were not observed because there were more than --target.max, at "+
				"each look."),
		seriesDropped: counters("series_dropped_total",
			"Label values that were folded into other because there were more than --series.max, in each window.",
			"family"),
		sampleSeconds: counters("collector_sample_seconds_total",
			"Time that the collector spent sampling, of all targets.", "collector"),
		lost: counters("collector_lost_events_total",
			"Data that the collector saw and could not keep, or samples that were late, of all targets.", "collector"),
		targets: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: namespace + "targets", Help: "Control groups that are observed beside the host.",
		}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: namespace + "build_info", Help: "The version of perfdoctor: always 1.", ConstLabels: prometheus.Labels{
			"version": version,
		},
	})
	build.Set(1)
	o.registry.MustRegister(o.windows, o.late, o.findingsDropped, o.seriesDropped, o.targetsDropped, o.sampleSeconds,
		o.lost, o.targets,
		build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return o
}

// Registry is where listeners register their own counters, to be served with the others.
func (e *Exporter) Registry() prometheus.Registerer { return e.own.registry }

// countCollectors adds up the cost and losses of a window's collectors. A loss that the window before also had is not
// counted again: tables of the kernel count their losses since they were made.
func (o *own) countCollectors(rec, before *recording.Recording) {
	for i, c := range rec.Meta.Collectors {
		o.sampleSeconds.WithLabelValues(c.Name).Add(c.Busy)
		n := c.Late
		for _, l := range c.Lost {
			n += max(0, l.Count-lostBefore(before, i, l.What))
		}
		o.lost.WithLabelValues(c.Name).Add(float64(n))
	}
}

func lostBefore(before *recording.Recording, collector int, what string) int {
	if before == nil || collector >= len(before.Meta.Collectors) {
		return 0
	}
	for _, l := range before.Meta.Collectors[collector].Lost {
		if l.What == what {
			return l.Count
		}
	}
	return 0
}
