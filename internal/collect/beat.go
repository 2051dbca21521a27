package collect

import (
	"math/rand/v2"
	"time"
)

// A beat says when samples are taken: once per interval, at a random moment in the first part of it. Otherwise a
// program with a rhythm of its own, such as eight requests a second, would be sampled at the same phase each time.
type beat struct {
	timer    *time.Timer
	began    time.Time
	interval time.Duration
	n        int64 // intervals
}

// beatPart is the divisor for that part: a quarter of a second covers all phases of whatever happens four or more
// times a second, and leaves the rest of the interval for slow samples.
const beatPart = 4

func newBeat(interval time.Duration) *beat {
	b := &beat{timer: time.NewTimer(0), began: time.Now(), interval: interval}
	b.timer.Stop()
	b.next()
	return b
}

// next sets the timer for the next sample. It skips samples whose time is over.
func (b *beat) next() {
	b.n = max(b.n+1, int64(time.Since(b.began)/b.interval))
	at := time.Duration(b.n*int64(b.interval)) + rand.N(max(b.interval/beatPart, 1))
	b.timer.Reset(at - time.Since(b.began))
}
