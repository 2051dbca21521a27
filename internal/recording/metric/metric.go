// Package metric declares everything perfdoctor can measure, each as a typed Go variable.
//
// A misspelt metric does not compile, only a [Counter] has a rate, and the collectors, the recording, the checks, the
// documentation and the exporter share one descriptor. Names and units follow the Prometheus conventions.
package metric

import "github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"

// A Metric is one of *[Counter], *[Gauge] and *[Info].
type Metric interface {
	// Describe returns the shared descriptor, which never changes.
	Describe() *Desc
}

// Kind says which operations a metric's numbers allow.
type Kind string

// The kinds of metric.
const (
	KindCounter Kind = "counter" // only rises, until it is reset; has a rate
	KindGauge   Kind = "gauge"   // goes up and down
	KindInfo    Kind = "info"    // facts as label values; the number is always 1
)

// Desc describes a metric.
type Desc struct {
	Name   string        // Prometheus name, without a namespace prefix
	Help   string        // one sentence
	Unit   quantity.Unit // of the raw number
	Kind   Kind
	Labels []string // label names, in the order of their values everywhere
	Source string   // kernel file or interface the number is read from

	// OverWindow says that each reading of a gauge is a sum over the time since the one before, or since the
	// recording began: readings add up over a longer time.
	OverWindow bool
}

// Counter is a number that only rises. Its raw value means nothing; its increase over the window does.
type Counter struct{ desc Desc }

// Gauge is a number that goes up and down.
type Gauge struct{ desc Desc }

// Info is a fact without a number.
type Info struct{ desc Desc }

// Describe returns the counter's descriptor.
func (c *Counter) Describe() *Desc { return &c.desc }

// Describe returns the gauge's descriptor.
func (g *Gauge) Describe() *Desc { return &g.desc }

// Describe returns the info's descriptor.
func (i *Info) Describe() *Desc { return &i.desc }

func counter(name string, unit quantity.Unit, source, help string, labels ...string) *Counter {
	return &Counter{Desc{Name: name, Help: help, Unit: unit, Kind: KindCounter, Labels: labels, Source: source}}
}

func gauge(name string, unit quantity.Unit, source, help string, labels ...string) *Gauge {
	return &Gauge{Desc{Name: name, Help: help, Unit: unit, Kind: KindGauge, Labels: labels, Source: source}}
}

// overWindow is a gauge of sums over the window. Its collector reads it once, at the end of each window.
func overWindow(name string, unit quantity.Unit, source, help string, labels ...string) *Gauge {
	g := gauge(name, unit, source, help, labels...)
	g.desc.OverWindow = true
	return g
}

func info(name, source, help string, labels ...string) *Info {
	return &Info{Desc{Name: name, Help: help, Kind: KindInfo, Labels: labels, Source: source}}
}

// The values of the "netns" label. Counters of a network namespace are read for the target's. If that is not
// perfdoctor's own, they are read for the host's too, because NAT for a container happens in the host's.
const (
	NetNSTarget = "target"
	NetNSHost   = "host"
)

// The values of the "scope" label of hardware counters.
const (
	ScopeTarget = "target"
	ScopeHost   = "host"
)
