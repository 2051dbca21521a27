package jfr

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// A synth writes files in the format, with content that no real profiler would write.
type synth struct{ b []byte }

func (s *synth) num(vs ...uint64) {
	for _, v := range vs {
		for i := 0; v >= 0x80 && i < 8; i++ {
			s.b = append(s.b, byte(v)|0x80)
			v >>= 7
		}
		s.b = append(s.b, byte(v))
	}
}

func (s *synth) text(t string) {
	s.b = append(s.b, stringUTF8)
	s.num(uint64(len(t)))
	s.b = append(s.b, t...)
}

// event writes what body writes behind its size.
func (s *synth) event(kind uint64, body func(*synth)) {
	in := &synth{}
	in.num(kind)
	body(in)
	size := uint64(len(in.b))
	for n := size + 1; ; n++ {
		if head := (&synth{}); true {
			head.num(n)
			if uint64(len(head.b))+size == n {
				s.b = append(append(s.b, head.b...), in.b...)
				return
			}
		}
	}
}

// A synthClass is a type with its fields as "name type", "name *type" for a pooled one and "name []type" for a list.
type synthClass struct {
	id     uint64
	name   string
	fields [][2]string
}

// synthClasses are like those of async-profiler, with fields it does not have.
var synthClasses = []synthClass{
	{3, "boolean", nil},
	{4, "int", nil},
	{5, "long", nil},
	{6, "float", nil},
	{7, "java.lang.String", nil},
	{8, "double", nil},
	{20, "java.lang.Class", [][2]string{{"classLoader", "long"}, {"name", "*jdk.types.Symbol"}}},
	{21, "java.lang.Thread", [][2]string{
		{"osName", "java.lang.String"},
		{"osThreadId", "long"},
		{"javaName", "java.lang.String"},
	}},
	{22, "jdk.types.Symbol", [][2]string{{"string", "java.lang.String"}}},
	{23, "jdk.types.FrameType", [][2]string{{"description", "java.lang.String"}}},
	{24, "jdk.types.ThreadState", [][2]string{{"name", "java.lang.String"}}},
	{25, "jdk.types.Method", [][2]string{
		{"type", "*java.lang.Class"},
		{"name", "*jdk.types.Symbol"},
		{"hidden", "boolean"},
	}},
	{26, "jdk.types.StackFrame", [][2]string{
		{"method", "*jdk.types.Method"},
		{"lineNumber", "int"},
		{"type", "*jdk.types.FrameType"},
	}},
	{27, "jdk.types.StackTrace", [][2]string{{"truncated", "boolean"}, {"frames", "[]jdk.types.StackFrame"}}},
	{28, "a.Pair", [][2]string{{"x", "float"}, {"y", "double"}}},
	{101, "jdk.ExecutionSample", [][2]string{
		{"startTime", "long"},
		{"extra", "a.Pair"},
		{"sampledThread", "*java.lang.Thread"},
		{"stackTrace", "*jdk.types.StackTrace"},
		{"state", "*jdk.types.ThreadState"},
		{"names", "[]java.lang.String"},
	}},
	{102, "profiler.WallClockSample", [][2]string{
		{"startTime", "long"},
		{"sampledThread", "*java.lang.Thread"},
		{"stackTrace", "*jdk.types.StackTrace"},
		{"state", "*jdk.types.ThreadState"},
		{"samples", "int"},
		{"timeSpan", "long"},
	}},
	{103, "jdk.JavaMonitorEnter", [][2]string{
		{"startTime", "long"},
		{"duration", "long"},
		{"eventThread", "*java.lang.Thread"},
		{"stackTrace", "*jdk.types.StackTrace"},
		{"monitorClass", "*java.lang.Class"},
	}},
	{104, "jdk.ObjectAllocationInNewTLAB", [][2]string{
		{"startTime", "long"},
		{"eventThread", "*java.lang.Thread"},
		{"stackTrace", "*jdk.types.StackTrace"},
		{"objectClass", "*java.lang.Class"},
		{"allocationSize", "long"},
		{"tlabSize", "long"},
	}},
	{105, "jdk.ActiveSetting", [][2]string{
		{"startTime", "long"},
		{"id", "long"},
		{"name", "java.lang.String"},
		{"value", "java.lang.String"},
	}},
}

// metadata writes the description of the types.
func (s *synth) metadata(types []synthClass) {
	table := map[string]uint64{}
	var list []string
	index := func(t string) uint64 {
		if _, ok := table[t]; !ok {
			table[t] = uint64(len(list))
			list = append(list, t)
		}
		return table[t]
	}
	ids := map[string]string{}
	for _, c := range types {
		ids[c.name] = fmt.Sprint(c.id)
	}
	var tree synth
	node := func(name string, children int, attributes ...string) {
		tree.num(index(name), uint64(len(attributes)/2))
		for _, a := range attributes {
			tree.num(index(a))
		}
		tree.num(uint64(children))
	}
	node("root", 1)
	node("metadata", len(types))
	for _, c := range types {
		node("class", len(c.fields), "name", c.name, "id", fmt.Sprint(c.id))
		for _, f := range c.fields {
			name, attributes := f[1], []string{"name", f[0]}
			switch {
			case name[0] == '*':
				name, attributes = name[1:], append(attributes, "constantPool", "true")
			case name[:2] == "[]":
				name, attributes = name[2:], append(attributes, "dimension", "1")
			}
			node("field", 0, append(attributes, "class", ids[name])...)
		}
	}
	s.event(eventMetadata, func(s *synth) {
		s.num(0, 0, 7, uint64(len(list)))
		for _, t := range list {
			s.text(t)
		}
		s.b = append(s.b, tree.b...)
	})
}

