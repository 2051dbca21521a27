// Package strictyaml decodes YAML into Go values and rejects whatever it does not know, with the line and the nearest
// name.
//
// The library's own strict mode names neither the nearest field nor, after nodes have been merged, the right line.
package strictyaml

import (
	"bytes"
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/perfdoctor/perfdoctor/internal/input/spelling"
)

// A Decoder gathers every mistake of one file. The zero value with a File is ready.
//
// The tags of a struct field: `yaml:"name"`; ",inline" for the fields of an embedded struct; ",key" for the name of
// an entry in a mapping, which then fills a slice in the order of the file; ",value" for the only other field of an
// entry, which is then written as that value; "name,value" for the field to fill when the struct is written as one
// value; "-" for a field that is not data. A [time.Duration] is written with its unit; a type with a form of its own
// is an [encoding.TextUnmarshaler].
type Decoder struct {
	File string
	errs []error
}

// Parse reads the single document of a YAML file. An error begins with the file's name.
func Parse(file string, data []byte) (*yaml.Node, error) {
	var doc yaml.Node
	stream := yaml.NewDecoder(bytes.NewReader(data))
	if err := stream.Decode(&doc); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := stream.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: want one document, and no --- after it", file)
	}
	return doc.Content[0], nil
}

// Decode fills the value that p points to from a node.
func (d *Decoder) Decode(n *yaml.Node, p any) { d.value(n, reflect.ValueOf(p).Elem(), "") }

// Err returns every mistake so far as one error, each with file and line; nil when there was none.
func (d *Decoder) Err() error { return errors.Join(d.errs...) }

// FieldNames lists the names that may be written in a T, in the order of declaration.
func FieldNames[T any]() []string { return fieldNames(reflect.TypeFor[T]()) }

// The tags that are not the name of a field.
const (
	inlineTag = ",inline"
	keyTag    = ",key"
	valueTag  = ",value" // also behind a name
	notRead   = "-"      // a field that is not data
)

func (d *Decoder) fail(n *yaml.Node, format string, args ...any) {
	d.errs = append(d.errs, fmt.Errorf("%s:%d: %w", d.File, n.Line, fmt.Errorf(format, args...)))
}

// value decodes n into v. what names the place for messages.
func (d *Decoder) value(n *yaml.Node, v reflect.Value, what string) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		d.fail(n, "%s: anchors and aliases are not supported: write it out", what)
		return
	}
	switch p := v.Addr().Interface().(type) {
	case *time.Duration:
		d.duration(n, p, what)
		return
	case encoding.TextUnmarshaler:
		d.text(n, p, what)
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

func (d *Decoder) scalar(n *yaml.Node, v reflect.Value, what string) {
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

// number reads whole numbers of zero or more: nothing that people write here is negative.
func (d *Decoder) number(n *yaml.Node, v reflect.Value, what string) {
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

func (d *Decoder) duration(n *yaml.Node, p *time.Duration, what string) {
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

func (d *Decoder) text(n *yaml.Node, p encoding.TextUnmarshaler, what string) {
	if n.Kind != yaml.ScalarNode {
		d.fail(n, "%s: want one value", what)
		return
	}
	if err := p.UnmarshalText([]byte(n.Value)); err != nil {
		d.fail(n, "%s: %w", what, err)
	}
}

func (d *Decoder) structure(n *yaml.Node, v reflect.Value, what string) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return // "server: {}" may be written "server:"
	}
	if short, ok := shortField(v); ok && n.Kind == yaml.ScalarNode {
		d.value(n, short, what)
		return
	}
	if n.Kind != yaml.MappingNode {
		d.fail(n, "%s: want fields: %s", cmp.Or(what, "the file"), strings.Join(fieldNames(v.Type()), ", "))
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

// shortField returns the field that takes the value of a struct written as one value.
func shortField(v reflect.Value) (reflect.Value, bool) {
	for i := range v.NumField() {
		if tag := v.Type().Field(i).Tag.Get("yaml"); tag != valueTag && strings.HasSuffix(tag, valueTag) {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

func (d *Decoder) unknown(key *yaml.Node, what string, names []string) {
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
func (d *Decoder) slice(n *yaml.Node, v reflect.Value, what string) {
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

func (d *Decoder) entries(n *yaml.Node, v reflect.Value, what string, key int) {
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

func (d *Decoder) mapping(n *yaml.Node, v reflect.Value, what string) {
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

// fieldTag returns the field's name, or the tag that it has instead. Options after a name, such as omitempty, are for
// writing.
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
		case tag == name && tag != "" && tag[0] != ',' && tag != notRead:
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
