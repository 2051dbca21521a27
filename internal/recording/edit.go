package recording

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/input/spelling"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

// An edit is what [Recording.Edit] does to the numbers of series.
type edit struct {
	metric  metric.Metric
	match   []string // label, value, label, value …
	value   float64
	factor  bool // the value is one to multiply by
	written string
}

// Edit returns the recording with other numbers, for a test case that lies just beside a threshold. The text is
// metric{label=value,…}=N or …=xF. Every value of a gauge becomes N, or F times what it is. A counter's rise in the
// window becomes N, or F times what it is, in the same proportions as before. Labels that are left out match all; a
// value with a comma or brace in it is quoted as in Go.
func (r *Recording) Edit(text string) (*Recording, error) {
	e, err := parseEdit(text)
	if err != nil {
		return nil, err
	}
	name := e.metric.Describe().Name
	from := r.series[name]
	if from == nil {
		return nil, fmt.Errorf("%s: the recording has no %s", e.written, name)
	}
	f := &family{metric: from.metric, index: map[string]*Series{}, marks: from.marks}
	edited := 0
	for _, s := range from.list {
		if matches(s, e.match) {
			edited++
			if s, err = e.apply(s); err != nil {
				return nil, err
			}
		}
		f.list = append(f.list, s)
		f.index[seriesKey(s.Labels)] = s
	}
	if edited == 0 {
		return nil, fmt.Errorf("%s: no series of %s has these labels: it has %s", e.written, name, someSeries(from))
	}
	out := &Recording{Meta: r.Meta, series: maps.Clone(r.series), profiles: r.profiles, raws: r.raws}
	out.series[name] = f
	return out, nil
}

func parseEdit(text string) (edit, error) {
	e := edit{written: text}
	bad := func(format string, args ...any) (edit, error) {
		return edit{}, fmt.Errorf("%s: "+format+": want METRIC{LABEL=VALUE,…}=NUMBER, or =xFACTOR",
			append([]any{text}, args...)...)
	}
	name, rest := text, ""
	if i := strings.IndexAny(text, "{="); i >= 0 {
		name, rest = text[:i], text[i:]
	}
	m, ok := metric.ByName(name)
	if !ok {
		return bad("there is no metric %q%s", name, perhaps(name, metricNames()))
	}
	e.metric = m
	if _, info := m.(*metric.Info); info {
		return bad("%s has labels only, and no number", name)
	}
	if strings.HasPrefix(rest, "{") {
		var err error
		if e.match, rest, err = parseLabels(m, rest[1:]); err != nil {
			return bad("%v", err)
		}
	}
	number, ok := strings.CutPrefix(rest, "=")
	if !ok {
		return bad("there is no number")
	}
	number, e.factor = strings.CutPrefix(number, "x")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !sane(v) || v < 0 {
		return bad("%q is not a number of zero or more", number)
	}
	e.value = v
	return e, nil
}

// parseLabels reads label=value,…} and returns what follows.
func parseLabels(m metric.Metric, text string) (match []string, rest string, err error) {
	known := m.Describe().Labels
	for {
		if after, done := strings.CutPrefix(text, "}"); done {
			return match, after, nil
		}
		label, after, ok := strings.Cut(text, "=")
		if !ok || !slices.Contains(known, label) {
			return nil, "", fmt.Errorf("%s has no label %q: it has %s", m.Describe().Name, label,
				strings.Join(known, ", "))
		}
		value := after
		if i := strings.IndexAny(after, ",}"); i >= 0 {
			value = after[:i]
		}
		length := len(value)
		if quoted, err := strconv.QuotedPrefix(after); err == nil {
			length = len(quoted)
			if value, err = strconv.Unquote(quoted); err != nil {
				return nil, "", err
			}
		}
		match = append(match, label, value)
		text = after[length:]
		if next, more := strings.CutPrefix(text, ","); more {
			text = next
		} else if !strings.HasPrefix(text, "}") {
			return nil, "", fmt.Errorf("the labels have no end")
		}
	}
}

func (e *edit) apply(s *Series) (*Series, error) {
	out := &Series{Metric: s.Metric, Labels: s.Labels, Points: slices.Clone(s.Points)}
	if _, counter := e.metric.(*metric.Counter); !counter {
		for i := range out.Points {
			out.Points[i].Value = e.of(out.Points[i].Value)
		}
	} else if err := e.raise(out.Points); err != nil {
		return nil, fmt.Errorf("%s: %s%q %w", e.written, s.Metric.Describe().Name, s.Labels, err)
	}
	if slices.ContainsFunc(out.Points, func(p Point) bool { return !sane(p.Value) }) {
		return nil, fmt.Errorf("%s: that is more or less than a recording may hold", e.written)
	}
	return out, nil
}

// raise changes the points of a counter so that it rises by another amount.
func (e *edit) raise(points []Point) error {
	s := CounterSeries{&Series{Points: slices.Clone(points)}}
	rise, ok := s.Increase()
	if !ok || s.Span() <= 0 {
		return errors.New("was read once: it has no rise")
	}
	wanted := e.of(rise)
	whole := isWhole(points) && wanted == math.Trunc(wanted)
	risen := 0.0
	for i := 1; i < len(points); i++ {
		risen += series.Step(s.Points[i-1].Value, s.Points[i].Value)
		part := risen / rise
		if rise == 0 { // spread it evenly
			part = (s.Points[i].At - s.Points[0].At).Seconds() / s.Span().Seconds()
		}
		points[i].Value = points[0].Value + wanted*part
		if whole {
			points[i].Value = math.Round(points[i].Value)
		}
	}
	return nil
}

func (e *edit) of(v float64) float64 {
	if e.factor {
		return v * e.value
	}
	return e.value
}

// isWhole reports whether a series holds whole numbers: it counts, and does not measure seconds.
func isWhole(points []Point) bool {
	return !slices.ContainsFunc(points, func(p Point) bool { return p.Value != math.Trunc(p.Value) })
}

// someSeries names the labels of the first few series: enough to see what they look like.
func someSeries(f *family) string {
	const most = 4
	var names []string
	for _, s := range f.list[:min(len(f.list), most)] {
		var pairs []string
		for i, label := range f.metric.Describe().Labels {
			pairs = append(pairs, label+"="+strconv.Quote(s.Labels[i]))
		}
		names = append(names, "{"+strings.Join(pairs, ",")+"}")
	}
	switch more := len(f.list) - len(names); {
	case len(names) == 0:
		return "none"
	case more > 0:
		return fmt.Sprintf("%s and %d more", strings.Join(names, " "), more)
	}
	return strings.Join(names, " ")
}

func metricNames() []string {
	var names []string
	for _, m := range metric.All() {
		names = append(names, m.Describe().Name)
	}
	return names
}

func perhaps(word string, names []string) string {
	if near := spelling.Nearest(word, names); near != "" {
		return ": did you mean " + near + "?"
	}
	return ""
}
