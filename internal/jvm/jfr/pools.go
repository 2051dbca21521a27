package jfr

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// pools are the constants of a chunk: what the ids in its events mean.
type pools struct {
	types     *classes
	stacks    map[uint64][]uint32 // only those that samples use, as indices into rawFrames, the innermost first
	rawFrames []rawFrame
	dropped   map[uint64]bool // those past maxFrames
	frames    int             // in all stacks
	frameIDs  map[rawFrame]uint32
	recent    [1 << 12]recentFrame
	methods   map[uint64]method
	classes   map[uint64]uint64 // to the symbol of its name
	symbols   map[uint64]string
	threads   map[uint64]stacks.Thread
	kinds     map[uint64]stacks.Kind
	states    map[uint64]stacks.State
	names     int // bytes of all names
}

type rawFrame struct {
	method, kind uint64
	line         uint32
}

// recentFrame remembers where a frame is: stacks share most of their frames, and a map takes a third of the reading
// time.
type recentFrame struct {
	frame rawFrame
	id    uint32
	known bool
}

type method struct{ class, name uint64 }

func newPools(types *classes) *pools {
	return &pools{
		types: types, stacks: map[uint64][]uint32{}, dropped: map[uint64]bool{}, frameIDs: map[rawFrame]uint32{},
		methods: map[uint64]method{}, classes: map[uint64]uint64{}, symbols: map[uint64]string{},
		threads: map[uint64]stacks.Thread{},
		kinds:   map[uint64]stacks.Kind{}, states: map[uint64]stacks.State{},
	}
}

// read reads an event with constants: several pools, each of one type.
func (p *pools) read(c *cursor) error {
	start := c.offset()
	if size := c.number(); size <= uint64(c.end-start) {
		c.end = start + int64(size)
	}
	c.number() // type of the event, which is known
	c.number() // start time
	c.number() // duration
	c.number() // where the previous one begins: all are met on the way through the file
	c.byte()   // flags
	for n := c.count(); n > 0 && c.err == nil; n-- {
		id := c.number()
		class := p.types.byID[id]
		if c.err == nil && class == nil {
			return fmt.Errorf("at byte %d: there is no type %d", c.offset(), id)
		}
		if c.err != nil {
			break
		}
		if err := p.readPool(c, id, class.name); err != nil {
			return fmt.Errorf("%s: %w", class.name, err)
		}
	}
	return c.err
}

// poolFields are the wanted fields of the constants, at their slots.
var poolFields = map[string][]string{
	"java.lang.Thread":      {"osName", "osThreadId", "javaName"},
	"jdk.types.StackTrace":  {"frames"},
	"jdk.types.Method":      {"type", "name"},
	"java.lang.Class":       {"name"},
	"jdk.types.Symbol":      {"string"},
	"jdk.types.FrameType":   {"description"},
	"jdk.types.ThreadState": {"name"},
}

func (p *pools) readPool(c *cursor, id uint64, name string) error {
	ops, err := p.types.plan(id, poolFields[name]...)
	if err != nil {
		return err
	}
	var frame []op
	if name == "jdk.types.StackTrace" {
		if frame, err = p.framePlan(ops); err != nil {
			return err
		}
	}
	n := c.count()
	if poolFields[name] != nil && name != "jdk.types.StackTrace" && n > maxPooled {
		return fmt.Errorf("%d are more than %d", n, maxPooled)
	}
	for ; n > 0 && c.err == nil; n-- {
		key := c.number()
		if frame != nil {
			if err := p.readStack(c, key, ops, frame); err != nil {
				return err
			}
			continue
		}
		var v values
		c.read(ops, &v)
		if err := p.keep(name, key, &v); err != nil {
			return err
		}
	}
	return nil
}

func (p *pools) keep(name string, key uint64, v *values) error {
	for _, text := range v.text {
		p.names += len(text)
	}
	if p.names > maxNames {
		return fmt.Errorf("its names are more than %d bytes", maxNames)
	}
	switch name {
	case "java.lang.Thread":
		p.threads[key] = threadOf(v)
	case "jdk.types.Method":
		p.methods[key] = method{class: v.number[0], name: v.number[1]}
	case "java.lang.Class":
		p.classes[key] = v.number[0]
	case "jdk.types.Symbol":
		p.symbols[key] = v.text[0]
	case "jdk.types.FrameType":
		p.kinds[key] = kindNames[v.text[0]]
	case "jdk.types.ThreadState":
		p.states[key] = stateNames[v.text[0]]
	}
	return nil
}

// kindNames are the frame types of async-profiler 4.6 (writeFrameTypes, src/flightRecorder.cpp).
var kindNames = map[string]stacks.Kind{
	"Interpreted": stacks.Interpreted, "JIT compiled": stacks.Compiled, "C1 compiled": stacks.Compiled,
	"Inlined": stacks.Inlined,
	"Native":  stacks.Native, "C++": stacks.Native, "Kernel": stacks.Kernel,
}

