package recording

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// editable has a counter of whole numbers with a reset, one of seconds, one that does not change, one that was read
// once, and a gauge.
func editable(t *testing.T) *Recording {
	t.Helper()
	at := time.Unix(1_790_000_000, 0)
	b := NewBuilder()
	b.start, b.now = at, func() time.Time { return at }
	for i, packets := range []float64{100, 140, 20, 60} { // rises by 40, 20 and 40
		a := b.Appender()
		a.Counter(metric.DevicePackets, packets, "target", "eth0", "receive")
		a.Counter(metric.DevicePackets, 7, "target", "eth0", "transmit")
		a.Counter(metric.CPUSeconds, 0.25*float64(i), "0", "user")
		a.Gauge(metric.MemoryAvailable, 1000+float64(i))
		if i == 0 {
			a.Counter(metric.DevicePackets, 5, "target", "a,b}", "receive")
		}
		a.Commit()
		at = at.Add(time.Second)
	}
	return b.Done(Meta{Schema: SchemaVersion, Started: time.Unix(1_790_000_000, 0), Duration: 3, Interval: 1})
}

func values(series []*Series) [][]float64 {
	var out [][]float64
	for _, s := range series {
		var row []float64
		for _, p := range s.Points {
			row = append(row, p.Value)
		}
		out = append(out, row)
	}
	return out
}

func TestEdit(t *testing.T) {
	for _, tt := range []struct {
		edit string
		of   metric.Metric
		want [][]float64
	}{
		{
			"net_device_packets_total{device=eth0,direction=receive}=50", metric.DevicePackets,
			[][]float64{{5}, {100, 120, 130, 150}, {7, 7, 7, 7}}, // without the reset
		},
		{
			"net_device_packets_total{device=eth0,direction=receive}=x2", metric.DevicePackets,
			[][]float64{{5}, {100, 180, 220, 300}, {7, 7, 7, 7}},
		},
		{
			"net_device_packets_total{direction=transmit}=30", metric.DevicePackets,
			[][]float64{{5}, {100, 140, 20, 60}, {7, 17, 27, 37}},
		},
		{`cpu_seconds_total=3`, metric.CPUSeconds, [][]float64{{0, 1, 2, 3}}},
		{`memory_available_bytes=x0.5`, metric.MemoryAvailable, [][]float64{{500, 500.5, 501, 501.5}}},
		{`memory_available_bytes=4`, metric.MemoryAvailable, [][]float64{{4, 4, 4, 4}}},
	} {
		t.Run(tt.edit, func(t *testing.T) {
			before := editable(t)
			rec, err := before.Edit(tt.edit)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, values(rec.matching(tt.of, nil))); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			for _, m := range metric.All() { // nothing else, and the recording itself is unchanged
				untouched := values(editable(t).matching(m, nil))
				if d := cmp.Diff(untouched, values(before.matching(m, nil))); d != "" {
					t.Errorf("the recording itself changed: %s", d)
				}
				if d := cmp.Diff(untouched, values(rec.matching(m, nil))); d != "" && m != tt.of {
					t.Errorf("%s changed too: %s", m.Describe().Name, d)
				}
			}
		})
	}
}

func TestBadEdits(t *testing.T) {
	for edit, want := range map[string]string{
		"":                                          `there is no metric ""`,
		"cpu_second_total=1":                        "did you mean cpu_seconds_total?",
		"cpu_seconds_total":                         "there is no number",
		"cpu_seconds_total=":                        `"" is not a number`,
		"cpu_seconds_total=-1":                      `"-1" is not a number of zero or more`,
		"cpu_seconds_total=NaN":                     `"NaN" is not a number`,
		"cpu_seconds_total=1e300":                   `"1e300" is not a number`,
		"memory_available_bytes=x1e19":              "more or less than a recording may hold",
		"cpu_seconds_total{cpu=0=1":                 "have no end",
		`cpu_seconds_total{cpu="0`:                  "have no end",
		"cpu_seconds_total{core=0}=1":               `has no label "core": it has cpu, mode`,
		"cpu_seconds_total{cpu=1}=1":                `no series of cpu_seconds_total has these labels: it has {cpu="0",mode="user"}`,
		"host_info=1":                               "has labels only",
		"memory_total_bytes=1":                      "the recording has no memory_total_bytes",
		`net_device_packets_total{device="a,b}"}=1`: "was read once",
	} {
		rec, err := editable(t).Edit(edit)
		if err == nil || !strings.Contains(err.Error(), want) || rec != nil {
			t.Errorf("%s: error %v, want %s", edit, err, want)
		}
	}
}
