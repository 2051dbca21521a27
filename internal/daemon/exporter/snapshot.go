package exporter

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// snapshot holds the results of each target's last window, ready to be served.
type snapshot struct {
	registry prometheus.Gatherer // own counters
	ready    atomic.Pointer[[]*dto.MetricFamily]

	mu      sync.Mutex
	targets map[string]*told
	now     time.Time // end of the newest window
}

// told is what is exported about one target.
type told struct {
	families []*dto.MetricFamily
	standing []Standing
}

// Gather returns the own counters and the families of the last windows. It reads nothing else, so a scrape waits for
// nothing.
func (s *snapshot) Gather() ([]*dto.MetricFamily, error) {
	out, err := s.registry.Gather()
	if last := s.ready.Load(); last != nil {
		out = append(out, *last...)
	}
	slices.SortFunc(out, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out, err
}

// put replaces what is exported about a target by its newest window, and returns how many findings exceeded the
// bound.
func (s *snapshot) put(w Window, families []*dto.MetricFamily, o Options) (dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = w.End
	t := &told{families: families}
	if last := s.targets[w.Name]; last != nil {
		t.standing = last.standing
	}
	t.standing = stand(t.standing, w, o)
	s.targets[w.Name] = t
	return s.serve(o)
}

// forget drops the series of a target once it has no more windows, except for events: the reason why a group was
// killed is still exported after its end.
func (s *snapshot) forget(target string, o Options) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.targets[target]; t != nil {
		s.targets[target] = &told{standing: over(t.standing, o)}
	}
	s.serve(o)
}

// serve makes the results of all targets what the next scrape reads.
func (s *snapshot) serve(o Options) (dropped int) {
	byName := map[string]*dto.MetricFamily{}
	var findings []check.Finding
	for _, name := range slices.Sorted(maps.Keys(s.targets)) {
		t := s.targets[name]
		t.standing = slices.DeleteFunc(t.standing, func(x Standing) bool { return x.gone(s.now) })
		if len(t.standing) == 0 && t.families == nil {
			delete(s.targets, name)
		}
		for i := range t.standing {
			if x := &t.standing[i]; x.told() {
				findings = append(findings, x.Finding)
			}
		}
		for _, mf := range t.families {
			if sum := byName[mf.GetName()]; sum != nil {
				sum.Metric = append(sum.Metric, mf.GetMetric()...)
				continue
			}
			byName[mf.GetName()] = &dto.MetricFamily{
				Name: mf.Name, Help: mf.Help, Type: mf.Type, Metric: slices.Clone(mf.GetMetric()),
			}
		}
	}
	all := slices.Collect(maps.Values(byName))
	mf, dropped := findingFamily(findings, o.MaxFindings)
	if mf != nil {
		all = append(all, mf)
	}
	s.ready.Store(&all)
	return dropped
}

// findingFamily returns the findings, the gravest first while there is room, and the number left out.
func findingFamily(findings []check.Finding, most int) (*dto.MetricFamily, int) {
	names := []string{"check", "severity", "stage", "subject"} // sorted
	slices.SortStableFunc(findings, func(a, b check.Finding) int { return cmp.Compare(b.Severity, a.Severity) })
	// By check and subject: what the host and a target both show counts once, and so do processes of the same name.
	seen := map[string]bool{}
	mf := gaugeFamily("finding", "What the last window showed to be wrong, or an event of the last 5 minutes: "+
		"1 while it does. subject is the offender, such as a program or a destination, and stage its place in fix "+
		"order.")
	dropped := 0
	for i := range findings {
		f := &findings[i]
		subject := SubjectLabel(f.Subject)
		key := f.Check + " " + subject
		if seen[key] {
			continue
		}
		seen[key] = true
		if len(mf.Metric) >= most {
			dropped++
			continue
		}
		addGauge(mf, 1, names, f.Check, f.Severity.String(), f.Stage.String(), subject)
	}
	if len(mf.Metric) == 0 {
		return nil, dropped
	}
	return mf, dropped
}

// aProcess matches how a subject names a process, with its program if that is known. aPlace matches an address in its
// memory.
var (
	aProcess = regexp.MustCompile(`\bpid [0-9]+(?: \((.*)\))?`)
	aPlace   = regexp.MustCompile(`\b0x[0-9a-f]+\b`)
)

// SubjectLabel names a subject without the parts that differ in each process: each process id would leave a series
// behind.
func SubjectLabel(s check.Subject) string {
	label := aProcess.ReplaceAllString(s.String(), "process $1")
	return strings.TrimSpace(aPlace.ReplaceAllString(label, "0x"))
}

func gaugeFamily(name, help string) *dto.MetricFamily {
	return &dto.MetricFamily{
		Name: proto.String(namespace + name), Help: proto.String(help),
		Type: dto.MetricType_GAUGE.Enum(),
	}
}

// addGauge adds a series; names must be sorted.
func addGauge(mf *dto.MetricFamily, v float64, names []string, values ...string) {
	mf.Metric = append(mf.Metric, &dto.Metric{Label: pairs(names, values), Gauge: &dto.Gauge{Value: &v}})
}

// windowFamilies say how the checks and collectors of a window fared.
func windowFamilies(w Window, left int) []*dto.MetricFamily {
	target := []string{"target"}
	length := gaugeFamily("window_seconds", "Time that the last window covers.")
	addGauge(length, w.Recording.Meta.Duration, target, w.Name)
	end := gaugeFamily("window_end_timestamp_seconds", "When the last window ended, in seconds since 1970.")
	addGauge(end, float64(w.End.UnixMilli())/1000, target, w.Name)
	return append([]*dto.MetricFamily{length, end, assessed(w)}, collectorFamilies(w, left)...)
}

func assessed(w Window) *dto.MetricFamily {
	mf := gaugeFamily("check_assessed", "Whether the check could be assessed in the last window: 0 means that nothing "+
		"is known about it.")
	names := []string{"check", "target"}
	for _, o := range w.Result.Outcomes {
		switch o.State {
		case check.Unassessed:
			addGauge(mf, 0, names, o.Check, w.Name)
		case check.Found, check.Fine:
			addGauge(mf, 1, names, o.Check, w.Name)
		case check.Inapplicable: // it is about another kind of target
		}
	}
	return mf
}

// collectorFamilies skips the last left collectors, which did not run.
func collectorFamilies(w Window, left int) []*dto.MetricFamily {
	success := gaugeFamily("collector_success", "Whether the collector worked in the last window: 0 means that it "+
		"failed, was late, or "+
		"may not do its work; what this host cannot do at all is perfdoctor_collector_unsupported.")
	unsupported := gaugeFamily("collector_unsupported", "1 for a collector that this host's kernel or hardware does "+
		"not support, or that "+
		"is of no use for the target: no failure.")
	names := []string{"collector", "target"}
	list := w.Recording.Meta.Collectors
	for _, c := range list[:len(list)-left] {
		switch c.Status {
		case recording.StatusUnsupported:
			addGauge(unsupported, 1, names, c.Name, w.Name)
		case recording.StatusOK:
			addGauge(success, 1, names, c.Name, w.Name)
		default:
			addGauge(success, 0, names, c.Name, w.Name)
		}
	}
	var out []*dto.MetricFamily
	for _, mf := range []*dto.MetricFamily{success, unsupported} {
		if len(mf.Metric) > 0 {
			out = append(out, mf)
		}
	}
	return out
}
