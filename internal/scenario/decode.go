package scenario

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/perfdoctor/perfdoctor/internal/spelling"
)

// A decoder fills Go values from YAML nodes and refuses whatever it does not know, with the line. The library's own
// strict mode names neither the nearest field nor, after a cure has been merged in, the right line.
type decoder struct {
	file string
	errs []error
}

// The tags of a struct field: `yaml:"name"`; ",inline" for the fields of an embedded struct; ",key" for the name an entry
// has in a mapping; ",value" for the only other field of an entry that is written as a scalar.
const (
	inlineTag = ",inline"
	keyTag    = ",key"
	valueTag  = ",value"
	notRead   = "-" // a field that is not data
)

func (d *decoder) fail(n *yaml.Node, format string, args ...any) {
	d.errs = append(d.errs, fmt.Errorf("%s:%d: %s", d.file, n.Line, fmt.Sprintf(format, args...)))
}

// value decodes n into v. what names the place for messages.
func (d *decoder) value(n *yaml.Node, v reflect.Value, what string) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		d.fail(n, "%s: anchors and aliases are not supported: write it out", what)
		return
	}
	switch p := v.Addr().Interface().(type) {
	case *time.Duration:
		d.duration(n, p, what)
		return
	case *Bytes:
		d.bytes(n, p, what)
		return
	case **yaml.Node:
		*p = n
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), what)
	case reflect.Struct:
		d.structure(n, v, what)
	case reflect.Slice:
		d.slice(n, v, what)
	case reflect.Map:
		d.mapping(n, v, what)
	default:
		d.scalar(n, v, what)
	}
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, what string) {
	if n.Kind != yaml.ScalarNode {
		d.fail(n, "%s: want one value", what)
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(n.Value)
	case reflect.Bool:
		b, err := strconv.ParseBool(n.Value)
		if err != nil || n.Tag != "!!bool" {
			d.fail(n, "%s: %q is not true or false", what, n.Value)
		}
		v.SetBool(b)
	case reflect.Int, reflect.Uint16, reflect.Uint64:
		d.number(n, v, what)
	case reflect.Float64:
		f, err := strconv.ParseFloat(n.Value, 64)
		if err != nil || f-f != 0 || f < 0 { // f-f is NaN for NaN and infinities
			d.fail(n, "%s: %q is not a number of zero or more", what, n.Value)
		}
		v.SetFloat(f)
	default:
		d.fail(n, "%s: a field of type %s cannot be read", what, v.Type())
	}
}

// number reads whole numbers of zero or more: nothing in a scenario is negative.
func (d *decoder) number(n *yaml.Node, v reflect.Value, what string) {
	bits := v.Type().Bits()
	if v.Kind() == reflect.Int {
		bits--
	}
	u, err := strconv.ParseUint(strings.ReplaceAll(n.Value, "_", ""), 10, bits)
	if err != nil {
		d.fail(n, "%s: %q is not a whole number of zero or more", what, n.Value)
		return
	}
	if v.Kind() == reflect.Int {
		v.SetInt(int64(u)) // parsed with one bit less
		return
	}
	v.SetUint(u)
}

func (d *decoder) duration(n *yaml.Node, p *time.Duration, what string) {
	t, err := time.ParseDuration(n.Value)
	switch {
	case n.Kind != yaml.ScalarNode:
		d.fail(n, "%s: want a time such as 2s", what)
	case err != nil && n.Tag == "!!int":
		d.fail(n, "%s: %s has no unit: write %ss or %sms", what, n.Value, n.Value, n.Value)
	case err != nil:
		d.fail(n, "%s: %q is not a time with its unit, such as 2s, 500ms or 1m", what, n.Value)
	case t < 0:
		d.fail(n, "%s: %s is negative", what, n.Value)
	}
	*p = t
}

// byteUnits are the units of a Bytes value, the longer before the shorter that it ends with.
var byteUnits = []struct {
	name string
	size float64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

func (d *decoder) bytes(n *yaml.Node, p *Bytes, what string) {
	for _, unit := range byteUnits {
		text, ok := strings.CutSuffix(n.Value, unit.name)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || !(f > 0 && f*unit.size < 1<<62) {
			break
		}
		*p = Bytes(f * unit.size)
		return
	}
	d.fail(n, "%s: %q is not a size with its unit, such as 64MiB (B, KiB, MiB, GiB)", what, n.Value)
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, what string) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return // "server: {}" may be written "server:"
	}
	if n.Kind != yaml.MappingNode {
		d.fail(n, "%s: want fields: %s", what, strings.Join(fieldNames(v.Type()), ", "))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		field, ok := fieldOf(v, key.Value)
		switch {
		case !ok:
			d.unknown(key, what, fieldNames(v.Type()))
		case seen[key.Value]:
			d.fail(key, "%s is given twice", within(what, key.Value))
		default:
			d.value(value, field, within(what, key.Value))
		}
		seen[key.Value] = true
	}
}

