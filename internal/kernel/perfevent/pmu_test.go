package perfevent

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
	if c, _ := find(read(t, s), Instructions); c.Status == NotSupported || c.Status == Denied {
		t.Skipf("instructions: %s: %s", c.Status, c.Reason)
	}
	// Twice the turns less once the turns: the code around the loop cancels out.
	const turns = 20_000_000
	var grown [2]float64
	for i := range grown {
		before := read(t, s)
		if loop((i+1)*turns) == 0 {
			t.Fatal("the loop was not run")
		}
		after := read(t, s)
		grown[i] = value(t, after, Instructions) - value(t, before, Instructions)
		r, ok := ratioOf(before, after, Instructions, Cycles)
		if !ok {
			t.Fatal("no instructions per cycle")
		}
		t.Logf("%d turns: %.0f instructions, %.4f per cycle, %.0f %% of the time on a counter", (i+1)*turns, grown[i],
			r.value(), 100*r.RunningShare)
	}
	each := (grown[1] - grown[0]) / turns
	// 2 % is for interrupts that fall into the one loop and not into the other.
	if whole := math.Round(each); whole < 2 || math.Abs(each-whole) > 0.02*whole {
		t.Errorf("%.4f instructions a turn, want a whole number of two or more", each)
	}
	t.Logf("%.5f instructions a turn", each)
}

// pmuVar says which PMU the tests below know this machine to have. It is the time of one instruction, such as 2ns, in a
// guest whose clock counts instructions and whose cycles are nanoseconds, or "partial" if it counts cycles and no
// instructions. Command kernels sets it.
const pmuVar = "PERFDOCTOR_TEST_PMU"

// instructionTime skips the test unless the time of one instruction is known.
func instructionTime(t *testing.T) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(os.Getenv(pmuVar))
	if err != nil {
		t.Skip("needs a guest whose clock counts instructions: make test-kernels runs this in one")
	}
	return d
}

// work runs a loop and returns the CPU time that the calling thread had.
func work(t *testing.T, turns int) time.Duration {
	t.Helper()
	var before, after unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &before); err != nil {
		t.Fatal(err)
	}
	if loop(turns) == 0 {
		t.Fatal("the loop was not run")
	}
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &after); err != nil {
		t.Fatal(err)
	}
	return time.Duration(after.Nano() - before.Nano())
}

// TestKnownIPC: a cycle is a nanosecond, so instructions per cycle are known to all digits. The thread's CPU time tells
// how many instructions there were.
func TestKnownIPC(t *testing.T) {
	each := instructionTime(t)
	s := thisThread(t)
	before := read(t, s)
	used := work(t, 20_000_000)
	after := read(t, s)
	r, ok := ratioOf(before, after, Instructions, Cycles)
	if !ok {
		t.Fatal("no instructions per cycle")
	}
	if got, want := fmt.Sprintf("%.4f", r.value()), fmt.Sprintf("%.4f", 1/float64(each)); got != want {
		t.Errorf("%s instructions per cycle, want %s", got, want)
	}
	grown, want := value(t, after, Instructions)-value(t, before, Instructions), float64(used)/float64(each)
	t.Logf("%.0f instructions, by the CPU time %.0f; %.6f per cycle", grown, want, r.value())
	if math.Abs(grown-want) > 0.01*want { // the two readings of the counters are in one and not in the other
		t.Errorf("%.0f instructions, the CPU time has %.0f", grown, want)
	}
}

