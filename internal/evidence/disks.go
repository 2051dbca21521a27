package evidence

import (
	"cmp"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// A Disk is the slowest device in the window.
type Disk struct {
	Device        string
	Latency, Busy quantity.Value
}

// SlowestDisk returns the device whose requests took longest in total, where most waiting was, with the mean time of
// a request.
func SlowestDisk(p *check.Pass) (Disk, bool) {
	var all []Disk
	var took []float64
	for _, device := range LabelValues(p.Counter(metric.DiskBusySeconds), "device") {
		r, _, ok := Rise("", p.Counter(metric.DiskReads, "device", device))
		w, _, ok2 := Rise("", p.Counter(metric.DiskWrites, "device", device))
		rs, _, ok3 := Rise("", p.Counter(metric.DiskReadSeconds, "device", device))
		ws, _, ok4 := Rise("", p.Counter(metric.DiskWriteSeconds, "device", device))
		n := quantity.Of("", r.Number()+w.Number(), "requests")
		if !ok || !ok2 || !ok3 || !ok4 || n.Number() == 0 {
			continue
		}
		d := Disk{Device: device}
		d.Latency = rs.Plus(ws).As(quantity.Seconds).Per(n).As(quantity.Seconds).
			Named("time of a request on %s, mean", device)
		if busy, seconds, ok := Rise("", p.Counter(metric.DiskBusySeconds, "device", device)); ok {
			d.Busy = busy.Per(seconds).Named("time in which %s had requests in flight", device)
		}
		all, took = append(all, d), append(took, rs.Number()+ws.Number())
	}
	if len(all) == 0 {
		return Disk{}, false
	}
	return all[slices.Index(took, slices.MaxFunc(took, cmp.Compare))], true
}
