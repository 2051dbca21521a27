package evidence

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A Hit is a sample that matches, and where in its stack it matches.
type Hit struct {
	Sample stacks.Sample
	At     int
	Says   string // text of the rule that it matches
}

// MarksOf returns the places of hits for a report that draws the profile.
func MarksOf(e stacks.Event, hits []Hit) []check.Mark {
	out := make([]check.Mark, 0, len(hits))
	for _, h := range hits {
		if h.At < len(h.Sample.Stack) {
			out = append(out, check.Mark{Event: e, Stack: h.Sample.Stack, At: h.At})
		}
	}
	return out
}

// Weigh adds up the samples of hits.
func Weigh(hits []Hit) (w stacks.Weight) {
	for _, h := range hits {
		w.Add(h.Sample)
	}
	return w
}

// FewSamples is the number of samples below which a bottleneck is not believed: with nine samples the 95 % confidence
// interval of the share is from half to twice what they show.
const FewSamples = 10

// A Culprit is a method that matching samples lead to.
type Culprit struct {
	Method, Through string
	Line            int
	Owner           hotcode.Owner
	Value           int64
	Path            []string // in its heaviest sample, from the bottleneck outwards
	heaviest        int64
	lines           map[int]int64
	class           string // in the heaviest sample: the class of a lock or of what was allocated
	// Entry is the application's method that foreign code calls first, with its line, in the heaviest sample.
	Entry string
	// Inside is the function of a package or library nearest the bottleneck in the heaviest sample, for a script with
	// its file. It is empty if the method to blame does the work itself, and if the bottleneck is in a library.
	Inside string
	// Innocent says that it is never to blame, and is listed because nothing else is in its stacks.
	Innocent bool
}

// Name returns com.example.Shop.cart:42, and for a script cart (/app/shop.py:42).
func (c *Culprit) Name() string { return hotcode.At(c.Method, c.Line) }

// Culprits groups samples by the method to blame, the heaviest first; skipped methods come last.
func Culprits(prof *stacks.Profile, owners hotcode.Owners, hits []Hit, skip []hotcode.Pattern) []*Culprit {
	byMethod := map[string]*Culprit{}
	for _, h := range hits {
		place := owners.Nearest(prof, h.Sample.Stack, h.At, skip)
		f := prof.Frames[h.Sample.Stack[place.At]]
		c := byMethod[f.Name]
		if c == nil {
			c = &Culprit{Method: hotcode.ReadableName(f), Owner: place.Owner, lines: map[int]int64{}}
			if hotcode.OfInterpreter(f) { // other samples may show whose script it is
				c.Owner = hotcode.Library
			}
			c.Innocent = slices.ContainsFunc(skip, func(p hotcode.Pattern) bool { return p.Frame(f) })
			byMethod[f.Name] = c
		}
		c.Value += h.Sample.Value
		c.lines[f.Line] += h.Sample.Value
		if h.Sample.Value > c.heaviest || c.Path == nil {
			c.heaviest = h.Sample.Value
			c.class = h.Sample.Class
			c.Entry = entryOf(prof, owners, h.Sample.Stack)
			c.Path = pathOf(prof, h.Sample.Stack[min(h.At, place.At):max(h.At, place.At)+1])
			c.Inside = libraryIn(prof, owners, h.Sample.Stack[h.At:max(h.At, place.At)])
			c.Through = ""
			if place.Through >= 0 {
				c.Through = hotcode.ReadableName(prof.Frames[h.Sample.Stack[place.Through]])
			}
		}
	}
	var out []*Culprit
	for _, c := range byMethod {
		c.Line = HeaviestLine(c.lines)
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *Culprit) int {
		switch {
		case b.Innocent && !a.Innocent:
			return -1
		case a.Innocent && !b.Innocent:
			return 1
		}
		return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.Method, b.Method))
	})
	return out
}

// libraryIn names the first function of a package or library in a part of a stack, from the bottleneck outwards.
func libraryIn(prof *stacks.Profile, owners hotcode.Owners, stack []int) string {
	for i, at := range stack {
		f := prof.Frames[at]
		library := owners.Of(f) == hotcode.Library && !hotcode.Synthetic(f)
		if hotcode.IsScript(f) { // the runtime's own scripts are a library's, too
			library = hotcode.OfPackage(f)
		}
		if library && i == 0 {
			return ""
		}
		if library {
			return hotcode.At(hotcode.ReadableName(f), f.Line)
		}
	}
	return ""
}

// entryOf names the outermost method of the application: the handler that a server calls. It is empty if there is
// none.
func entryOf(prof *stacks.Profile, owners hotcode.Owners, stack []int) string {
	for i := len(stack) - 1; i >= 0; i-- {
		f := prof.Frames[stack[i]]
		if !f.Managed() || owners.Of(f) != hotcode.Application || hotcode.Synthetic(f) {
			continue
		}
		return (&Culprit{Method: hotcode.ReadableName(f), Line: f.Line}).Name()
	}
	return ""
}

// HeaviestLine returns the line with the greatest weight; the lowest of equals.
func HeaviestLine(lines map[int]int64) (line int) {
	most := int64(-1)
	for l, v := range lines {
		if v > most || v == most && l < line {
			line, most = l, v
		}
	}
	return line
}

// longestPath is how many calls of a path are shown: those at both ends, which say most.
const longestPath = 6

// pathOf returns the calls from the bottleneck outwards, without packages and without repetitions.
func pathOf(prof *stacks.Profile, stack []int) []string {
	var out []string
	for _, f := range stack {
		if name := ShortName(prof.Frames[f]); len(out) == 0 || out[len(out)-1] != name {
			out = append(out, name)
		}
	}
	if n := len(out); n > longestPath {
		out = slices.Concat(out[:longestPath/2], []string{"…"}, out[n-longestPath/2:])
	}
	return out
}

// ShortName returns Pattern.compile for java.util.regex.Pattern.compile; for machine code the whole name, and for a
// script the function without its file.
func ShortName(f stacks.Frame) string {
	if name := hotcode.ReadableName(f); name != f.Name {
		return hotcode.Function(name)
	}
	if !f.Managed() {
		return f.Name
	}
	parts := strings.Split(f.Name, ".")
	return strings.Join(parts[max(0, len(parts)-2):], ".")
}

// HeaviestPlaces names the methods to blame for the sampled CPU time, whatever they do: the heaviest one, and for the
// first few their share "of the CPU time" or of whatever ofWhat says, with the path there. Without samples it returns
// none.
func HeaviestPlaces(c *hotcode.CPU, ofWhat string) (heaviest string, notes []string) {
	if c.Sampled() <= 0 {
		return "", nil
	}
	var hits []Hit
	for _, s := range c.Samples {
		if len(s.Stack) > 0 {
			hits = append(hits, Hit{Sample: s})
		}
	}
	list := Culprits(c.Profile, c.Owners, hits, nil)
	for _, x := range list[:min(len(list), NamedCulprits)] {
		heaviest = cmp.Or(heaviest, x.Name())
		notes = append(notes, fmt.Sprintf("%s %s in %s: %s", PartText(x.Value, int64(c.Sampled()*1e9)), ofWhat,
			x.Name(), strings.Join(x.Path, " ← ")))
	}
	return heaviest, notes
}

// NamedCulprits is how many culprits a finding names: past the third they rarely change what to do.
const NamedCulprits = 3

// PartText returns a part of a whole as shown to a reader: "40 %".
func PartText(part, whole int64) string {
	return quantity.Of("", float64(part)/float64(max(1, whole)), quantity.Ratio).Text()
}
