package perfevent

// find returns the first count of an event that was counted, else the first one with a reason why not.
func find(counts []Count, event Event) (Count, bool) {
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

// ratio is numerator per denominator of one group, such as Instructions per Cycles, between two reads.
type ratio struct {
	Numerator, Denominator float64
	Group                  Group
	// RunningShare is that of the interval, 0 to 1.
	RunningShare float64
	UserOnly     bool
}

// value is the ratio itself. ratioOf never returns one with a zero denominator.
func (r ratio) value() float64 { return r.Numerator / r.Denominator }

// ratioOf divides the growth of two events from one read to a later one of the same set. earlier may be nil for
// everything since the set was opened. ok is false if no group counted both of them in that interval.
func ratioOf(earlier, later []Count, numerator, denominator Event) (_ ratio, ok bool) {
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
		if r, ok := between(top0, top, bottom0, bottom); ok {
			return r, true
		}
	}
	return ratio{}, false
}

func between(top0, top, bottom0, bottom Count) (ratio, bool) {
	r := ratio{
		Numerator: top.Value - top0.Value, Denominator: bottom.Value - bottom0.Value,
		Group: top.Group, UserOnly: top.UserOnly || bottom.UserOnly,
	}
	enabled, running := top.Enabled-top0.Enabled, top.Running-top0.Running
	if top.Status != Counted || bottom.Status != Counted || running == 0 || r.Denominator <= 0 {
		return ratio{}, false
	}
	r.RunningShare = float64(running) / float64(enabled)
	return r, true
}

func inGroup(counts []Count, event Event, group Group) (Count, bool) {
	for _, c := range counts {
		if c.Event == event && c.Group == group {
			return c, true
		}
	}
	return Count{}, false
}