var stateNames = map[string]stacks.State{"STATE_RUNNABLE": stacks.Running, "STATE_SLEEPING": stacks.Sleeping}

// threadOf prefers the name that Java knows; "[tid=7]" is what async-profiler writes for a thread without a name.
func threadOf(v *values) stacks.Thread {
	t := stacks.Thread{Name: v.text[2]}
	if t.Name == "" {
		t.Name = v.text[0]
	}
	if v.number[1] <= 1<<31-1 {
		t.ID = int(v.number[1])
	}
	if t.Name == "[tid="+strconv.Itoa(t.ID)+"]" {
		t.Name = ""
	}
	return t
}

// framePlan returns the ops that read one frame of a stack.
func (p *pools) framePlan(stack []op) ([]op, error) {
	id, ok := p.types.id("jdk.types.StackFrame")
	if !ok {
		return nil, errors.New("there is no type of frames")
	}
	for _, o := range stack {
		if o.slot == 0 && o.kind != opArray {
			return nil, errors.New("its frames are no list")
		}
	}
	return p.types.plan(id, "method", "lineNumber", "type")
}

// readStack reads a stack, and keeps it if a sample uses it.
func (p *pools) readStack(c *cursor, key uint64, ops, frame []op) error {
	_, used := p.stacks[key]
	var v values
	for i := range ops {
		if ops[i].slot != 0 {
			c.read(ops[i:i+1], &v)
			continue
		}
		depth := c.count()
		if depth > maxDepth {
			return fmt.Errorf("a stack of %d frames", depth)
		}
		var stack []uint32
		if used && p.frames+depth <= maxFrames {
			stack = make([]uint32, 0, depth)
			p.frames += depth
		} else if used {
			p.dropped[key] = true
		}
		for ; depth > 0 && c.err == nil; depth-- {
			c.read(frame, &v)
			if stack != nil {
				stack = append(stack, p.frameID(rawFrame{
					method: v.number[0], line: uint32(v.number[1]),
					kind: v.number[2],
				}))
			}
		}
		if used {
			p.stacks[key] = stack
		}
	}
	return nil
}

func (p *pools) frameID(f rawFrame) uint32 {
	if f.line > 1<<31-1 {
		f.line = 0 // -1 and the like: it is not known
	}
	recent := &p.recent[(f.method*31+uint64(f.line)*7+f.kind)%uint64(len(p.recent))]
	if recent.known && recent.frame == f {
		return recent.id
	}
	id, ok := p.frameIDs[f]
	if !ok {
		id = uint32(len(p.rawFrames))
		p.frameIDs[f] = id
		p.rawFrames = append(p.rawFrames, f)
	}
	*recent = recentFrame{f, id, true}
	return id
}

// overflowed reports whether the stack is the one that async-profiler uses for samples whose own is beyond its memory
// limit (CallTraceStorage::clear in src/callTraceStorage.cpp).
func (p *pools) overflowed(id uint64) bool {
	stack := p.stacks[id]
	return len(stack) == 1 && p.symbols[p.methods[p.rawFrames[stack[0]].method].name] == "storage_overflow"
}

// frame resolves the names of a frame. The class of a native frame is its library.
func (p *pools) frame(raw rawFrame) stacks.Frame {
	m := p.methods[raw.method]
	owner, name := p.symbols[p.classes[m.class]], p.symbols[m.name]
	f := stacks.Frame{Name: name, Line: int(raw.line), Kind: p.kinds[raw.kind]}
	if f.Kind == stacks.Native && owner == "" && (name == "unknown" || strings.HasPrefix(name, "0x")) {
		f.Kind = stacks.Unknown
	}
	if !f.Managed() {
		f.Module = owner
		return f
	}
	switch f.Name = javaName(owner); {
	case name == "": // the class of a receiver or an object, as a frame (fillJavaClassInfo, src/lookup.cpp)
	case owner == "":
		f.Name = name
	default:
		f.Name += "." + name
	}
	return f
}

func (p *pools) className(id uint64) string { return javaName(p.symbols[p.classes[id]]) }

// arrayNames are the element types of arrays of primitives (Java Virtual Machine Specification, 4.3.2).
var arrayNames = map[string]string{
	"B": "byte", "C": "char", "D": "double", "F": "float", "I": "int", "J": "long", "S": "short", "Z": "boolean",
}

// javaName turns a name of the class file into that of the language: [Ljava/lang/String; is java.lang.String[].
func javaName(name string) string {
	element := strings.TrimLeft(name, "[")
	dimensions := len(name) - len(element)
	if dimensions > 0 {
		if primitive, ok := arrayNames[element]; ok {
			element = primitive
		} else {
			element = strings.TrimSuffix(strings.TrimPrefix(element, "L"), ";")
		}
	}
	return strings.ReplaceAll(element, "/", ".") + strings.Repeat("[]", dimensions)
}
