package ebpf

import (
	"sync"
	"time"
)

// turns attaches programs for a part of the time: a program that runs a hundred thousand times a second costs the host
// more than it may, even if it does nothing (0.06 µs a call).
type turns struct {
	length time.Duration // of a turn
	every  time.Duration // from the beginning of one to that of the next
	// attach begins a turn, and detach ends it. busy reads what was counted, and reports whether it is so much that
	// turns are needed; otherwise the programs stay attached.
	attach, detach func() error
	busy           func() (bool, error)

	mu       sync.Mutex // held while one of them runs
	timer    *time.Timer
	attached bool
	since    time.Time     // when they were attached last
	before   time.Duration // how long they were attached until then
	closed   bool
	failed   error
}

// A rate is how fast something that is counted by CPU grows.
type rate struct {
	limit  float64 // a second and CPU, above which turns are needed
	since  time.Time
	before []uint64 // when it was marked
}

// mark begins the time over which the rate is taken.
func (r *rate) mark(counts []uint64) { r.since, r.before = time.Now(), counts }

// isBusy reports whether a CPU has been above the limit since the last mark.
func (r *rate) isBusy(counts []uint64) bool {
	most := uint64(0)
	for cpu, n := range counts {
		most = max(most, n-r.before[cpu])
	}
	return float64(most) > r.limit*time.Since(r.since).Seconds()
}

// start begins the turns, with the programs attached.
func (t *turns) start() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.attached, t.since = true, time.Now()
	t.timer = time.AfterFunc(t.length, t.take)
}

// attachedFor returns how long the programs were attached until now. The caller holds the lock.
func (t *turns) attachedFor(now time.Time) time.Duration {
	if !t.attached {
		return t.before
	}
	return t.before + now.Sub(t.since)
}

func (t *turns) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.timer != nil {
		t.timer.Stop()
	}
}

// take begins a turn, or ends it if there is much to do.
func (t *turns) take() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	next, err := t.change()
	if err != nil {
		t.failed = err
		return
	}
	t.timer.Reset(next)
}

// change begins or ends a turn where needed, and returns when to look again.
func (t *turns) change() (time.Duration, error) {
	if !t.attached {
		err := t.attach()
		t.attached, t.since = true, time.Now()
		return t.length, err
	}
	busy, err := t.busy()
	if err != nil || !busy {
		return t.every, err
	}
	t.before, t.attached = t.attachedFor(time.Now()), false
	return t.every - t.length, t.detach()
}
