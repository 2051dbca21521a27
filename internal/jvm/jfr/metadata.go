package jfr

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Bounds on the description of the types. async-profiler's has 30 KiB with 70 classes, HotSpot's own 150 KiB with 300.
const (
	maxMetadata = 8 << 20
	maxElements = 200_000
	maxNesting  = 16
)

// A class is a type of event or value, as the file itself describes it: a newer profiler may have added fields.
type class struct {
	name   string
	fields []field
}

type field struct {
	name   string
	class  uint64
	pooled bool // an id of a value in the constant pool, not the value
	array  bool
}

// classes are all types of a chunk.
type classes struct {
	byID  map[uint64]*class
	plans map[uint64][]op // without slots; nil while one is made
}

// id finds a type by its name.
func (cs *classes) id(name string) (uint64, bool) {
	for id, c := range cs.byID {
		if c.name == name {
			return id, true
		}
	}
	return 0, false
}

// readMetadata reads the event that describes all types, at the cursor.
func readMetadata(c *cursor) (*classes, error) {
	start := c.offset()
	size, kind := c.number(), c.number()
	if c.err == nil && (kind != eventMetadata || size > maxMetadata) {
		return nil, fmt.Errorf("at byte %d: no description of the types, or one of more than %d bytes", start,
			maxMetadata)
	}
	c.number() // start time
	c.number() // duration
	c.number() // id
	m := metadataReader{c: c, classes: &classes{map[uint64]*class{}, map[uint64][]op{}}}
	for n := c.count(); n > 0 && c.err == nil; n-- {
		m.strings = append(m.strings, c.text(true))
	}
	m.element(0, nil)
	return m.classes, errors.Join(c.err, m.err)
}

type metadataReader struct {
	c        *cursor
	strings  []string
	elements int
	classes  *classes
	err      error
}

func (m *metadataReader) string() string {
	i := m.c.number()
	if i >= uint64(len(m.strings)) {
		m.c.fail(errShort)
		return ""
	}
	return m.strings[i]
}

// element reads a node of the tree: root, metadata, class, field; annotations and settings are skipped.
func (m *metadataReader) element(depth int, parent *class) {
	if m.elements++; m.elements > maxElements || depth > maxNesting {
		m.c.fail(errors.New("the description of the types is too large"))
		return
	}
	name := m.string()
	attributes := map[string]string{}
	for n := m.c.count(); n > 0 && m.c.err == nil; n-- {
		key := m.string()
		attributes[key] = m.string()
	}
	var own *class
	switch name {
	case "class":
		own = &class{name: attributes["name"]}
		m.classes.byID[m.id(attributes["id"])] = own
	case "field":
		if parent != nil {
			parent.fields = append(parent.fields, field{
				name: attributes["name"], class: m.id(attributes["class"]),
				pooled: attributes["constantPool"] == "true",
				array:  attributes["dimension"] == "1",
			})
		}
	}
	for n := m.c.count(); n > 0 && m.c.err == nil; n-- {
		m.element(depth+1, own)
	}
}

func (m *metadataReader) id(text string) uint64 {
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil && m.err == nil {
		m.err = fmt.Errorf("the id of a type is %.40q", text)
	}
	return id
}

// An op reads one field.
type op struct {
	kind opKind
	slot int  // where its value goes, -1 to skip it
	sub  []op // of a struct or of the elements of an array
}

type opKind uint8

const (
	opNumber opKind = iota
	opByte
	opFloat
	opDouble
	opText
	opStruct
	opArray
)

var primitives = map[string]opKind{
	"boolean": opByte, "byte": opByte, "short": opNumber, "char": opNumber, "int": opNumber, "long": opNumber,
	"float": opFloat, "double": opDouble, "java.lang.String": opText,
}

// plan returns the ops that read a value of a class; each field in want gets its position there as its slot. A field
// that the class lacks is no error: its value is then zero.
func (cs *classes) plan(id uint64, want ...string) ([]op, error) {
	ops, err := cs.plain(id, 0)
	if err != nil {
		return nil, err
	}
	ops = slices.Clone(ops)
	if c := cs.byID[id]; len(c.fields) > 0 {
		for i, f := range c.fields {
			ops[i].slot = slices.Index(want, f.name)
		}
	} else if len(want) > 0 {
		ops[0].slot = 0
	}
	return ops, nil
}

// plain returns the ops that skip a value of a class, one for each field.
func (cs *classes) plain(id uint64, depth int) ([]op, error) {
	if ops, ok := cs.plans[id]; ok && ops != nil {
		return ops, nil
	}
	c := cs.byID[id]
	if c == nil {
		return nil, fmt.Errorf("there is no type %d", id)
	}
	if kind, ok := primitives[c.name]; ok && len(c.fields) == 0 {
		return []op{{kind: kind, slot: -1}}, nil
	}
	if _, begun := cs.plans[id]; begun || depth > maxNesting || len(c.fields) == 0 {
		return nil, fmt.Errorf("type %.80q has no fields, or holds itself", c.name)
	}
	cs.plans[id] = nil
	var ops []op
	for _, f := range c.fields {
		one := op{kind: opNumber, slot: -1}
		if !f.pooled {
			sub, err := cs.plain(f.class, depth+1)
			if err != nil {
				return nil, err
			}
			if one = sub[0]; len(cs.byID[f.class].fields) > 0 {
				one = op{kind: opStruct, slot: -1, sub: sub}
			}
		}
		if f.array {
			one = op{kind: opArray, slot: -1, sub: []op{one}}
		}
		ops = append(ops, one)
	}
	cs.plans[id] = ops
	return ops, nil
}

// slots bounds the wanted fields of one class.
const slots = 8

// values are what the wanted fields of one event or constant hold.
type values struct {
	number [slots]uint64
	text   [slots]string
}

// read reads a value by its plan.
func (c *cursor) read(ops []op, v *values) {
	for i := 0; i < len(ops) && c.err == nil; i++ {
		o := &ops[i]
		var n uint64
		switch o.kind {
		case opNumber:
			n = c.number()
		case opByte:
			n = uint64(c.byte())
		case opFloat:
			c.bytes(4)
		case opDouble:
			c.bytes(8)
		case opText:
			if text := c.text(o.slot >= 0); o.slot >= 0 {
				v.text[o.slot] = text
			}
			continue
		case opStruct:
			c.read(o.sub, v)
		case opArray:
			for k := c.count(); k > 0 && c.err == nil && c.offset() <= c.end; k-- {
				c.read(o.sub, v)
			}
		}
		if o.slot >= 0 {
			v.number[o.slot] = n
		}
	}
}
