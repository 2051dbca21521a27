package perfevent

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// busyLoop is what the test below must find: it runs for d and calls nothing but the clock.
//
//go:noinline
func busyLoop(d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
		for range 100_000 { // nothing is what it is to do
		}
	}
}

// pin keeps the test on one CPU.
func pin(t *testing.T) (cpu int) {
	t.Helper()
	runtime.LockOSThread()
	var old, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		t.Fatal(err)
	}
	for !old.IsSet(cpu) {
		cpu++
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.SchedSetaffinity(0, &old); runtime.UnlockOSThread() })
	return cpu
}

// threadTime is the CPU time of this thread.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// TestSampler: a thread that keeps a CPU busy is found there, in the function it runs, as often as the clock says.
func TestSampler(t *testing.T) {
	testenv.Need(t, testenv.Root)
	cpu := pin(t)
	const period = 2 * time.Millisecond
	s, err := OpenSampler([]int{cpu}, period)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	began := threadTime(t)
	busyLoop(500 * time.Millisecond)
	used := threadTime(t) - began

	samples, functions := 0, map[string]int{}
	lost, err := s.Read(func(x Sample) {
		if x.PID != os.Getpid() || x.TID != unix.Gettid() || !x.User {
			return
		}
		samples++
		if f := runtime.FuncForPC(uintptr(x.IP)); f != nil {
			functions[f.Name()]++
		}
	})
	if err != nil || lost != 0 {
		t.Errorf("%v, %d lost", err, lost)
	}
	// In a virtual machine the clock may be late. Twice as many cannot be.
	if want := int(used / period); samples < want/2 || samples > want*3/2 {
		t.Errorf("%d samples every %v of %v", samples, period, used)
	}
	if name := "github.com/perfdoctor/perfdoctor/internal/kernel/perfevent.busyLoop"; functions[name] < samples/2 {
		t.Errorf("%d samples, at %v", samples, functions)
	}
	again := 0
	if _, err := s.Read(func(x Sample) { again++ }); err != nil || again > samples/2 {
		t.Errorf("read again: %d, %v", again, err)
	}
}

// TestSamplerFull: samples that do not fit into the buffer are counted as lost.
func TestSamplerFull(t *testing.T) {
	testenv.Need(t, testenv.Root)
	s, err := OpenSampler([]int{pin(t)}, 50*time.Microsecond)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	busyLoop(700 * time.Millisecond) // 14,000 samples
	read := 0
	if _, err := s.Read(func(Sample) { read++ }); err != nil {
		t.Fatal(err)
	}
	busyLoop(20 * time.Millisecond) // the kernel says what was lost before its next sample
	lost, err := s.Read(func(Sample) {})
	if err != nil || lost == 0 || read < 1000 {
		t.Errorf("%d read, %d lost, %v", read, lost, err)
	}
}

func TestSamplerRefused(t *testing.T) {
	if _, err := OpenSampler(nil, time.Millisecond); err == nil {
		t.Error("no CPU is sampled")
	}
	if _, err := OpenSampler([]int{0}, 0); err == nil {
		t.Error("a CPU is sampled all the time")
	}
	r, ok := errors.AsType[*RefusedError](refusal(unix.EACCES))
	if !ok || r.Status != Denied || !strings.Contains(r.Reason, "CAP_PERFMON") {
		t.Errorf("%+v", r)
	}
}

func record(typ uint32, misc uint16, words ...uint64) []byte {
	b := binary.NativeEndian.AppendUint32(nil, typ)
	b = binary.NativeEndian.AppendUint16(b, misc)
	b = binary.NativeEndian.AppendUint16(b, uint16(8+8*len(words)))
	for _, w := range words {
		b = binary.NativeEndian.AppendUint64(b, w)
	}
	return b
}

func TestParseSamples(t *testing.T) {
	thread := binary.NativeEndian.Uint64([]byte{7, 0, 0, 0, 9, 0, 0, 0}) // little endian on both architectures
	var b []byte
	b = append(b, record(unix.PERF_RECORD_SAMPLE, unix.PERF_RECORD_MISC_USER, 0x1234, thread)...)
	b = append(b, record(unix.PERF_RECORD_LOST, 0, 1, 17)...)
	b = append(b, record(unix.PERF_RECORD_THROTTLE, 0, 1, 2, 3)...)
	b = append(b, record(unix.PERF_RECORD_SAMPLE, unix.PERF_RECORD_MISC_KERNEL, 0xffffffff81000000, thread)...)
	var got []Sample
	lost, err := parseSamples(b, func(s Sample) { got = append(got, s) })
	want := []Sample{{PID: 7, TID: 9, IP: 0x1234, User: true}, {PID: 7, TID: 9, IP: 0xffffffff81000000}}
	if err != nil || lost != 17 || !cmp.Equal(got, want) {
		t.Errorf("%+v, %d lost, %v", got, lost, err)
	}
	for _, bad := range [][]byte{
		b[:7], b[:23], record(unix.PERF_RECORD_SAMPLE, 0, 1), record(unix.PERF_RECORD_LOST, 0),
		make([]byte, 8),
	} {
		if _, err := parseSamples(bad, func(Sample) {}); err == nil {
			t.Errorf("%x is taken for records", bad)
		}
	}
}

func FuzzParseSamples(f *testing.F) {
	f.Add(record(unix.PERF_RECORD_SAMPLE, unix.PERF_RECORD_MISC_USER, 0x1234, 7))
	f.Add(record(unix.PERF_RECORD_LOST, 0, 1, 17))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		_, err := parseSamples(b, func(Sample) { n++ })
		if n > len(b)/sampleSize {
			t.Errorf("%d samples of %d bytes, %v", n, len(b), err)
		}
	})
}
