package hotcode

import (
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// builtinMarks are the prefixes of functions that V8 provides to scripts, in C++ and in its own assembler
// (src/builtins/builtins-definitions.h). What they have in common with calls of Node.js itself has no name there.
var builtinMarks = []string{"v8::internal::Builtin_", "Builtins_"}

// mostBuiltins bounds the functions that are named together: more than two are no place to begin.
const mostBuiltins = 2

// Builtins returns the functions of V8 that must take at least half of a script function's own time, the one with the
// most first; none if that is not certain. Scripts and machine code are sampled apart. But if the function has nine
// tenths of the time and V8's function has eight, they have at least seven in common.
func (h *Hot) Builtins(rec *recording.Recording, total float64) []string {
	code, ok := CodeOf(rec)
	if !h.Inlines || !ok {
		return nil
	}
	groups := stacks.Group(code.Profile, func(s stacks.Sample) string { return code.builtinIn(s) })
	groups = slices.DeleteFunc(groups, func(g stacks.Share[string]) bool { return g.Key == "" })
	own, part := seconds(h.Own)/total, 0.0
	var names []string
	for _, g := range groups[:min(len(groups), mostBuiltins)] {
		names = append(names, g.Key)
		part += seconds(g.Weight) / code.Total()
		if part+own-1 >= own/2 {
			return names
		}
	}
	return nil
}

// builtinIn returns the function of V8 that a sample is in; "" if that is compiled code of a script, which has no name
// there, or if the script did not call one.
func (c *CPU) builtinIn(s stacks.Sample) string {
	for _, f := range s.Stack {
		frame := c.Frames[f]
		if stacks.IsUnnamed(frame.Name) {
			return ""
		}
		for _, mark := range builtinMarks {
			name, ok := strings.CutPrefix(frame.Name, mark)
			if ok && (mark != "Builtins_" || strings.Contains(name, "Prototype")) && name != "HandleApiCall" {
				return name
			}
		}
	}
	return ""
}
