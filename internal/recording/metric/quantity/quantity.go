// Package quantity holds numbers that carry their unit and show how they were computed.
//
// A finding is believed if its arithmetic can be repeated on paper: "28232 ports / 60 s = 470.5 connections/s". A
// [Value] therefore remembers the operation that made it, prints it, and refuses a comparison with a value of another
// unit.
package quantity

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Unit is what a number counts, in the plural as a person would write it ("ports", "connections/s"). Units are compared
// as text.
type Unit string

// The units that more than one rule uses. A rule may name another one if that reads better; only equality matters.
const (
	Ratio       Unit = "ratio" // a share of one; printed as a percentage
	Seconds     Unit = "s"
	Bytes       Unit = "B"
	CPUs        Unit = "CPUs"
	Packets     Unit = "packets"
	Connections Unit = "connections"
	Sockets     Unit = "sockets"
	Ports       Unit = "ports"
	Threads     Unit = "threads"
	Goroutines  Unit = "goroutines"
	Events      Unit = "events"
	Pages       Unit = "pages"
	Segments    Unit = "segments"
	Switches    Unit = "switches"
	Faults      Unit = "faults"
	Periods     Unit = "periods"
	Entries     Unit = "entries"
	Files       Unit = "files"
	Rules       Unit = "rules"
	None        Unit = "" // an identifier or a mode, such as the value of tcp_tw_reuse
)

// Per returns the unit of u divided by v: the same unit yields [Ratio], entries per entries/s are seconds (a time
// until full), and B/s per packets/s are B/packets.
func (u Unit) Per(v Unit) Unit {
	num, den, isRate := v.rate()
	unum, uden, uIsRate := u.rate()
	switch {
	case u == v:
		return Ratio
	case v == Ratio || v == None:
		return u
	case isRate && num == u:
		return den
	case isRate && uIsRate && den == uden:
		return unum.Per(num)
	case u == Ratio || u == None:
		return "1/" + v
	case uIsRate && unum == v:
		return "1/" + uden
	}
	return u + "/" + v
}

// rate splits a unit at its last slash: connections/s/CPUs are connections/s per CPU.
func (u Unit) rate() (num, den Unit, ok bool) {
	i := strings.LastIndexByte(string(u), '/')
	if i < 0 {
		return "", "", false
	}
	if num, den = u[:i], u[i+1:]; num == "1" {
		num = None
	}
	return num, den, true
}

// times is the inverse of Per: connections/s times s is connections.
func (u Unit) times(v Unit) Unit {
	switch {
	case v == Ratio || v == None:
		return u
	case u == Ratio || u == None:
		return v
	}
	if num, den, ok := u.rate(); ok && den == v {
		return num
	}
	if num, den, ok := v.rate(); ok && den == u {
		return num
	}
	return u + "·" + v
}

// A Value is a number with its unit, a label for the reader, and the operation that made it. The zero Value is a
// dimensionless 0.
type Value struct {
	label string
	n     float64
	unit  Unit
	work  string // "28232 ports / 60 s"; empty for a number that was read, not computed
}

// Of returns a number as it was read or declared. The label says what it is ("TIME_WAIT sockets to 10.0.0.5:443").
func Of(label string, n float64, unit Unit) Value { return Value{label: label, n: n, unit: unit} }

// Number returns the bare number, in the value's unit.
func (v Value) Number() float64 { return v.n }

// Unit returns the value's unit.
func (v Value) Unit() Unit { return v.unit }

// Label returns what the value is.
func (v Value) Label() string { return v.label }

// Work returns the operation that made the value, without its result. It is empty if the value was read.
func (v Value) Work() string { return v.work }

// Named returns the same value under another label and keeps the arithmetic.
func (v Value) Named(format string, args ...any) Value {
	v.label = fmt.Sprintf(format, args...)
	return v
}

// As returns the value in another unit that stands for the same count, such as ports that are each one connection. It
// does not convert: use [Value.Times] for that.
func (v Value) As(unit Unit) Value {
	v.unit = unit
	return v
}

// Per divides: ports per seconds are ports/s, seconds per seconds are a ratio. Dividing by zero returns NaN, which no
// comparison accepts, so a rule must test for an empty denominator first.
func (v Value) Per(w Value) Value {
	n := math.NaN()
	if w.n != 0 {
		n = v.n / w.n
	}
	return Value{n: n, unit: v.unit.Per(w.unit), work: v.Text() + " / " + w.Text()}
}

// Times multiplies.
func (v Value) Times(w Value) Value {
	return Value{n: v.n * w.n, unit: v.unit.times(w.unit), work: v.Text() + " × " + w.Text()}
}

// Plus adds a value of the same unit; another unit is a bug and panics.
func (v Value) Plus(w Value) Value {
	v.mustMatch(w)
	return Value{n: v.n + w.n, unit: v.unit, work: v.Text() + " + " + w.Text()}
}

// Minus subtracts a value of the same unit; another unit is a bug and panics.
func (v Value) Minus(w Value) Value {
	v.mustMatch(w)
	return Value{n: v.n - w.n, unit: v.unit, work: v.Text() + " − " + w.Text()}
}

