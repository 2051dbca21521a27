package collect

import (
	"math/rand/v2"
	"time"
)

// A beat is when samples are taken: once an interval, at a random moment of the first part of it. A program that has a
// beat of its own, such as eight requests a second, would else be looked at in the same moment of it each time.
type beat struct {
	timer    *time.Timer
	began    time.Time
	interval time.Duration
	n        int64 // intervals
}

// beatPart is that part: in a quarter of a second whatever is done four times a second and more is met anywhere, and
// the rest of the interval is left for slow samples.
const beatPart = 4

func newBeat(interval time.Duration) *beat {
	b := &beat{timer: time.NewTimer(0), began: time.Now(), interval: interval}
	b.timer.Stop()
	b.next()
	return b
}

// next sets the timer for the next sample. Those whose time is over are left out.
func (b *beat) next() {
	b.n = max(b.n+1, int64(time.Since(b.began)/b.interval))
	at := time.Duration(b.n*int64(b.interval)) + rand.N(max(b.interval/beatPart, 1))
	b.timer.Reset(at - time.Since(b.began))
}
