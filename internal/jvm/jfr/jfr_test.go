package jfr

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// sampleFile is a recording of testdata/Sample.java for 1.5 s on OpenJDK 17.0.15 by async-profiler 4.6 with
// event=cpu,interval=10ms,wall=100ms,alloc=2m,lock=5ms,jfr,jfropts=31,clock=monotonic.
const sampleFile = "testdata/sample.jfr"

func readFile(t testing.TB, data []byte, o Options) map[stacks.Event]*stacks.Profile {
	t.Helper()
	list, err := Read(bytes.NewReader(data), int64(len(data)), o)
	if err != nil {
		t.Fatal(err)
	}
	out := map[stacks.Event]*stacks.Profile{}
	for _, p := range list {
		out[p.Event] = p
	}
	return out
}

func sampleData(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile(sampleFile)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestCountsOfTheJDK compares counts and sums with those of the JDK's own reader of the format.
func TestCountsOfTheJDK(t *testing.T) {
	testenv.Need(t, testenv.Tool("jfr"))
	p := readFile(t, sampleData(t), Options{})
	cpu, _ := printed(t, "jdk.ExecutionSample", "")
	_, wall := printed(t, "profiler.WallClockSample", "samples")
	enters, _ := printed(t, "jdk.JavaMonitorEnter", "")
	parks, _ := printed(t, "jdk.ThreadPark", "")
	alloc, _ := printed(t, "jdk.ObjectAllocationInNewTLAB", "")
	for e, want := range map[stacks.Event]int64{
		stacks.CPU: cpu, stacks.Wall: wall, stacks.Lock: enters + parks,
		stacks.Alloc: alloc,
	} {
		if got := p[e].Total().Count; got != want || want == 0 {
			t.Errorf("%s: %d samples, the JDK's jfr print has %d", e, got, want)
		}
	}
}

// printed counts the events of a type, and sums a field of theirs, as `jfr print` shows them.
func printed(t *testing.T, event, field string) (count, sum int64) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "jfr", "print", "--events", event, sampleFile).Output()
	if err != nil {
		t.Fatal(err)
	}
	if field != "" {
		for _, m := range regexp.MustCompile(`(?m)^  `+field+` = (\d+)$`).FindAllSubmatch(out, -1) {
			n, err := strconv.ParseInt(string(m[1]), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return int64(bytes.Count(out, []byte("\n"+event+" {"))) + int64(bytes.Count(out[:min(len(out), len(event)+2)],
		[]byte(event+" {"))), sum
}

// TestRecording pins the content of a real file, with numbers that jfr summary and the program itself give.
func TestRecording(t *testing.T) {
	p := readFile(t, sampleData(t), Options{})
	for _, tc := range []struct {
		event    stacks.Event
		engine   string
		interval int64
		total    stacks.Weight
		frame    stacks.Frame
		thread   string
		class    string
		state    stacks.State
	}{
		{
			stacks.CPU, "async-profiler 4.6 perf_events", 10_000_000,
			stacks.Weight{Count: 64, Value: 640_000_000},
			stacks.Frame{Name: "Sample.work", Kind: stacks.Compiled, Line: 12},
			"sample-0", "", stacks.StateUnknown,
		},
		{
			stacks.Wall, "async-profiler 4.6", 100_000_000, p[stacks.Wall].Total(),
			stacks.Frame{Name: "__futex_abstimed_wait_common", Module: "libc.so.6", Kind: stacks.Native},
			"GC Thread#0", "", stacks.Sleeping,
		},
		{
			stacks.Lock, "async-profiler 4.6", 5_000_000, p[stacks.Lock].Total(),
			stacks.Frame{Name: "Sample.hold", Kind: stacks.Compiled, Line: 19},
			"sample-3", "java.lang.Object", stacks.StateUnknown,
		},
		{
			stacks.Alloc, "async-profiler 4.6", 2 << 20,
			stacks.Weight{Count: 61, Value: 61 * 2 << 20},
			stacks.Frame{Name: "Sample.allocate", Kind: stacks.Compiled, Line: 16},
			"sample-1", "byte[]", stacks.StateUnknown,
		},
	} {
		got := p[tc.event]
		if got.Engine != tc.engine || got.Interval != tc.interval || got.Total() != tc.total || got.Lost != 0 {
			t.Errorf("%s: %q, interval %d, total %v, lost %d", tc.event, got.Engine, got.Interval, got.Total(),
				got.Lost)
		}
		if d := got.Duration; d < 1500*time.Millisecond || d > 3*time.Second {
			t.Errorf("%s: the program ran 1.5 s, the profile %v", tc.event, d)
		}
		want := got.Set(func(f stacks.Frame) bool { f.Kind = tc.frame.Kind; return f == tc.frame })
		hits := got.Filter(func(s stacks.Sample) bool {
			return s.Innermost(want) >= 0 && got.ThreadOf(s).Name == tc.thread && got.ThreadOf(s).ID > 0 &&
				s.Class == tc.class && s.State == tc.state
		})
		if hits.Total().Count == 0 {
			t.Errorf("%s: no sample of %+v in thread %s, class %q, state %d", tc.event, tc.frame, tc.thread, tc.class,
				tc.state)
		}
		for _, s := range got.Samples {
			if s.At > got.Duration {
				t.Errorf("%s: a sample at %v of %v", tc.event, s.At, got.Duration)
			}
		}
	}
	// Two threads share a monitor, and two share a lock. Each pair takes them in turn and waits most of the time.
	if wait := time.Duration(p[stacks.Lock].Total().Value); wait < 1500*time.Millisecond ||
		wait > 4*1500*time.Millisecond {
		t.Errorf("four threads of 1.5 s waited %v", wait)
	}
}

func TestSynthetic(t *testing.T) {
	f := synthFile{settings: settings, pool: smallPool, events: func(s *synth) {
		for _, state := range []uint64{0, 2} { // of a CPU sample it says nothing
			s.event(101, func(s *synth) {
				s.num(ticks + 1_500_000)
				s.b = append(s.b, make([]byte, 12)...) // a.Pair
				s.num(1, 5, state, 2)                  // thread, stack, state, two names
				s.b = append(s.b, stringLatin1, 1, 'x', stringChars, 2, 'y', 'z')
			})
		}
		s.event(102, func(s *synth) { s.num(ticks+500_000, 1, 6, 2, 21, 2_000_000) }) // 21 samples from 0.5 s to 2.5 s
		s.event(102, func(s *synth) { s.num(ticks-5, 1, 6, 2, 1, 0) })
		// 7 us, past the end, of an unknown thread
		s.event(103, func(s *synth) { s.num(ticks+99_000_000, 7, 9, 5, 1) })
		s.event(103, func(s *synth) { s.num(ticks, 2_000_000, 1, 77, 1) })       // 2 s, of an unknown stack
		s.event(104, func(s *synth) { s.num(ticks, 1, 0, 99, 24, 524_288) })     // of an unknown class
		s.event(104, func(s *synth) { s.num(ticks, 1, 0, 1, 1_000_000_000, 0) }) // no size of a buffer
	}}
	got := map[stacks.Event]string{}
	for e, p := range readFile(t, f.bytes(), Options{ThreadID: func(id int) int { return id + 4000 }}) {
		var b strings.Builder
		if err := p.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		_, samples, _ := strings.Cut(b.String(), "\n\n")
		got[e] = samples
	}
	const stack = "kernel!tcp_sendmsg_[k];libc.so.6!memcpy_[n];com.example.Shop[].run:42_[i]"
	want := map[stacks.Event]string{
		stacks.CPU: "[worker tid=4077|@1s];" + stack + " 2 20000000\n",
		stacks.Wall: "[worker tid=4077|sleeping] 6 600000000\n" +
			"[worker tid=4077|@1s|sleeping] 10 1000000000\n[worker tid=4077|@2s|sleeping] 6 600000000\n",
		stacks.Lock: "[|@9s|class com.example.Shop[]];" + stack + " 1 1000000\n" +
			"[worker tid=4077|class com.example.Shop[]] 1 2000000000\n",
		stacks.Alloc: "[worker tid=4077] 1 524288\n[worker tid=4077|class com.example.Shop[]] 1 1000000000\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestChunksAddUp(t *testing.T) {
	one := sampleData(t)
	single, double := readFile(t, one, Options{}), readFile(t, append(bytes.Clone(one), one...), Options{})
	for e, p := range single {
		want := stacks.Weight{Count: 2 * p.Total().Count, Value: 2 * p.Total().Value}
		if got := double[e]; got.Total() != want || got.Duration != 2*p.Duration || len(got.Samples) != len(p.Samples) {
			t.Errorf("%s: two equal chunks have %v in %v, want %v", e, got.Total(), got.Duration, want)
		}
	}
}

func TestWhatWasTaken(t *testing.T) {
	for _, tc := range []struct {
		settings string
		want     []stacks.Event
		interval int64
	}{
		{"event=cpu", []stacks.Event{stacks.CPU}, 10_000_000},
		{"event=itimer interval=0", []stacks.Event{stacks.CPU}, 10_000_000},
		{"event=wall interval=7", []stacks.Event{stacks.Wall}, 7},
		{"event=ctimer interval=5 wall=9", []stacks.Event{stacks.CPU, stacks.Wall}, 5},
		{"wall=0", []stacks.Event{stacks.Wall}, 50_000_000},
		{"lock=3 alloc=1", []stacks.Event{stacks.Lock, stacks.Alloc}, 3},
		{"", nil, 0},
	} {
		f := synthFile{settings: [][2]string{{"version", "4.6"}, {"engine", "ctimer"}}}
		for s := range strings.FieldsSeq(tc.settings) {
			name, value, _ := strings.Cut(s, "=")
			f.settings = append(f.settings, [2]string{name, value})
		}
		data := f.bytes()
		list, err := Read(bytes.NewReader(data), int64(len(data)), Options{})
		var got []stacks.Event
		for _, p := range list {
			got = append(got, p.Event)
		}
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" || len(list) > 0 &&
			list[0].Interval != tc.interval {
			t.Errorf("%q: %v, %v, -want +got:\n%s", tc.settings, list, err, diff)
		}
	}
}

// TestHostile reads files that are damaged, or made to be expensive.
func TestHostile(t *testing.T) {
	good := synthFile{settings: settings, pool: smallPool}
	header := func(offset int, v uint64) []byte {
		b := good.bytes()
		binary.BigEndian.PutUint64(b[offset:], v)
		return b
	}
	with := func(set ...[2]string) []byte { return synthFile{settings: append(set, settings...)}.bytes() }
	events := func(f func(*synth)) []byte { return synthFile{settings: settings, pool: smallPool, events: f}.bytes() }
	pool := func(f func(*synth)) []byte {
		return synthFile{
			settings: settings, pool: f,
			events: func(s *synth) { s.event(102, func(s *synth) { s.num(ticks, 1, 1, 2, 1, 0) }) },
		}.bytes()
	}
	types := func(extra ...synthClass) []byte {
		return synthFile{
			types: append(extra, synthClasses...),
			pool:  func(s *synth) { s.num(1, extra[0].id, 1, 1) },
		}.bytes()
	}
	for _, tc := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "does not begin as one"},
		{"text", []byte(strings.Repeat("hello", 20)), "does not begin as one"},
		{"cut in the header", good.bytes()[:40], "truncated or damaged"},
		{"cut at the end", good.bytes()[:len(good.bytes())-1], "the file is cut"},
		{"bytes behind the end", append(good.bytes(), 'x'), "does not begin as one"},
		{"another version", append([]byte("FLR\x00\x00\x01"), good.bytes()[6:]...), "version 1"},
		{"still running", header(16, 0), "still runs"},
		{"metadata past the end", header(24, 1<<40), "header is damaged"},
		{"metadata elsewhere", header(24, 200), "no description of the types"},
		{"size 0", header(8, 0), "header is damaged"},
		{"a clock that stands", header(56, 0), "clock is damaged"},
		{"a window of years", header(40, 1<<62), "clock is damaged"},
		{"of another program", synthFile{}.bytes(), "another program made it"},
		{"no number", with([2]string{"interval", "10ms"}), "setting interval is"},
		{"a negative interval", with([2]string{"interval", "-1"}), "setting interval is"},
		{"cache misses", with([2]string{"event", "cache-misses"}), `event is "cache-misses"`},
		{"mixed samples", with([2]string{"nobatch", "true"}), "nobatch"},
		{"an event of no bytes", events(func(s *synth) { s.b = append(s.b, 0, 0) }), "does not fit"},
		{"an event past the end", events(func(s *synth) { s.num(1<<40, 101) }), "does not fit"},
		{
			"too many samples",
			events(func(s *synth) { s.event(102, func(s *synth) { s.num(ticks, 1, 5, 2, 1<<52, 0) }) }), "overflows",
		},
		{"a pool of no type", pool(func(s *synth) { s.num(1, 999, 1) }), "no type 999"},
		{"more constants than bytes", pool(func(s *synth) { s.num(1, 22, 1<<50) }), "truncated or damaged"},
		{
			"a deep stack",
			pool(func(s *synth) { s.num(1, 27, 1, 1, 0, maxDepth+1); s.num(make([]uint64, maxDepth*4)...) }),
			"a stack of",
		},
		{
			"a string of an unknown sort", pool(func(s *synth) { s.num(1, 22, 1, 1); s.b = append(s.b, 99) }),
			"no string encoding 99",
		},
		{
			"a string longer than the pool",
			pool(func(s *synth) { s.num(1, 22, 1, 1); s.b = append(s.b, stringUTF8); s.num(1 << 40) }),
			"truncated or damaged",
		},
		{"a type that holds itself", types(synthClass{50, "a.A", [][2]string{{"x", "a.A"}}}), "holds itself"},
		{"a type without fields", types(synthClass{50, "a.A", nil}), "has no fields"},
		{"a field of no type", types(synthClass{50, "a.A", [][2]string{{"x", "a.B"}}}), "id of a type is"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			list, err := Read(bytes.NewReader(tc.data), int64(len(tc.data)), Options{})
			if list != nil || !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), tc.want) ||
				len(err.Error()) > 400 {
				t.Errorf("error %.400v, want %v with %q", err, ErrFormat, tc.want)
			}
		})
	}
	if _, err := Read(bytes.NewReader(nil), maxSize+1, Options{}); !errors.Is(err, ErrFormat) {
		t.Errorf("a file of %d bytes: %v", maxSize+1, err)
	}
}

