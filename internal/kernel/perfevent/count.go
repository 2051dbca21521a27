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
	// Group names the events that were on the counters together. Only counts of one group may be divided by each
	// other.
	Group Group
	// Value is scaled for the time the event shared its counter with others (multiplexing); ns for clocks.
	Value float64
	// Raw is what the counters themselves counted.
	Raw uint64
	// Enabled and Running are ns summed over threads or CPUs: the time that should have been counted, and the time
	// that was. A thread off the CPU adds to neither.
	Enabled, Running uint64
	Status           Status
	// UserOnly is set when only user mode could be counted (kernel.perf_event_paranoid 2 without CAP_PERFMON).
	UserOnly bool
	// Reason says why Status is not Counted and what to do.
	Reason string
}

// RunningShare returns the part of the time the event was on a counter, 0 to 1: below 1 the value is an
// extrapolation.
func (c Count) RunningShare() float64 {
	if c.Enabled == 0 {
		return 0
	}
	return float64(c.Running) / float64(c.Enabled)
}

// tally follows one event of one thread or CPU from read to read.
type tally struct {
	raw, enabled, running uint64
	value                 float64
}

// add takes a new cumulative reading. It scales each interval by its own share, so that a thread that was multiplexed
// only for a while is not extrapolated for the rest of its life, and totals never go down. An interval without time
// on the counter adds nothing, and the next one covers it too.
func (t *tally) add(raw, enabled, running uint64) {
	if running <= t.running || enabled < t.enabled || raw < t.raw {
		return
	}
	scale := float64(enabled-t.enabled) / float64(running-t.running)
	t.value += float64(raw-t.raw) * scale
	t.raw, t.enabled, t.running = raw, enabled, running
}