func (d *decoder) unknown(key *yaml.Node, what string, names []string) {
	where := ""
	if what != "" {
		where = " in " + what
	}
	if near := spelling.Nearest(key.Value, names); near != "" {
		d.fail(key, "unknown field %q%s: did you mean %s?", key.Value, where, near)
		return
	}
	d.fail(key, "unknown field %q%s: it has %s", key.Value, where, strings.Join(names, ", "))
}

func within(what, name string) string {
	if what == "" {
		return name
	}
	return what + "." + name
}

// slice reads a sequence, or a mapping into entries that have a key field, in the order of the file.
func (d *decoder) slice(n *yaml.Node, v reflect.Value, what string) {
	elem := v.Type().Elem()
	key := tagged(elem, keyTag)
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
	case key < 0 && n.Kind == yaml.SequenceNode:
		for i, item := range n.Content {
			e := reflect.New(elem).Elem()
			d.value(item, e, fmt.Sprintf("%s[%d]", what, i))
			v.Set(reflect.Append(v, e))
		}
	case key < 0:
		d.fail(n, "%s: want a list: [a, b]", what)
	case n.Kind != yaml.MappingNode:
		d.fail(n, "%s: want names with a colon each, as in {name: …}", what)
	default:
		d.entries(n, v, what, key)
	}
}

func (d *decoder) entries(n *yaml.Node, v reflect.Value, what string, key int) {
	var names []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		if slices.Contains(names, name) {
			d.fail(n.Content[i], "%s is given twice", within(what, name))
		}
		names = append(names, name)
		e := reflect.New(v.Type().Elem()).Elem()
		e.Field(key).SetString(name)
		if value := tagged(e.Type(), valueTag); value >= 0 {
			d.value(n.Content[i+1], e.Field(value), within(what, name))
		} else {
			d.value(n.Content[i+1], e, within(what, name))
		}
		v.Set(reflect.Append(v, e))
	}
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, what string) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, "%s: want names with a colon each, as in {name: value}", what)
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := reflect.ValueOf(n.Content[i].Value)
		if v.MapIndex(key).IsValid() {
			d.fail(n.Content[i], "%s is given twice", within(what, key.String()))
		}
		e := reflect.New(v.Type().Elem()).Elem()
		d.value(n.Content[i+1], e, within(what, key.String()))
		v.SetMapIndex(key, e)
	}
}

func tagged(t reflect.Type, tag string) int {
	if t.Kind() != reflect.Struct {
		return -1
	}
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("yaml") == tag {
			return i
		}
	}
	return -1
}

// fieldTag is the field's name or what it stands for. Options after a name, such as omitempty, are for writing.
func fieldTag(f reflect.StructField) string {
	tag := f.Tag.Get("yaml")
	if name, _, ok := strings.Cut(tag, ","); ok && name != "" {
		return name
	}
	return tag
}

func fieldOf(v reflect.Value, name string) (reflect.Value, bool) {
	for i := range v.NumField() {
		switch tag := fieldTag(v.Type().Field(i)); {
		case tag == name && !strings.HasPrefix(tag, ",") && tag != notRead:
			return v.Field(i), true
		case tag == inlineTag:
			if f, ok := fieldOf(v.Field(i), name); ok {
				return f, true
			}
		}
	}
	return reflect.Value{}, false
}

// fieldNames lists the names that may be written, in the order of declaration.
func fieldNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		switch tag := fieldTag(t.Field(i)); {
		case tag == inlineTag:
			names = append(names, fieldNames(t.Field(i).Type)...)
		case tag != "" && tag[0] != ',' && tag != notRead:
			names = append(names, tag)
		}
	}
	return names
}

// merge lays change over base: mappings are merged, null removes, everything else replaces. Neither is modified.
func merge(base, change *yaml.Node) *yaml.Node {
	if base == nil || base.Kind != yaml.MappingNode || change.Kind != yaml.MappingNode {
		return change
	}
	out := *base
	out.Content = slices.Clone(base.Content)
	for i := 0; i+1 < len(change.Content); i += 2 {
		key, value := change.Content[i], change.Content[i+1]
		at := indexOf(&out, key.Value)
		switch {
		case value.Tag == "!!null" && at >= 0:
			out.Content = slices.Delete(out.Content, at, at+2)
		case value.Tag == "!!null": // nothing to remove
		case at >= 0:
			out.Content[at+1] = merge(out.Content[at+1], value)
		default:
			empty := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: value.Line} // takes the nulls out of a new mapping
			out.Content = append(out.Content, key, merge(empty, value))
		}
	}
	return &out
}

// indexOf is where a mapping has the key, or -1.
func indexOf(mapping *yaml.Node, key string) int {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return i
		}
	}
	return -1
}
