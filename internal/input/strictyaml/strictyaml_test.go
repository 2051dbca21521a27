package strictyaml

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type rule struct {
	Name  string        `yaml:",key"`
	Limit float64       `yaml:"limit"`
	Every time.Duration `yaml:"every"`
	Where []place       `yaml:"where"`
	Size  even          `yaml:"size"`
}

type place struct {
	Frame string   `yaml:"frame,value"`
	Under []string `yaml:"under"`
}

// even is a type with a form of its own.
type even int

func (e *even) UnmarshalText(text []byte) error {
	if len(text)%2 != 0 {
		return errors.New("an odd word")
	}
	*e = even(len(text))
	return nil
}

type file struct {
	Rules []rule `yaml:"rules"`
}

func TestDecode(t *testing.T) {
	n, err := Parse("a.yaml", []byte("rules:\n  first:\n    limit: 0.5\n    every: 2s\n    size: word\n    where: "+
		"[a.b, {frame: c.d, under: [e]}]\n  second:\n"))
	if err != nil {
		t.Fatal(err)
	}
	var got file
	d := Decoder{File: "a.yaml"}
	d.Decode(n, &got)
	if err := d.Err(); err != nil {
		t.Fatal(err)
	}
	want := file{[]rule{
		{
			Name: "first", Limit: 0.5, Every: 2 * time.Second, Size: 4,
			Where: []place{{Frame: "a.b"}, {Frame: "c.d", Under: []string{"e"}}},
		},
		{Name: "second"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"rules:\n  a:\n    limits: 1\n":        `a.yaml:3: unknown field "limits" in rules.a: did you mean limit?`,
		"rules:\n  a: {where: [{farme: x}]}\n": `a.yaml:2: unknown field "farme" in rules.a.where[0]: did you mean frame?`,
		"rules:\n  a: {size: odd}\n":           `a.yaml:2: rules.a.size: an odd word`,
		"rules:\n  a: {limit: x, every: 3}\n": "a.yaml:2: rules.a.limit: \"x\" is not a number of zero or " +
			"more\na.yaml:2: rules.a.every: 3 has no unit: write 3s or 3ms",
		"rules:\n  a: {}\n  a: {}\n": "a.yaml:3: rules.a is given twice",
		"rules:\n  a: {where: &x [y]}\n": "a.yaml:2: rules.a.where: anchors and aliases are not supported: " +
			"write it out",
		"rules:\n  a: {where: [{frame: x}, [y]]}\n": "a.yaml:2: rules.a.where[1]: want fields: frame, under",
		"[a]\n": "a.yaml:1: the file: want fields: rules",
	} {
		n, err := Parse("a.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		d := Decoder{File: "a.yaml"}
		d.Decode(n, new(file))
		if err := d.Err(); err == nil || err.Error() != want {
			t.Errorf("%q: error %v\nwant %s", text, err, want)
		}
	}
	for _, text := range []string{"", "a: [", "a: 1\n---\nb: 2\n"} {
		if _, err := Parse("a.yaml", []byte(text)); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("rules:\n  first:\n    limit: 0.5\n    where: [a.b, {frame: c.d}]\n"))
	f.Add([]byte("rules: {a: {every: 1s, size: xx}}\n"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		n, err := Parse("a.yaml", data)
		if err != nil {
			return
		}
		d := Decoder{File: "a.yaml"}
		d.Decode(n, new(file))
	})
}
