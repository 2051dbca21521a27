package perfevent

// Status says whether a count can be believed.
type Status uint8

// A count is a number only when its status is Counted.
const (
	NotCounted   Status = iota // the event exists, but had no time on a counter: its value is unknown, not zero
	Counted                    // Value is a measurement, extrapolated if RunningShare < 1
	NotSupported               // this machine or kernel has no such event
	Denied                     // the kernel refused; Reason says what would allow it
)

// String returns the status as a report shows it.
func (s Status) String() string {
	switch s {
	case Counted:
		return "counted"
	case NotSupported:
		return "not supported"
	case Denied:
		return "denied"
	case NotCounted:
		return "not counted"
	}
	return "unknown"
}

// Count is the total of one event in one group since the set was opened, over all threads or CPUs of the set.
// Totals never go down, so a rate is the difference of two reads.
type Count struct {
	Event Event
	// Group names the events that were on the counters together. Only counts of one group may be divided.
	Group Group
	// Value is scaled for the time the event shared its counter with others (multiplexing); ns for clocks.
	Value float64
	// Raw is what the counters saw themselves.
	Raw uint64
	// Enabled and Running are ns summed over threads or CPUs: time that should have been and that was counted.
	// A thread off the CPU adds to neither.
	Enabled, Running uint64
	Status           Status
	// UserOnly is set when only user mode could be counted (kernel.perf_event_paranoid 2 without CAP_PERFMON).
	UserOnly bool
	// Reason says why Status is not Counted and what to do.
	Reason string
}

// RunningShare is the part of the time the event was on a counter, 0 to 1: below 1 the value is an extrapolation.
func (c Count) RunningShare() float64 {
	if c.Enabled == 0 {
		return 0
	}
	return float64(c.Running) / float64(c.Enabled)
}

// Find returns the first count of an event that was counted, else the first one with a reason why not.
func Find(counts []Count, event Event) (Count, bool) {
	found, ok := Count{}, false
	for _, c := range counts {
		if c.Event != event {
			continue
		}
		if c.Status == Counted {
			return c, true
		}
		if !ok {
			found, ok = c, true
		}
	}
	return found, ok
}

// Ratio is numerator per denominator of one group, such as Instructions per Cycles, between two reads.
type Ratio struct {
	Numerator, Denominator float64
	Group                  Group
	// RunningShare is that of the interval, 0 to 1.
	RunningShare float64
	UserOnly     bool
}

// Value is the ratio itself. RatioOf never returns one with a zero denominator.
func (r Ratio) Value() float64 { return r.Numerator / r.Denominator }

// RatioOf divides the growth of two events from one read to a later one of the same set; earlier may be nil for
// everything since the set was opened. ok is false when no group counted both of them in that interval.
func RatioOf(earlier, later []Count, numerator, denominator Event) (ratio Ratio, ok bool) {
	for _, top := range later {
		if top.Event != numerator {
			continue
		}
		bottom, found := inGroup(later, denominator, top.Group)
		if !found {
			continue
		}
		top0, _ := inGroup(earlier, numerator, top.Group)
		bottom0, _ := inGroup(earlier, denominator, top.Group)
		if ratio, ok := between(top0, top, bottom0, bottom); ok {
			return ratio, true
		}
	}
	return Ratio{}, false
}

func between(top0, top, bottom0, bottom Count) (Ratio, bool) {
	ratio := Ratio{
		Numerator: top.Value - top0.Value, Denominator: bottom.Value - bottom0.Value,
		Group: top.Group, UserOnly: top.UserOnly || bottom.UserOnly,
	}
	enabled, running := top.Enabled-top0.Enabled, top.Running-top0.Running
	if top.Status != Counted || bottom.Status != Counted || running == 0 || ratio.Denominator <= 0 {
		return Ratio{}, false
	}
	ratio.RunningShare = float64(running) / float64(enabled)
	return ratio, true
}

func inGroup(counts []Count, event Event, group Group) (Count, bool) {
	for _, c := range counts {
		if c.Event == event && c.Group == group {
			return c, true
		}
	}
	return Count{}, false
}

// tally follows one event of one thread or CPU from read to read.
type tally struct {
	raw, enabled, running uint64
	value                 float64
}

// add takes in a new cumulative reading. Each interval is scaled by its own share, so that a thread that was
// multiplexed only for a while is not extrapolated for the rest of its life, and totals never go down. While an
// interval had no time on the counter nothing is taken, and the next one covers it too.
func (t *tally) add(raw, enabled, running uint64) {
	if running <= t.running || enabled < t.enabled || raw < t.raw {
		return
	}
	scale := float64(enabled-t.enabled) / float64(running-t.running)
	t.value += float64(raw-t.raw) * scale
	t.raw, t.enabled, t.running = raw, enabled, running
}