// TestGroupIPC: what runs in a control group is counted while it is there. Cycles and instructions match a known
// machine.
func TestGroupIPC(t *testing.T) {
	each := instructionTime(t)
	enter, leave := cgroup(t)
	s, err := OpenCgroup(enter, onlineCPUs(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	move(t, enter)
	before := read(t, s)
	used := work(t, 20_000_000)
	after := read(t, s)
	move(t, leave)
	r, ok := ratioOf(before, after, Instructions, Cycles)
	if !ok {
		t.Fatalf("no instructions per cycle: %+v", after)
	}
	if got, want := fmt.Sprintf("%.4f", r.value()), fmt.Sprintf("%.4f", 1/float64(each)); got != want {
		t.Errorf("%s instructions per cycle, want %s", got, want)
	}
	grown, want := value(t, after, Instructions)-value(t, before, Instructions), float64(used)/float64(each)
	t.Logf("%.0f instructions, by the CPU time %.0f; %.6f per cycle", grown, want, r.value())
	if grown < 0.99*want || grown > 1.1*want { // the other threads of the process are of the group, too
		t.Errorf("%.0f instructions, the CPU time has %.0f", grown, want)
	}
	gone := read(t, s)
	work(t, 20_000_000)
	if still := value(t, read(t, s), Instructions) - value(t, gone, Instructions); still > 0.01*want {
		t.Errorf("%.0f instructions outside the group", still)
	}
}

// TestMultiplexed: twelve events share the seven counters of a Cortex-A57. So three of the six groups are counted at a
// time, and are scaled to what they would have counted.
func TestMultiplexed(t *testing.T) {
	each := instructionTime(t)
	sets := make([]*Set, 6) // of cycles and instructions
	first := make([][]Count, len(sets))
	for i := range sets {
		sets[i] = thisThread(t, Core)
		first[i] = read(t, sets[i])
	}
	used := work(t, 40_000_000)
	want := float64(used) / float64(each)
	for i, s := range sets {
		counts := read(t, s)
		r, ok := ratioOf(first[i], counts, Instructions, Cycles)
		if !ok {
			t.Fatalf("set %d: no instructions per cycle", i)
		}
		off := r.Numerator/want - 1
		t.Logf("set %d: %s: %.1f %% of the time on a counter, %.2f %% off %.0f instructions", i, r.Group,
			100*r.RunningShare, 100*off, want)
		if math.Abs(off) > 0.02 {
			t.Errorf("set %d: scaled to %.0f instructions, the CPU time has %.0f", i, r.Numerator, want)
		}
		if r.RunningShare < 0.45 || r.RunningShare > 0.55 {
			t.Errorf("set %d: on a counter for %.1f %% of the time, want half", i, 100*r.RunningShare)
		}
	}
}

// TestMissingEvents: events that this PMU does not count are reported as missing, and have no number and no ratio.
func TestMissingEvents(t *testing.T) {
	instructionTime(t)
	s := thisThread(t)
	before := read(t, s)
	work(t, 1_000_000)
	after := read(t, s)
	for _, e := range []Event{BranchMisses, CacheReferences, CacheMisses, StalledCyclesFront, DTLBLoadMisses} {
		c, ok := find(after, e)
		if !ok || c.Status != NotSupported || c.Value != 0 || !strings.Contains(c.Reason, "no such counter") {
			t.Errorf("%s: %+v, want it not supported, with the reason", e, c)
		}
		if r, ok := ratioOf(before, after, e, Instructions); ok {
			t.Errorf("%s per instruction: %v", e, r.value())
		}
	}
}

// TestPartialPMU: one missing event does not take the rest of its group along.
func TestPartialPMU(t *testing.T) {
	if os.Getenv(pmuVar) != "partial" {
		t.Skip("needs a PMU that counts cycles and no instructions: make test-kernels runs this in a guest")
	}
	s := thisThread(t)
	before := read(t, s)
	work(t, 5_000_000)
	after := read(t, s)
	if grown := value(t, after, Cycles) - value(t, before, Cycles); grown <= 0 {
		t.Errorf("%v cycles", grown)
	}
	c, ok := find(after, Instructions)
	if !ok || c.Status != NotSupported || c.Value != 0 {
		t.Errorf("instructions: %+v, want them not supported", c)
	}
	if r, ok := ratioOf(before, after, Instructions, Cycles); ok {
		t.Errorf("%v instructions per cycle without instructions", r.value())
	}
}