// AtLeast reports v >= w. It panics if the units differ or a side is NaN: neither may ever read as "fine".
func (v Value) AtLeast(w Value) bool {
	v.mustCompare(w)
	return v.n >= w.n
}

// Above reports v > w, with the panics of [Value.AtLeast].
func (v Value) Above(w Value) bool {
	v.mustCompare(w)
	return v.n > w.n
}

// Below reports v < w, with the panics of [Value.AtLeast].
func (v Value) Below(w Value) bool { return !v.AtLeast(w) }

func (v Value) mustMatch(w Value) {
	if v.unit != w.unit {
		panic(fmt.Sprintf("quantity: %q is in %q, %q in %q: they cannot be added or compared", v.label, v.unit, w.label,
			w.unit))
	}
}

func (v Value) mustCompare(w Value) {
	v.mustMatch(w)
	if math.IsNaN(v.n) || math.IsNaN(w.n) {
		panic(fmt.Sprintf("quantity: comparing %q with %q: one of them is not a number", v.label, w.label))
	}
}

// Text returns the number with its unit: "470.5 connections/s", "99 %", "12 ms", "4.0 MiB".
func (v Value) Text() string {
	if math.IsNaN(v.n) {
		return "unknown"
	}
	switch v.unit {
	case Ratio:
		return percent(v.n)
	case Seconds:
		return duration(v.n)
	case Bytes:
		return bytes(v.n)
	case "B/s":
		return bytes(v.n) + "/s"
	case None:
		return number(v.n)
	}
	return number(v.n) + " " + counted(v.n, v.unit)
}

// counted returns the unit for one thing or for several: 1 port, 1 connection/s, 2 ports.
func counted(n float64, unit Unit) string {
	if number(n) != "1" {
		return string(unit)
	}
	thing, rest, per := strings.Cut(string(unit), "/")
	switch {
	case strings.HasSuffix(thing, "ies"):
		thing = strings.TrimSuffix(thing, "ies") + "y" // entries
	case strings.HasSuffix(thing, "ches"):
		thing = strings.TrimSuffix(thing, "es") // switches
	case len(thing) > 2: // "s" and "ms" are symbols
		thing = strings.TrimSuffix(thing, "s")
	}
	if per {
		return thing + "/" + rest
	}
	return thing
}

// String returns the whole line: "ceiling: 28232 ports / 60 s = 470.5 connections/s".
func (v Value) String() string {
	s := v.Text()
	if v.work != "" {
		s = v.work + " = " + s
	}
	if v.label == "" {
		return s
	}
	return v.label + ": " + s
}

// jsonValue is the documented JSON shape of a Value (docs/report-schema.md).
type jsonValue struct {
	Label string   `json:"label"`
	Value *float64 `json:"value"` // null if it is not a number
	Unit  Unit     `json:"unit"`
	Text  string   `json:"text"`
	Work  string   `json:"arithmetic,omitempty"`
}

// MarshalJSON writes label, value, unit, text and, for a computed value, its arithmetic.
func (v Value) MarshalJSON() ([]byte, error) {
	out := jsonValue{Label: v.label, Unit: v.unit, Text: v.Text()}
	if !math.IsNaN(v.n) && !math.IsInf(v.n, 0) {
		out.Value = &v.n
	}
	if v.work != "" {
		out.Work = v.work + " = " + v.Text()
	}
	return json.Marshal(out)
}

// percent keeps a decimal below ten: a whole number would hide the difference from a threshold.
func percent(n float64) string {
	p := n*100 + 0 // see number
	switch {
	case p != 0 && math.Abs(p) < 0.1:
		return strconv.FormatFloat(p, 'g', 2, 64) + " %"
	case math.Abs(p) < 10 && p != math.Trunc(p):
		return strconv.FormatFloat(p, 'f', 1, 64) + " %"
	}
	return strconv.FormatFloat(p, 'f', 0, 64) + " %"
}

func duration(n float64) string {
	switch a := math.Abs(n); {
	case a == 0 || a >= 1:
		return number(n) + " s"
	case a >= 1e-3:
		return number(n*1e3) + " ms"
	}
	return number(n*1e6) + " µs"
}

func bytes(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for math.Abs(n) >= 1024 && i < len(units)-1 {
		n /= 1024
		i++
	}
	return number(n) + " " + units[i]
}

// leastNumber is the least number that prints with digits; a smaller one would print an exponent.
const leastNumber = 0.0001

// number prints whole numbers whole and others with about four significant digits, more than any sample here
// deserves.
func number(n float64) string {
	n += 0 // minus zero would read as a fall
	a := math.Abs(n)
	switch {
	case n == math.Trunc(n) && a < 1e15:
		return strconv.FormatFloat(n, 'f', 0, 64)
	case a >= 1000:
		return strconv.FormatFloat(n, 'f', 0, 64)
	case a >= 1:
		return trimZeros(strconv.FormatFloat(n, 'f', decimals(a), 64))
	case a < leastNumber:
		return "<0.0001"
	}
	return strconv.FormatFloat(n, 'g', 2, 64)
}

func decimals(a float64) int {
	if a >= 100 {
		return 1
	}
	return 2
}

func trimZeros(s string) string {
	if !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
