package node

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/host/memory"
	"github.com/perfdoctor/perfdoctor/internal/kernel/perfevent"
)

// numbers are the ones that V8 11.3 (Node 20) exports, as far as they are read.
var numbers = values{
	"v8dbg_off_fp_function": -16, "v8dbg_off_fp_context": -8, "v8dbg_frametype_IrregexpFrame": 32,
	"v8dbg_type_JSFunction__JS_FUNCTION_TYPE":                                   2066,
	"v8dbg_type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE":                  258,
	"v8dbg_type_Script__SCRIPT_TYPE":                                            168,
	"v8dbg_type_ScopeInfo__SCOPE_INFO_TYPE":                                     257,
	"v8dbg_type_FixedArray__FIXED_ARRAY_TYPE":                                   180,
	"v8dbg_class_JSFunction__shared__SharedFunctionInfo":                        24,
	"v8dbg_class_SharedFunctionInfo__name_or_scope_info__Object":                16,
	"v8dbg_class_SharedFunctionInfo__script_or_debug_info__HeapObject":          32,
	"v8dbg_class_Script__name__Object":                                          16,
	"v8dbg_class_Script__source__Object":                                        8,
	"v8dbg_class_Script__line_ends__Object":                                     56,
	"v8dbg_scopeinfo_idx_ncontextlocals":                                        2,
	"v8dbg_scopeinfo_idx_first_vars":                                            3,
	"v8dbg_class_Map__instance_type__uint16_t":                                  12,
	"v8dbg_StringRepresentationMask":                                            7,
	"v8dbg_StringEncodingMask":                                                  8,
	"v8dbg_SeqStringTag":                                                        0,
	"v8dbg_ConsStringTag":                                                       1,
	"v8dbg_ExternalStringTag":                                                   2,
	"v8dbg_ThinStringTag":                                                       5,
	"v8dbg_OneByteStringTag":                                                    8,
	"v8dbg_class_String__length__int32_t":                                       12,
	"v8dbg_class_SeqOneByteString__chars__char":                                 16,
	"v8dbg_class_SeqTwoByteString__chars__char":                                 16,
	"v8dbg_class_ConsString__first__String":                                     16,
	"v8dbg_class_ConsString__second__String":                                    24,
	"v8dbg_class_ThinString__actual__String":                                    16,
	"v8dbg_class_ExternalString__resource__Object":                              16,
	"_ZN2v88internal7Version6major_E":                                           11,
	"_ZN2v88internal7Version6minor_E":                                           3,
	"v8dbg_class_SharedFunctionInfo__internal_formal_parameter_count__uint16_t": 42,
}

func TestLayout(t *testing.T) {
	l, err := layoutOf(numbers)
	if err != nil {
		t.Fatal(err)
	}
	if l.firstFunction != 2066 || l.lastFunction != 2066+functionTypes || l.script != 32 || l.heap.arrayData != 16 {
		t.Errorf("%+v", l)
	}
	if got := numbers.version(); got != "11.3" {
		t.Errorf("version %q", got)
	}
	for name, change := range map[string]int{
		"v8dbg_class_Script__name__Object": 1 << 20, // out of bounds
		"v8dbg_off_fp_function":            required,
	} {
		v := values{}
		for k, n := range numbers {
			v[k] = n
		}
		if v[name] = change; change == required {
			delete(v, name)
		}
		field := strings.TrimSuffix(name[len(mark):], "Object")
		if _, err := layoutOf(v); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s as %d: error %v", name, change, err)
		}
	}
}

// A fakeHeap is memory from an address on.
type fakeHeap struct {
	from  uint64
	bytes []byte
}

func (h fakeHeap) read(address uint64, into []byte) error {
	i := address - h.from
	if address < h.from || i > uint64(len(h.bytes)) || uint64(len(h.bytes))-i < uint64(len(into)) {
		return memory.ErrNowhere
	}
	copy(into, h.bytes[i:])
	return nil
}

func (h fakeHeap) put(address uint64, words ...uint64) {
	for i, w := range words {
		binary.LittleEndian.PutUint64(h.bytes[address-h.from+uint64(i)*wordSize:], w)
	}
}

