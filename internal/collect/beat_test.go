package collect

import (
	"testing"
	"time"
)

// TestBeat: one beat an interval, at moments that differ. Missed beats are not made up for.
func TestBeat(t *testing.T) {
	const interval = 20 * time.Millisecond
	b := newBeat(interval)
	defer b.timer.Stop()
	seen := map[int64]int{}
	for n := 1; n <= 10; n++ {
		if n == 5 {
			time.Sleep(5 * interval) // like a host that stands still
		}
		<-b.timer.C
		seen[b.n]++
		if passed := time.Since(b.began); passed < time.Duration(b.n)*interval {
			t.Errorf("the sample of interval %d came after %s", b.n, passed)
		}
		b.next()
	}
	if b.n < 14 {
		t.Errorf("%d intervals have passed, at least 14 have", b.n)
	}
	for n, times := range seen {
		if times > 1 {
			t.Errorf("%d samples in interval %d", times, n)
		}
	}
}
