package compare

import (
	"fmt"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// Text says how a number changed: "CPU time per request: 87 µs -> 93 µs (+6.9 %)".
func (n *Number) Text() string {
	if n.Change == nil {
		return n.Label + ": " + n.Reason
	}
	of := func(x float64) string { return quantity.Of("", x, n.Unit).Text() }
	s := fmt.Sprintf("%s: %s -> %s", n.Label, of(n.Before.Mean), of(n.After.Mean))
	if n.Change.Relative != nil {
		s += fmt.Sprintf(" (%s)", n.Change.Times())
	}
	return s
}

// twice is the growth from which on a factor says more than a percentage.
const twice = 1.0

// Times says how a number changed relative to before: "+6.9 %", or "4.2 times as much". No factor above a thousand is
// of interest.
func (c *Change) Times() string {
	if *c.Relative > twice {
		return asMuch(1 + *c.Relative)
	}
	return signed(*c.Relative)
}

func asMuch(factor float64) string {
	if factor > 1000 {
		return "over 1000 times as much"
	}
	return fmt.Sprintf("%.3g times as much", factor)
}

// Text says how a method changed: "main.tax grew to 1.5 times (1.3 to 1.8): 10 % -> 14 % of the CPU time".
func (m *Method) Text() string {
	verb := "grew"
	if m.Factor < 1 {
		verb = "shrank"
	}
	name := m.Name
	if m.With {
		name += ", with all that it calls,"
	}
	s := fmt.Sprintf("%s %s: %s -> %s of the CPU time, %s of all", name, verb, ratio(m.Before), ratio(m.After),
		signed(m.Extra))
	if m.Samples[0] == 0 || m.Samples[1] == 0 {
		return s
	}
	return s + fmt.Sprintf(" (%.3g times as much, %.3g to %.3g)", m.Factor, m.Low, m.High)
}

func ratio(x float64) string { return quantity.Of("", x, quantity.Ratio).Text() }

// mostShare is the growth, as a share, beyond which nobody reads percentages: ten times the value before.
const mostShare = 10

func signed(x float64) string {
	if x > mostShare {
		return "over +" + ratio(mostShare)
	}
	if x > 0 {
		return "+" + ratio(x)
	}
	return strings.Replace(ratio(x), "-", "−", 1)
}

func cpus(x float64) string { return quantity.Of("", x, quantity.CPUs).Text() }

func seconds(x float64) string { return quantity.Of("", x, quantity.Seconds).Text() }
