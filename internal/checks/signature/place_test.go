package signature

import (
	"math"
	"slices"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/evidence"
)

// TestPlaceIsSure: machine code is attributed to a function only if both shares leave no other.
func TestPlaceIsSure(t *testing.T) {
	one := []*evidence.Culprit{{Method: "parse (/app/app.py)", Line: 7, Value: 9e8}}
	for _, tc := range []struct {
		l    place
		sure bool
		note string
	}{
		{
			place{one, 1, 0.9},
			true,
			"the scripts were in parse (/app/app.py:7) for 90 % of their time: at least 90 % of it is called there",
		},
		{place{one, 1, 0.49}, false, "the scripts were in parse (/app/app.py:7) for 90 % of their time"},
	} {
		if got := tc.l.sure() != nil; got != tc.sure {
			t.Errorf("at least %v of it: sure %v", tc.l.least, got)
		}
		if got := tc.l.notes(); len(got) != 1 || got[0] != tc.note {
			t.Errorf("notes %q, want %q", got, tc.note)
		}
	}
	if l := (place{}); l.sure() != nil || len(l.notes()) > 0 {
		t.Error("there is a place without functions")
	}
}

// TestRows: each runtime has what its row says, and the rest of the signature.
func TestRows(t *testing.T) {
	list, err := readSignatures("own.yaml", []byte(`signatures:
  codec:
    title: The old codec is in use
    where: [{frames: [com.example.Codec.*]}]
    cure: Use com.example.v2.
    expect: 3 %
    in:
      python:
        where: [{event: script-cpu, frames: ["py::*:*/codec.py"], per-request: 10ms}]
        cure: Use codec2.
`))
	if err != nil {
		t.Fatal(err)
	}
	rows := list[0].rows()
	if len(rows) != 2 || rows[1].Runs != "python" || rows[1].Name != "codec" || rows[1].Cure != "Use codec2." ||
		math.Abs(float64(rows[1].Expect)-0.03) > 1e-9 || rows[1].Where[0].Warn != usualWarn {
		t.Errorf("rows %+v", rows)
	}
	c := list[0].check(list)
	var names []string
	for _, p := range c.Params {
		names = append(names, p.Name)
	}
	if want := "python-per-request"; c.Only == nil || c.Only.Or == nil || !slices.Contains(names, want) {
		t.Errorf("scope %+v, parameters %v", c.Only, names)
	}
}

// TestRowsMistakes: a row within a row is refused, and so is one for the signature's own runtime.
func TestRowsMistakes(t *testing.T) {
	const head = "signatures:\n  codec:\n    title: T\n    cure: C\n    where: [{frames: [a.B.c]}]\n    in:\n"
	for name, text := range map[string]string{
		"same":    "      java: {where: [{frames: [a.b]}]}\n",
		"deep":    "      python: {where: [{frames: [a.b]}], in: {node: {where: [{frames: [a.b]}]}}}\n",
		"unknown": "      cobol: {where: [{frames: [a.b]}]}\n",
		"empty":   "      python: {cure: D}\n",
		"event":   "      python: {where: [{event: lock, frames: [a.b], per-request: 1ms}]}\n",
	} {
		if _, err := readSignatures("own.yaml", []byte(head+text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
