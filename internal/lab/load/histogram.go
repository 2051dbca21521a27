package load

import (
	"encoding/json"
	"fmt"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// Latencies from 1 µs (with a resolution of half of it) to an hour, which no capped run reaches, to three digits:
	// 180 kB.
	lowest  = time.Microsecond
	highest = time.Hour
	digits  = 3
)

// Histogram is a distribution of times, exact to 0.1 %. Its zero value is empty.
type Histogram struct{ hdr *hdr.Histogram }

func (h *Histogram) make() *hdr.Histogram {
	if h.hdr == nil {
		h.hdr = hdr.New(int64(lowest), int64(highest), digits)
	}
	return h.hdr
}

// record counts a time beyond the highest as the highest.
func (h *Histogram) record(d time.Duration) {
	_ = h.make().RecordValue(int64(min(max(d, 0), highest))) // the only error is a value beyond the highest
}

// Count is the number of times recorded.
func (h Histogram) Count() uint64 {
	if h.hdr == nil {
		return 0
	}
	return uint64(h.hdr.TotalCount())
}

// Quantile returns the time that the share q (0.99 for p99) of all times did not exceed, or 0 if nothing was
// recorded.
func (h Histogram) Quantile(q float64) time.Duration {
	if h.hdr == nil {
		return 0
	}
	return time.Duration(h.hdr.ValueAtPercentile(100 * q))
}

// Each calls take with what was recorded, in ascending order: how many times were at most that long. The length is
// exact to 0.1 %.
func (h Histogram) Each(take func(atMost time.Duration, times uint64)) {
	if h.hdr == nil {
		return
	}
	for _, bar := range h.hdr.Distribution() {
		if bar.Count > 0 {
			take(time.Duration(bar.To), uint64(bar.Count))
		}
	}
}

// Max returns the longest time.
func (h Histogram) Max() time.Duration {
	if h.hdr == nil {
		return 0
	}
	return time.Duration(h.hdr.Max())
}

// Mean returns the average.
func (h Histogram) Mean() time.Duration {
	if h.Count() == 0 {
		return 0
	}
	return time.Duration(h.hdr.Mean())
}

// Merge adds everything that other recorded.
func (h *Histogram) Merge(other Histogram) {
	if other.hdr != nil {
		h.make().Merge(other.hdr) // drops nothing: record stays within the range
	}
}

func (h Histogram) clone() Histogram {
	if h.hdr == nil {
		return h
	}
	return Histogram{hdr: h.hdr.Clone()}
}

// Export returns the histogram in nanoseconds, in the format of HdrHistogram's tools (V2, compressed, base64).
func (h Histogram) Export() ([]byte, error) {
	return h.make().Encode(hdr.V2CompressedEncodingCookieBase)
}

// String returns the usual percentiles.
func (h Histogram) String() string {
	return fmt.Sprintf("p50 %v p90 %v p99 %v p99.9 %v max %v", short(h.Quantile(0.5)), short(h.Quantile(0.9)),
		short(h.Quantile(0.99)), short(h.Quantile(0.999)), short(h.Max()))
}

// short rounds to about three digits.
func short(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for unit*1000 <= d {
		unit *= 10
	}
	return d.Round(unit)
}

// histogramJSON has percentiles for people, in nanoseconds, and everything in HDR.
type histogramJSON struct {
	Count uint64        `json:"count"`
	P50   time.Duration `json:"p50"`
	P90   time.Duration `json:"p90"`
	P99   time.Duration `json:"p99"`
	P999  time.Duration `json:"p99_9"`
	Max   time.Duration `json:"max"`
	HDR   string        `json:"hdr"`
}

// MarshalJSON writes count, percentiles in nanoseconds and, as hdr, the [Histogram.Export].
func (h Histogram) MarshalJSON() ([]byte, error) {
	all, err := h.Export()
	if err != nil {
		return nil, fmt.Errorf("export histogram: %w", err)
	}
	return json.Marshal(histogramJSON{
		Count: h.Count(), P50: h.Quantile(0.5), P90: h.Quantile(0.9), P99: h.Quantile(0.99), P999: h.Quantile(0.999),
		Max: h.Max(), HDR: string(all),
	})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (h *Histogram) UnmarshalJSON(data []byte) error {
	var in histogramJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	read, err := hdr.Decode([]byte(in.HDR))
	if err != nil {
		return fmt.Errorf("histogram: %w", err)
	}
	h.hdr = nil
	if dropped := h.make().Merge(read); dropped > 0 {
		return fmt.Errorf("histogram: %d values beyond %v", dropped, highest)
	}
	return nil
}