// TestDamagedEventIsLost: a broken event costs its own samples, and all others are there.
func TestDamagedEventIsLost(t *testing.T) {
	for name, tc := range map[string]struct {
		lost    int64
		damaged func(*synth)
	}{
		"cut":            {1, func(s *synth) { s.b = append(s.b, 4, 103, 0x80, 0x80) }},
		"no fields":      {1, func(s *synth) { s.event(103, func(*synth) {}) }},
		"fields missing": {1, func(s *synth) { s.event(103, func(s *synth) { s.num(ticks) }) }},
		"wait of ages": {1, func(s *synth) {
			s.event(103, func(s *synth) { s.num(ticks, math.MaxInt64, 1, 5, 1) })
		}},
		"huge size": {1, func(s *synth) { s.event(104, func(s *synth) { s.num(ticks, 1, 5, 1, 1<<60, 1) }) }},
		"long list": {1, func(s *synth) {
			s.event(101, func(s *synth) { s.num(ticks); s.b = append(s.b, make([]byte, 12)...); s.num(1, 5, 2, 1<<40) })
		}},
		"long setting": {0, func(s *synth) {
			s.event(105, func(s *synth) { s.num(ticks, 1); s.b = append(s.b, stringUTF8); s.num(1 << 40) })
		}},
		"unknown string": {0, func(s *synth) {
			s.event(105, func(s *synth) { s.num(ticks, 1); s.b = append(s.b, 99) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			data := synthFile{settings: settings, pool: smallPool, events: func(s *synth) {
				tc.damaged(s)
				s.event(102, func(s *synth) { s.num(ticks, 1, 5, 2, 1, 0) })
				tc.damaged(s)
			}}.bytes()
			samples, lost := int64(0), int64(0)
			for _, p := range readFile(t, data, Options{}) {
				samples += p.Total().Count
				lost += p.Lost
			}
			if samples != 1 || lost != 2*tc.lost {
				t.Errorf("%d samples and %d lost, want 1 and %d", samples, lost, 2*tc.lost)
			}
		})
	}
}

// TestFaultCostsAnEvent: perfdoctor panics on one of three events.
func TestFaultCostsAnEvent(t *testing.T) {
	data := synthFile{events: func(s *synth) {
		for _, kind := range []uint64{101, 103, 101} {
			s.event(kind, func(s *synth) { s.num(ticks, 1, 5, 2, 1, 0) })
		}
	}}.bytes()
	h, err := readHeader(newCursor(bytes.NewReader(data), 0, int64(len(data))))
	if err != nil {
		t.Fatal(err)
	}
	ck := &chunk{
		reader: &reader{options: Options{Bucket: time.Second}}, header: h, index: newIndex(),
		sources: map[uint64]*source{
			101: {kind: kindCPU}, 103: {kind: kindLock, ops: []op{{kind: opNumber, slot: slots}}}, // no such slot
		},
	}
	err = ck.events(newCursor(bytes.NewReader(data), headerSize, int64(len(data))))
	if err != nil || !firewall.IsFault(ck.fault) || ck.lost[kindLock] != 1 || len(ck.samples) != 1 ||
		ck.samples[0].count != 2 {
		t.Errorf("%v, %v: %+v, lost %v; want one event lost to a fault, and two counted", err, ck.fault, ck.samples,
			ck.lost)
	}
}

// TestSamplesPastTheBoundAreLost reads more different samples than a profile holds.
func TestSamplesPastTheBoundAreLost(t *testing.T) {
	const surplus = 7
	f := synthFile{settings: settings, events: func(s *synth) {
		for i := range uint64(maxKeys + surplus) {
			s.event(102, func(s *synth) { s.num(ticks, 0, i+1, 2, 1, 0) })
		}
		s.event(102, func(s *synth) { s.num(ticks, 0, 1, 2, 1, 0) }) // one that is there already
	}, pool: func(s *synth) {
		s.num(1, 27, maxKeys+surplus)
		for i := range uint64(maxKeys + surplus) {
			s.num(i+1, 0, 1, i+1, 0, 0)
		}
	}}
	wall := readFile(t, f.bytes(), Options{})[stacks.Wall]
	if got := wall.Total().Count; got+wall.Lost != maxKeys+surplus+1 || wall.Lost != surplus {
		t.Errorf("%d samples and %d lost, of %d", got, wall.Lost, maxKeys+surplus+1)
	}
}

// errorReader fails in the middle of a file.
type errorReader struct{ io.ReaderAt }

func (e errorReader) ReadAt(p []byte, at int64) (int, error) {
	if at > 0 {
		return 0, os.ErrDeadlineExceeded
	}
	return e.ReaderAt.ReadAt(p[:min(len(p), 1000)], at)
}

// TestStacksPastTheLimitAreLost: samples whose stack the profiler had no memory for are lost. They do not become a
// method of that name.
func TestStacksPastTheLimitAreLost(t *testing.T) {
	data := synthFile{settings: settings, events: func(s *synth) {
		for _, stack := range []uint64{5, 6, 6} {
			s.event(102, func(s *synth) { s.num(ticks, 1, stack, 2, 1, 0) })
		}
	}, pool: func(s *synth) {
		s.num(3)
		s.num(27, 2, 5, 0, 2, 1, 42, 1, 2, 0, 3, 6, 0, 1, 3, 0, 3)
		s.num(25, 3, 1, 0, 1, 0, 2, 0, 1, 0, 3, 0, 3, 0)
		s.num(22, 2, 1)
		s.text("run")
		s.num(3)
		s.text("storage_overflow")
	}}.bytes()
	wall := readFile(t, data, Options{})[stacks.Wall]
	if got := wall.Total().Count; got != 1 || wall.Lost != 2 {
		t.Errorf("%d samples, %d lost", got, wall.Lost)
	}
}

func TestReadErrorIsTold(t *testing.T) {
	data := sampleData(t)
	if _, err := Read(errorReader{bytes.NewReader(data)}, int64(len(data)), Options{}); !errors.Is(err, ErrFormat) {
		t.Errorf("a file that cannot be read: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(sampleData(f))
	f.Add(synthFile{settings: settings, pool: smallPool, events: func(s *synth) {
		s.event(102, func(s *synth) { s.num(ticks, 1, 5, 2, 21, 2_000_000) })
		s.event(103, func(s *synth) { s.num(ticks, 2_000_000, 1, 5, 1) })
		s.event(104, func(s *synth) { s.num(ticks, 1, 5, 1, 24, 524_288) })
	}}.bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := Read(bytes.NewReader(data), int64(len(data)), Options{})
		if err != nil && !errors.Is(err, ErrFormat) {
			t.Fatal(err)
		}
		for _, p := range list {
			if err := p.Validate(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// writeLarge writes a file of 100 MB.
func writeLarge(t testing.TB) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "large.jfr")
	if err := os.WriteFile(path, largeFile(100_000_000), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func openLarge(t testing.TB, path string) (f *os.File, size int64) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return f, st.Size()
}

// childVar makes TestPeakMemory the process that reads the file it names and reports its own peak.
const childVar = "PERFDOCTOR_TEST_READ_JFR"

// maxPeak bounds the resident memory of a process that reads 100 MB, tests and runtime included.
const maxPeak = 150 << 20

func TestPeakMemory(t *testing.T) {
	if path := os.Getenv(childVar); path != "" {
		f, size := openLarge(t, path)
		if _, err := Read(f, size, Options{}); err != nil {
			t.Fatal(err)
		}
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%s\n", status)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPeakMemory$")
	cmd.Env = append(os.Environ(), childVar+"="+writeLarge(t))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("no VmHWM in %s", out)
	}
	peak, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("peak %d MB", peak<<10/1_000_000)
	if peak<<10 > maxPeak {
		t.Errorf("reading 100 MB took %d MB at its peak, want at most %d", peak<<10/1_000_000, maxPeak/1_000_000)
	}
}

// BenchmarkRead reads a file of 100 MB, from a file as a collector does.
func BenchmarkRead(b *testing.B) {
	f, size := openLarge(b, writeLarge(b))
	b.SetBytes(size)
	for b.Loop() {
		if _, err := Read(f, size, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
