package perfevent

import (
	"math"
	"testing"
)

// loop has the same few instructions for each turn, whatever the compiler made of them.
//
//go:noinline
func loop(turns int) uint64 {
	x := uint64(1)
	for range turns {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

// TestInstructionsOfALoop needs a PMU. Package vm runs it in a guest that has one.
func TestInstructionsOfALoop(t *testing.T) {
	s := thisThread(t)
	if c, _ := Find(read(t, s), Instructions); c.Status == NotSupported || c.Status == Denied {
		t.Skipf("instructions: %s: %s", c.Status, c.Reason)
	}
	// Twice the turns less once the turns: what surrounds the loop cancels out.
	const turns = 20_000_000
	var grown [2]float64
	for i := range grown {
		before := read(t, s)
		if loop((i+1)*turns) == 0 {
			t.Fatal("the loop was not run")
		}
		after := read(t, s)
		grown[i] = value(t, after, Instructions) - value(t, before, Instructions)
		ratio, ok := RatioOf(before, after, Instructions, Cycles)
		if !ok {
			t.Fatal("no instructions per cycle")
		}
		t.Logf("%d turns: %.0f instructions, %.4f per cycle, %.0f %% of the time on a counter", (i+1)*turns, grown[i],
			ratio.Value(), 100*ratio.RunningShare)
	}
	each := (grown[1] - grown[0]) / turns
	// 2 % is for interrupts that fall into the one loop and not into the other.
	if whole := math.Round(each); whole < 2 || math.Abs(each-whole) > 0.02*whole {
		t.Errorf("%.4f instructions a turn, want a whole number of two or more", each)
	}
	t.Logf("%.5f instructions a turn", each)
}