// A synthFile says what a file holds.
type synthFile struct {
	types    []synthClass
	settings [][2]string
	events   func(*synth)
	pool     func(*synth) // all pools, with their number before
}

// settings are those that make a file one of async-profiler.
var settings = [][2]string{
	{"version", "4.6"},
	{"engine", "perf_events"},
	{"event", "cpu"},
	{"interval", "10000000"},
	{"wall", "100000000"},
	{"alloc", "524288"},
	{"lock", "1000000"},
}

// ticks is the beginning of every synthetic chunk, and perSecond how many there are in a second.
const (
	ticks     = 1_000_000
	perSecond = 1_000_000
)

// bytes returns the file: one chunk of 10 s.
func (f synthFile) bytes() []byte {
	s := &synth{b: make([]byte, headerSize)}
	types := f.types
	if types == nil {
		types = synthClasses
	}
	s.metadata(types)
	for _, set := range f.settings {
		s.event(105, func(s *synth) {
			s.num(ticks, 1)
			s.text(set[0])
			s.text(set[1])
		})
	}
	if f.events != nil {
		f.events(s)
	}
	pool := len(s.b)
	s.event(eventPool, func(s *synth) {
		s.num(ticks, 0, 0)
		s.b = append(s.b, 1)
		if f.pool == nil {
			s.num(0)
			return
		}
		f.pool(s)
	})
	copy(s.b, "FLR\x00\x00\x02\x00\x00")
	for i, v := range []uint64{uint64(len(s.b)), uint64(pool), headerSize, 1e18, 10e9, ticks, perSecond} {
		binary.BigEndian.PutUint64(s.b[8+8*i:], v)
	}
	return s.b
}

// smallPool has one thread, a Java method on a native and a kernel function, and a state.
func smallPool(s *synth) {
	s.num(7)
	s.num(21, 1, 1)
	s.text("os-name")
	s.num(77)
	s.text("worker")
	s.num(27, 2, 5, 0, 3, 1, 42, 1, 2, 0, 3, 3, 0, 4) // stack 5: truncated, 3 frames of method, line, type
	s.num(6, 0, 0)                                    // stack 6: none
	s.num(25, 3, 1, 1, 1, 0, 2, 2, 2, 0, 3, 3, 3, 0)
	s.num(20, 3, 1, 0, 11, 2, 0, 12, 3, 0, 13)
	s.num(22, 6)
	for i, t := range []string{"run", "memcpy", "tcp_sendmsg"} {
		s.num(uint64(i + 1))
		s.text(t)
	}
	for i, t := range []string{"[Lcom/example/Shop;", "libc.so.6", "kernel"} {
		s.num(uint64(i + 11))
		s.text(t)
	}
	s.num(23, 3)
	for _, k := range []struct {
		id   uint64
		name string
	}{{1, "Inlined"}, {3, "Native"}, {4, "Kernel"}} {
		s.num(k.id)
		s.text(k.name)
	}
	s.num(24, 1, 2)
	s.text("STATE_SLEEPING")
}

// largeFile makes a file of about size bytes: stacks of 40 frames, and samples of all four kinds in the mix of a real
// recording.
func largeFile(size int) []byte {
	const depth, methods = 40, 4000
	random := rand.New(rand.NewPCG(1, 2))
	stackCount := size / 4 / (depth * 5)
	f := synthFile{settings: settings}
	f.events = func(s *synth) {
		for i := 0; len(s.b) < size*3/4; i++ {
			hot := random.Float64() // few stacks have most samples, as in a real program, and a stack has its thread
			at, stack := ticks+uint64(i%10_000_000), uint64(float64(stackCount)*hot*hot*hot)+1
			thread := stack % 64
			switch i % 4 {
			case 0:
				s.event(101, func(s *synth) {
					s.num(at)
					s.b = append(s.b, make([]byte, 12)...)
					s.num(thread, stack, 0, 0)
				})
			case 1:
				s.event(102, func(s *synth) { s.num(at, thread, stack%500+1, 2, 3, 300_000) })
			case 2:
				s.event(103, func(s *synth) { s.num(at, 12345, thread, stack%500+1, 1) })
			case 3:
				s.event(104, func(s *synth) { s.num(at, thread, stack%5000+1, 1, 24, 524288) })
			}
		}
	}
	f.pool = func(s *synth) {
		s.num(5)
		s.num(27, uint64(stackCount))
		for i := range stackCount {
			s.num(uint64(i+1), 0, depth)
			for d := range depth {
				s.num(uint64(random.IntN(methods/depth)*depth+d)+1, uint64(d), 1)
			}
		}
		s.num(25, methods)
		for i := range uint64(methods) {
			s.num(i+1, 1, i+10, 0)
		}
		s.num(20, 1, 1, 0, 1)
		s.num(22, methods+1, 1)
		s.text("com/example/Shop")
		for i := range uint64(methods) {
			s.num(i + 10)
			s.text(fmt.Sprint("method", i))
		}
		s.num(23, 1, 1)
		s.text("JIT compiled")
	}
	return f.bytes()
}