func (h fakeHeap) process(t testing.TB) *Process {
	t.Helper()
	l, err := layoutOf(numbers)
	if err != nil {
		t.Fatal(err)
	}
	return &Process{
		heap: heap{read: h.read, layout: l.heap, types: map[uint64]uint16{}}, layout: l,
		shared: map[uint64]*function{}, scripts: map[uint64]*script{},
	}
}

// aHeap has one function, "ab" of the file "f". Its source is four characters in two lines, and its name comes after
// one variable. Objects are at multiples of 0x100, their maps from 0x1000 on.
func aHeap() fakeHeap {
	h := fakeHeap{0x10000, make([]byte, 0x2000)}
	const tag = 1
	small := func(n int) uint64 { return uint64(n) << 32 }
	maps := uint64(0x11000)
	mapOf := func(typ uint64) uint64 {
		maps += 0x20
		h.put(maps+8, typ<<32) // at 12
		return maps | tag
	}
	text := mapOf(8) // one byte each, in one piece
	h.put(0x10100, mapOf(2066), 0, 0, 0x10200|tag)
	h.put(0x10200, mapOf(258), 0, 0x10300|tag, 0, 0x10400|tag)
	h.put(0x10300, mapOf(257), 0, small(0), small(1), 0x10500|tag, small(7), 0x10500|tag, small(-1), small(3), small(4),
		0x10500|tag)
	h.put(0x10400, mapOf(168), 0x10700|tag, 0x10600|tag, 0, 0, 0, 0, small(0))
	h.put(0x10500, text, small(2), 'a'|'b'<<8)
	h.put(0x10600, text, small(1), 'f')
	h.put(0x10700, text, small(4), 'x'|'\n'<<8|'y'<<16|'z'<<24)
	return h
}

// stackOf has three frames: of an expression, of a function, and of other code that called it.
func stackOf(function uint64) perfevent.StackSample {
	const from = 0x7000
	b := make([]byte, 0x100)
	put := func(at int, w uint64) { binary.LittleEndian.PutUint64(b[at:], w) }
	put(0x10, 0x11001) // beneath: left over
	put(0x38, 32<<1)
	put(0x40, from+0x80)
	put(0x70, function)
	put(0x78, 0x10301) // a context
	put(0x80, from+0xc0)
	put(0xb8, 2)
	return perfevent.StackSample{SP: from, FP: from + 0x40, Stack: b}
}

func TestStackOfFakeHeap(t *testing.T) {
	want := []Call{RegExp, {Function: "ab", File: "f", Line: 2}}
	p := aHeap().process(t)
	if diff := cmp.Diff(want, p.Stack(stackOf(0x10101))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	s := stackOf(0x10101)
	s.FP = 77 // in use for something else: the word that leads to the frames is searched for
	binary.LittleEndian.PutUint64(s.Stack[0x18:], 0x7040)
	if diff := cmp.Diff(want, p.Stack(s)); diff != "" {
		t.Errorf("another frame pointer: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(want[:1], p.Stack(stackOf(0x10201))); diff != "" { // no function
		t.Errorf("another object: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(want[:1], p.Stack(stackOf(0x90001))); diff != "" {
		t.Errorf("nowhere: -want +got:\n%s", diff)
	}
}

// FuzzStack: whatever is on a stack and in the heap, reading ends, with no more calls than frames.
func FuzzStack(f *testing.F) {
	h, s := aHeap(), stackOf(0x10101)
	f.Add(h.bytes, s.Stack, s.FP)
	f.Fuzz(func(t *testing.T, bytes, stack []byte, fp uint64) {
		p := fakeHeap{0x10000, bytes}.process(t)
		calls := p.Stack(perfevent.StackSample{SP: 0x7000, FP: fp, Stack: stack})
		if len(calls) > len(stack)/wordSize {
			t.Errorf("%d calls on %d bytes", len(calls), len(stack))
		}
		for _, c := range calls {
			if len(c.Function) > 4*maxName || len(c.File) > 4*maxName || c.Line < 0 {
				t.Errorf("a name of %d bytes, a file of %d, line %d", len(c.Function), len(c.File), c.Line)
			}
		}
	})
}
