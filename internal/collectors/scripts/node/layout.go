package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host/memory"
)

const (
	// mark begins the name of each number that V8 exports.
	mark = "v8dbg_"
	// firstName is a name that all versions have.
	firstName = mark + "off_fp_function"
	// versionMark begins the names of the three parts of V8's version (src/utils/version.h).
	versionMark = "_ZN2v88internal7Version"
)

// isWanted reports whether the value of a symbol is read.
func isWanted(name string) bool {
	return strings.HasPrefix(name, mark) || strings.HasPrefix(name, versionMark)
}

// values are the numbers that V8 exports, by their names.
type values map[string]int

func readValues(read memory.Reader, at map[string]uint64) (values, error) {
	out := values{}
	for name, address := range at {
		var b [4]byte // an int each
		if err := read(address, b[:]); err != nil {
			return nil, fmt.Errorf("%.60s: %w", name, err)
		}
		out[name] = int(int32(binary.LittleEndian.Uint32(b[:])))
	}
	return out, nil
}

// version returns the major and the minor number; "" if the symbols are missing.
func (v values) version() string {
	major, ok1 := v[versionMark+"6major_E"]
	minor, ok2 := v[versionMark+"6minor_E"]
	if !ok1 || !ok2 {
		return ""
	}
	return fmt.Sprintf("%d.%d", major, minor)
}

// A heapLayout has the offsets, in bytes, and the numbers by which objects and their types are recognized.
type heapLayout struct {
	instanceType                             uint64 // in Map, with which each object begins
	firstNonString, representation, encoding uint16
	seq, cons, external, thin, isOneByte     uint16
	length, oneByte, twoByte                 uint64
	first, second, actual                    uint64
	resource                                 uint64
	arrayLength, arrayData                   uint64
}

// A layout has those by which a function is recognized. All of V8's structures are the same on amd64 and arm64.
type layout struct {
	heap heapLayout

	function int // of a frame's JSFunction, from the frame pointer
	context  int // and of its context, or the type of a frame that is not a function's
	regexp   int // the type of frames of compiled regular expressions; 0 if there is none

	firstFunction, lastFunction, sharedType, scriptType, scopeType, arrayType uint16

	inlining inlining

	// of suspended functions; 0 if V8 does not say, in which case they are not looked for
	asyncType, mapType, promiseType, reactionType uint16

	shared, closure              uint64 // in JSFunction: its SharedFunctionInfo, and its Context
	name, script                 uint64 // in SharedFunctionInfo
	scriptName, source, lineEnds uint64 // in Script
	locals, variables            int    // in ScopeInfo, in words after the first
}

// A member is a number that is looked up by the beginning of its name: the rest is the type of a field, which each
// version of V8 spells differently. Of several beginnings the first one found counts.
type member struct {
	set    func(int)
	names  []string
	absent int // its value if it is missing; required: it must not be
}

const required = -1 << 30

