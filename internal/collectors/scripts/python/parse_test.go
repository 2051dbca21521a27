package python

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The code whose tables these are, as each version compiles it:
//
//	def f(a):        # line 10
//	    x = a + 1
//
//	    return (x *
//	            2)
func TestLines(t *testing.T) {
	for _, tc := range []struct {
		name  string
		table string
		kind  lineTable
		want  map[uint64]int // by what the frame says of the instruction
	}{
		// dis.findlinestarts of 3.9.18: 0 is line 11, 8 line 13, 10 line 14, 12 line 13.
		{
			"3.9", "\x00\x01\x08\x02\x02\x01\x02\xff", lnotab,
			map[uint64]int{0: 11, 6: 11, 8: 13, 10: 14, 12: 13, 14: 13},
		},
		// Of 3.10.13. A range without a line stands before the last.
		{
			"3.10", "\x08\x01\x02\x02\x02\x80\x04\xff", linePairs,
			map[uint64]int{0: 11, 3: 11, 4: 13, 5: 0, 6: 12, 99: 0},
		},
		// Entries of one line with columns (10 to 12), a long one (14), one without a line (15), and short ones.
		{
			"3.11", "\x80\x00" + "\xd9\x04\x05" + "\xf1\x05\x01\x02\x03" + "\xf8" + "\xe8\x07",
			lineCounts,
			map[uint64]int{0: 10, 2: 11, 4: 11, 6: 9, 8: 9, 10: 0, 12: 6, 14: 0},
		},
	} {
		c := &code{first: 10, table: []byte(tc.table), lines: map[uint64]int{}}
		got := map[uint64]int{}
		for at := range tc.want {
			got[at] = c.line(at, tc.kind)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tc.name, diff)
		}
	}
}

// FuzzLines: a table may hold anything.
func FuzzLines(f *testing.F) {
	f.Add([]byte("\x00\x01\x08\x02"), uint64(9))
	f.Add([]byte("\x80\x00\xf1\x40\x40\x40\x40\x40\x40\x40"), uint64(1)<<63)
	f.Fuzz(func(_ *testing.T, table []byte, at uint64) {
		for _, kind := range []lineTable{lnotab, linePairs, lineCounts} {
			c := &code{table: table, lines: map[uint64]int{}}
			c.line(at, kind)
		}
	})
}

