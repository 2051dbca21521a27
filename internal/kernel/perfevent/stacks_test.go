package perfevent

import (
	"encoding/binary"
	"math"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// TestStacksOfAThread has a thread spin with a mark on its stack, and looks for the mark in the samples of that thread.
func TestStacksOfAThread(t *testing.T) {
	testenv.Need(t, testenv.Root)
	const mark, period, ran = 0x5ec2e7c0de, 5 * time.Millisecond, 300 * time.Millisecond
	tid, begin, done := make(chan int), make(chan bool), make(chan uint64)
	go func() {
		runtime.LockOSThread() // and ends with the thread
		tid <- unix.Gettid()
		<-begin
		done <- spinWith(mark, ran)
	}()
	s, err := OpenStacks(<-tid, period)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	samples, framed, marked, lost := 0, 0, 0, uint64(0)
	look := func(x StackSample) {
		samples++
		if x.PC == 0 {
			t.Errorf("registers: frame %#x, stack %#x, counter 0", x.FP, x.SP)
		}
		if x.FP >= x.SP && x.FP <= x.SP+StackSize {
			framed++ // the runtime asks for the time on the stack of g0, with the goroutine's frame
		}
		for i := 0; i+8 <= len(x.Stack); i += 8 {
			if binary.NativeEndian.Uint64(x.Stack[i:]) == mark {
				marked++
				break
			}
		}
	}
	begin <- true
	for ended := false; !ended; { // the buffer holds 15 whole stacks
		select {
		case <-done:
			ended = true
		case <-time.After(4 * period):
		}
		n, err := s.Read(look)
		if err != nil {
			t.Fatal(err)
		}
		lost += n
	}
	want := float64(ran/period) - float64(lost)
	if math.Abs(float64(samples)-want) > 0.25*want {
		t.Errorf("%d samples and %d lost, want %v", samples, lost, want)
	}
	if float64(framed) < 0.9*float64(samples) {
		t.Errorf("the frame is on the stack in %d of %d samples", framed, samples)
	}
	if float64(marked) < 0.9*float64(samples) {
		t.Errorf("the mark is on %d of %d stacks", marked, samples)
	}
}

// spinWith runs for a while, by the thread's own clock, with an array of marks on its stack.
//
//go:noinline
func spinWith(mark uint64, d time.Duration) uint64 {
	var marks [16]uint64
	for i := range marks {
		marks[i] = mark
	}
	for begin := spentOf(); spentOf() < begin+int64(d); {
		keep(&marks)
	}
	return marks[3]
}

// spentOf is the CPU time of this thread, ns.
func spentOf() int64 {
	var used unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used) != nil {
		return math.MaxInt64
	}
	return used.Nano()
}

//go:noinline
func keep(*[16]uint64) {}

// stackRecord is one as the kernel writes it.
func stackRecord(registers [3]uint64, taken int) []byte {
	const room = 64
	b := binary.NativeEndian.AppendUint32(nil, unix.PERF_RECORD_SAMPLE)
	b = binary.NativeEndian.AppendUint16(b, unix.PERF_RECORD_MISC_USER)
	b = binary.NativeEndian.AppendUint16(b, uint16(8+8*5+room+int(unsafe.Sizeof(uint64(0)))))
	b = binary.NativeEndian.AppendUint64(b, unix.PERF_SAMPLE_REGS_ABI_64)
	for _, r := range registers {
		b = binary.NativeEndian.AppendUint64(b, r)
	}
	b = binary.NativeEndian.AppendUint64(b, uint64(room))
	b = append(b, make([]byte, room)...)
	return binary.NativeEndian.AppendUint64(b, uint64(taken))
}

func TestParseStacks(t *testing.T) {
	b := append(stackRecord([3]uint64{3, 2, 1}, 40), stackRecord([3]uint64{6, 5, 4}, 64)...)
	var got []StackSample
	if _, err := parseStacks(b, func(s StackSample) { got = append(got, s) }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].FP != 3 || got[0].SP != 2 || got[0].PC != 1 || len(got[0].Stack) != 40 ||
		got[1].PC != 4 || len(got[1].Stack) != 64 {
		t.Errorf("%+v", got)
	}
	b = stackRecord([3]uint64{3, 2, 1}, 40)
	binary.NativeEndian.PutUint64(b[8+8*4:], 1<<40) // the size of the stack
	if _, err := parseStacks(b, func(StackSample) {}); err == nil {
		t.Error("a stack larger than its record is no error")
	}
}

// FuzzParseStacks: no bytes make it panic or return a stack that is not among them.
func FuzzParseStacks(f *testing.F) {
	f.Add(stackRecord([3]uint64{3, 2, 1}, 40))
	f.Add([]byte(os.DevNull))
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		_, _ = parseStacks(b, func(s StackSample) { total += len(s.Stack) })
		if total > len(b) {
			t.Errorf("%d bytes of stacks in %d", total, len(b))
		}
	})
}