// layoutOf reads the numbers of V8 10 to 13 (Node 18 to 24).
func layoutOf(v values) (layout, error) {
	l := layout{}
	h := &l.heap
	offset := func(p *uint64) func(int) { return func(n int) { *p = uint64(n) } }
	small := func(p *uint16) func(int) { return func(n int) { *p = uint16(n) } }
	number := func(p *int) func(int) { return func(n int) { *p = n } }
	members := []member{
		{number(&l.function), []string{"off_fp_function"}, required},
		{number(&l.context), []string{"off_fp_context"}, required},
		{number(&l.regexp), []string{"frametype_IrregexpFrame"}, 0}, // since V8 11
		{small(&l.firstFunction), []string{"FirstJSFunctionType", "type_JSFunction__JS_FUNCTION_TYPE"}, required},
		{small(&l.lastFunction), []string{"LastJSFunctionType"}, 0},
		{small(&l.sharedType), []string{"type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE"}, required},
		{small(&l.scriptType), []string{"type_Script__SCRIPT_TYPE"}, required},
		{small(&l.scopeType), []string{"type_ScopeInfo__SCOPE_INFO_TYPE"}, required},
		{small(&l.arrayType), []string{"type_FixedArray__FIXED_ARRAY_TYPE"}, required},
		{small(&l.asyncType), []string{"type_JSAsyncFunctionObject__JS_ASYNC_FUNCTION_OBJECT_TYPE"}, 0},
		{small(&l.mapType), []string{"type_Map__MAP_TYPE"}, 0},
		{small(&l.promiseType), []string{"type_JSPromise__JS_PROMISE_TYPE"}, 0},
		{small(&l.reactionType), []string{"type_PromiseReaction__PROMISE_REACTION_TYPE"}, 0},
		{offset(&l.shared), []string{"class_JSFunction__shared__"}, required},
		{offset(&l.closure), []string{"class_JSFunction__context__"}, 0},
		{offset(&l.inlining.feedback), []string{"class_JSFunction__raw_feedback_cell__"}, 0},
		{offset(&l.inlining.prototype), []string{"class_JSFunction__prototype_or_initial_map__"}, 0},
		{offset(&l.inlining.own), []string{"class_JSFunction__code__"}, 0},
		{offset(&l.inlining.data), []string{"class_Code__deoptimization_data__"}, 0},
		{number(&l.inlining.count), []string{"DeoptimizationDataInlinedFunctionCountIndex"}, 0},
		{number(&l.inlining.literals), []string{"DeoptimizationDataLiteralArrayIndex"}, 0},
		{small(&l.inlining.codeType), []string{"type_Code__CODE_TYPE"}, 0},
		{small(&l.inlining.trusted), []string{"type_TrustedFixedArray__TRUSTED_FIXED_ARRAY_TYPE"}, 0},
		{offset(&l.name), []string{"class_SharedFunctionInfo__name_or_scope_info__"}, required},
		{offset(&l.script), []string{
			"class_SharedFunctionInfo__script_or_debug_info__", "class_SharedFunctionInfo__script__",
		}, required},
		{offset(&l.scriptName), []string{"class_Script__name__"}, required},
		{offset(&l.source), []string{"class_Script__source__"}, required},
		{offset(&l.lineEnds), []string{"class_Script__line_ends__"}, required},
		{number(&l.locals), []string{"scopeinfo_idx_ncontextlocals"}, required},
		{number(&l.variables), []string{"scopeinfo_idx_first_vars"}, required},

		{offset(&h.instanceType), []string{"class_Map__instance_type__"}, required},
		{small(&h.firstNonString), []string{"FirstNonstringType"}, firstNonString},
		{small(&h.representation), []string{"StringRepresentationMask"}, required},
		{small(&h.encoding), []string{"StringEncodingMask"}, required},
		{small(&h.seq), []string{"SeqStringTag"}, required},
		{small(&h.cons), []string{"ConsStringTag"}, required},
		{small(&h.external), []string{"ExternalStringTag"}, required},
		{small(&h.thin), []string{"ThinStringTag"}, required},
		{small(&h.isOneByte), []string{"OneByteStringTag"}, required},
		{offset(&h.length), []string{"class_String__length__"}, required},
		{offset(&h.oneByte), []string{"class_SeqOneByteString__chars__"}, required},
		{offset(&h.twoByte), []string{"class_SeqTwoByteString__chars__"}, required},
		{offset(&h.first), []string{"class_ConsString__first__"}, required},
		{offset(&h.second), []string{"class_ConsString__second__"}, required},
		{offset(&h.actual), []string{"class_ThinString__actual__"}, required},
		{offset(&h.resource), []string{"class_ExternalString__resource__"}, required},
		{offset(&h.arrayLength), []string{"class_FixedArrayBase__length__"}, arrayLength},
		{offset(&h.arrayData), []string{"class_FixedArray__data__"}, arrayLength + wordSize},
	}
	for _, m := range members {
		n, err := v.find(m)
		if err != nil {
			return l, err
		}
		m.set(n)
	}
	if l.lastFunction < l.firstFunction {
		l.lastFunction = l.firstFunction + functionTypes
	}
	return l, nil
}

const (
	wordSize = 8
	// arrayLength is the offset of a FixedArray's length, after its map (src/objects/fixed-array.h).
	arrayLength = 8
	// firstNonString is the first type that is not a string (FIRST_NONSTRING_TYPE in src/objects/instance-type.h).
	firstNonString = 0x80
	// functionTypes is how many types of functions follow the first, where V8 does not say: those of its own
	// constructors (JS_FUNCTION_TYPE and its children in src/objects/instance-type.h of V8 10 and 11).
	functionTypes = 14
	// mostOffset bounds the offsets that are believed: the largest of the structures above has some hundred bytes.
	mostOffset = 4096
)

// find looks up a number.
func (v values) find(m member) (int, error) {
	for _, want := range m.names {
		if n, ok := v[mark+want]; ok {
			return n, within(want, n)
		}
		for name, n := range v {
			if strings.HasSuffix(want, "__") && strings.HasPrefix(name, mark+want) {
				return n, within(want, n)
			}
		}
	}
	if m.absent == required {
		return 0, fmt.Errorf("this version of V8 does not say %s", m.names[0])
	}
	return m.absent, nil
}

func within(name string, n int) error {
	if n < -mostOffset || n > mostOffset {
		return errors.New(name + " is out of bounds")
	}
	return nil
}
