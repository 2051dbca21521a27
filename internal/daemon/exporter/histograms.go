package exporter

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

// nativeSchema has a bucket for each power of four, like the programs in the kernel: but in seconds, where theirs are
// in nanoseconds. 4^15 ns are 1.074 s, so a bound is shown 7 % too small. The classic buckets beside it have the
// exact bounds.
const nativeSchema = -1

// A distribution is a histogram of durations, and the metrics from which it is made.
type distribution struct {
	name, help string
	counts     metric.Metric // by the label at_most, of one window if it is a gauge
	seconds    metric.Metric // their sum, by the same label
	by         string        // a label that is kept, "" for none
}

func distributions() []distribution {
	return []distribution{{
		name: "tcp_connect_duration_seconds", help: "How long connections took to connect, from the SYN to " +
			"ESTABLISHED, of clients.",
		counts: metric.ConnectDurations, seconds: metric.ConnectSeconds,
	}, {
		name: "cpu_wait_duration_seconds", help: "How long threads waited for a CPU while their control group had " +
			"quota left.",
		counts: metric.RunQueueWaits, seconds: metric.RunQueueWaitSeconds,
	}, {
		name: "softirq_duration_seconds", help: "How long softirqs took, by vector; of many those of an eighth of " +
			"each second.",
		counts: metric.SoftirqDurations, seconds: metric.SoftirqTimedSeconds, by: "vector",
	}}
}

// histograms add up distributions over the windows of one target.
type histograms struct {
	target string
	sums   []map[string]*histogram // as distributions, by the label that is kept
}

// histogram is one series. counts are by upper bound.
type histogram struct {
	counts map[float64]uint64
	sum    float64
}

func newHistograms(target string) *histograms {
	h := &histograms{target: target}
	for range distributions() {
		h.sums = append(h.sums, map[string]*histogram{})
	}
	return h
}

// add takes a window and returns the exported families.
func (h *histograms) add(rec *recording.Recording) []*dto.MetricFamily {
	later := time.Duration(rec.Meta.Interval / 2 * float64(time.Second))
	var out []*dto.MetricFamily
	for i, d := range distributions() {
		if rec.Recorded(d.counts) {
			d.addTo(h.sums[i], rec, later)
		}
		if len(h.sums[i]) > 0 {
			out = append(out, d.export(h.sums[i], h.target))
		}
	}
	return out
}

func (d distribution) addTo(sums map[string]*histogram, rec *recording.Recording, later time.Duration) {
	of := func(s *recording.Series) *histogram {
		key := ""
		if d.by != "" {
			key = s.Label(d.by)
		}
		if sums[key] == nil {
			sums[key] = &histogram{counts: map[float64]uint64{}}
		}
		return sums[key]
	}
	for _, s := range rec.SeriesOf(d.counts) {
		bound, err := strconv.ParseFloat(s.Label("at_most"), 64)
		if err != nil {
			continue // no collector writes such a bound, but a recording is a file
		}
		of(s).counts[bound] += uint64(math.Round(rise(s, later)))
	}
	for _, s := range rec.SeriesOf(d.seconds) {
		of(s).sum += rise(s, later)
	}
}

// rise returns what a series added in the window. A gauge covers the window, so that is all of it. A counter that
// began in the window began at zero.
func rise(s *recording.Series, later time.Duration) float64 {
	last := s.Points[len(s.Points)-1].Value
	if s.Metric.Describe().Kind == metric.KindGauge {
		return last
	}
	return series.RiseSince(s.Points, later)
}

func (d distribution) export(sums map[string]*histogram, target string) *dto.MetricFamily {
	mf := &dto.MetricFamily{
		Name: proto.String(namespace + d.name), Help: proto.String(d.help), Type: dto.MetricType_HISTOGRAM.Enum(),
	}
	for _, key := range slices.Sorted(maps.Keys(sums)) {
		m := &dto.Metric{Label: pairs([]string{"target"}, []string{target}), Histogram: sums[key].export()}
		if d.by != "" {
			m.Label = pairs([]string{"target", d.by}, []string{target, key})
		}
		slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
		mf.Metric = append(mf.Metric, m)
	}
	return mf
}

// export returns classic and native buckets in one histogram. A scraper takes the ones it knows.
func (h *histogram) export() *dto.Histogram {
	out := &dto.Histogram{
		SampleSum: proto.Float64(h.sum), Schema: proto.Int32(nativeSchema), ZeroThreshold: proto.Float64(0),
		ZeroCount: proto.Uint64(0),
	}
	total, previous := uint64(0), int64(0)
	next := int32(0) // index behind the last bucket
	for _, bound := range slices.Sorted(maps.Keys(h.counts)) {
		n := h.counts[bound]
		total += n
		index := next // of the bucket beyond all bounds
		if !math.IsInf(bound, 1) {
			index = nativeIndex(bound)
		}
		if !math.IsInf(bound, 1) {
			out.Bucket = append(out.Bucket, &dto.Bucket{UpperBound: proto.Float64(bound), CumulativeCount: proto.Uint64(
				total)})
		}
		if spans := out.GetPositiveSpan(); len(spans) > 0 && index == next {
			spans[len(spans)-1].Length = proto.Uint32(spans[len(spans)-1].GetLength() + 1)
		} else {
			out.PositiveSpan = append(out.PositiveSpan, &dto.BucketSpan{
				Offset: proto.Int32(index - next),
				Length: proto.Uint32(1),
			})
		}
		out.PositiveDelta = append(out.PositiveDelta, int64(n)-previous)
		previous, next = int64(n), index+1
	}
	out.SampleCount = proto.Uint64(total)
	if len(out.GetPositiveSpan()) == 0 {
		// marks it as a native histogram
		out.PositiveSpan = []*dto.BucketSpan{{Offset: proto.Int32(0), Length: proto.Uint32(0)}}
	}
	return out
}

// nativeIndex returns the native bucket with the nearest upper bound.
func nativeIndex(bound float64) int32 { return int32(math.Round(math.Log2(bound) / 2)) }