// TestDescription reads what 3.13.0, 3.14.0 and 3.15.2 say of themselves, as far as it is used: offsetof() of their
// headers.
func TestDescription(t *testing.T) {
	words := func(version uint64, at map[int]uint64) []byte {
		b := make([]byte, described)
		copy(b, cookie)
		binary.LittleEndian.PutUint64(b[8:], version)
		for i, n := range at {
			binary.LittleEndian.PutUint64(b[8*i:], n)
		}
		return b
	}
	of313 := map[int]uint64{
		5: 632, 8: 7264, 9: 7344, 21: 8, 23: 72, 24: 152, 25: 160, 29: 8, 30: 0, 31: 56, 33: 70,
		35: 112, 36: 120, 37: 128, 38: 136, 39: 68, 43: 200, 45: 8, 65: 16, 66: 32, 68: 32, 69: 16, 70: 40,
	}
	want := layout{
		interpreters: 632, nextInterpreter: 7264, threads: 7344, nextThread: 8, threadID: 152, nativeID: 160, frame: 72,
		previous: 8, code: 0, instruction: 56, owner: 70, isPointer: true, hasOwner: true,
		name: 120, qualName: 128, file: 112, firstLine: 68, lines: 136, body: 200, table: lineCounts,
		length: 16, state: 32, ascii: 40, compact: 56, objectType: 8, bytesSize: 16, bytesData: 32,
		coroutine: coroutineLayout{frame: 72, state: 67, first: -2, last: -1, top: 64, stack: 72},
		greenlet:  greenletLayout{frame: 24, owner: 70},
	}
	got, version, err := describedLayout(words(0x030d00f0, of313))
	if err != nil || version != (Version{3, 13}) {
		t.Fatalf("%v, %v", version, err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(layout{}, coroutineLayout{}, greenletLayout{})); diff != "" {
		t.Error(diff)
	}
	for _, later := range []struct {
		number      uint64
		moved       func(int) int
		coroutine   map[int]uint64 // the top of the frame's stack, the frame and the state
		first, last int8
		above       uint64
	}{
		{0x030e00f0, movedIn314, map[int]uint64{37: 64, 85: 72, 86: 67}, -2, -1, 0},
		{0x030f02f0, movedIn315, map[int]uint64{45: 64, 101: 72, 102: 67}, 1, 3, 1},
	} {
		for i, n := range of313 { // the same offsets, each where the version has it
			later.coroutine[later.moved(i)] = n
		}
		want.coroutine = coroutineLayout{
			frame: 72, state: 67, first: later.first, last: later.last, top: 64, isAddress: true, above: later.above,
		}
		got, version, err = describedLayout(words(later.number, later.coroutine))
		if err != nil || version != (Version{3, int(later.number >> 16 & 0xff)}) {
			t.Fatalf("%v, %v", version, err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(layout{}, coroutineLayout{}, greenletLayout{})); diff != "" {
			t.Errorf("%v: %s", version, diff)
		}
	}
	for name, text := range map[string][]byte{
		"no lock":           words(0x030d00f0, map[int]uint64{2: 1}),
		"another version":   words(0x031000f0, of313),
		"a large offset":    words(0x030d00f0, map[int]uint64{9: 1 << 40}),
		"beyond the frame":  words(0x030d00f0, map[int]uint64{31: frameSize}),
		"beyond the object": words(0x030d00f0, map[int]uint64{38: codeSize}),
	} {
		if _, _, err := describedLayout(text); err == nil {
			t.Errorf("%s is no error", name)
		}
	}
}

// movedIn314 returns where 3.14 has a word of 3.13's description (pycore_debug_offsets.h of both): threads_main comes
// after the threads of the interpreter, two generations at its end, two words more in the frame, one in the code, and
// four of sets before dictionaries.
func movedIn314(word int) int {
	switch {
	case word <= 9:
		return word
	case word <= 18:
		return word + 1
	case word <= 33:
		return word + 3
	case word <= 43:
		return word + 5
	case word <= 55:
		return word + 6
	}
	return word + 10
}

// movedIn315 does so for 3.15: three words more behind a thread's frame, four at its end and one behind it, two of
// types and two behind them.
func movedIn315(word int) int {
	switch n := movedIn314(word); {
	case word <= 23:
		return n
	case word <= 25:
		return n + 3
	case word <= 45:
		return n + 8
	default:
		return n + 12
	}
}

// FuzzDescription: the owner of an interpreter decides what it says of itself.
func FuzzDescription(f *testing.F) {
	f.Add(make([]byte, described))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) < described {
			return
		}
		if l, _, err := describedLayout(text); err == nil && l.check() != nil {
			t.Error("a damaged description is taken")
		}
	})
}

// FuzzMemory reads an interpreter whose memory is whatever its owner wants: addresses that lead in rings, strings and
// tables of any size. It ends, within its bounds.
func FuzzMemory(f *testing.F) {
	f.Add([]byte{8, 0, 0, 0, 0, 0, 0, 0}, byte(9))
	f.Add(make([]byte, 300), byte(11))
	f.Fuzz(func(t *testing.T, content []byte, minor byte) {
		if len(content) == 0 {
			return
		}
		l, known := layoutOf(Version{3, int(8 + minor%5)})
		if !known {
			return
		}
		p := &Process{layout: l, codes: map[uint64]*code{}, read: func(at uint64, into []byte) error {
			for i := range into { // the content, again and again
				into[i] = content[(at+uint64(i))%uint64(len(content))]
			}
			return nil
		}}
		p.codeType, _ = p.read.Word(l.objectType)
		threads, err := p.Threads(func(id int) bool { return id%2 == 0 })
		if err == nil && len(threads) > maxThreads {
			t.Errorf("%d threads", len(threads))
		}
		for _, thread := range threads[:min(len(threads), 3)] {
			calls, err := p.Stack(thread)
			if err == nil && len(calls) > maxDepth {
				t.Errorf("%d calls", len(calls))
			}
		}
		if l.coroutine.frame != 0 {
			p.suspended(8)
		}
		p.switched(8)
	})
}
