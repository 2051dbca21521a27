package hotcode

import (
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A Pattern matches the names of frames, classes or threads. A star stands for any run of characters. A part before an
// exclamation mark is matched with the frame's module: "libz.so*!*" is everything in zlib.
type Pattern struct {
	module, name glob
	ofModule     bool
}

// ParsePattern parses a pattern; every text is valid.
func ParsePattern(text string) Pattern {
	if module, name, ok := strings.Cut(text, "!"); ok {
		return Pattern{module: parseGlob(module), name: parseGlob(name), ofModule: true}
	}
	return Pattern{name: parseGlob(text)}
}

// ParsePatterns parses each text as [ParsePattern] does.
func ParsePatterns(texts ...string) []Pattern {
	out := make([]Pattern, len(texts))
	for i, t := range texts {
		out[i] = ParsePattern(t)
	}
	return out
}

// Frame reports whether the pattern matches a frame. Parameters of a C++ function, which some profilers write, are
// not part of its name. The parenthesis of a Go method's receiver, behind a dot, is part of it, as is the one of an
// anonymous C++ namespace, behind a colon.
func (p Pattern) Frame(f stacks.Frame) bool {
	if !strings.HasPrefix(f.Name, p.name[0]) { // this rules out most: a profile is matched with 2,000 patterns
		return false
	}
	if p.ofModule && !p.module.match(f.Module) {
		return false
	}
	if f.Managed() {
		return p.name.match(f.Name)
	}
	return p.name.match(withoutParameters(f.Name))
}

func withoutParameters(name string) string {
	for i := 1; i < len(name); i++ {
		if name[i] == '(' && name[i-1] != '.' && name[i-1] != ':' {
			return name[:i]
		}
	}
	return name
}

// Text reports whether the pattern matches the name of a class or thread.
func (p Pattern) Text(name string) bool { return !p.ofModule && p.name.match(name) }

// A glob is the literal parts between stars.
type glob []string

func parseGlob(text string) glob { return strings.Split(text, "*") }

func (g glob) match(s string) bool {
	if len(g) == 1 {
		return s == g[0]
	}
	if !strings.HasPrefix(s, g[0]) {
		return false
	}
	s = s[len(g[0]):]
	for _, part := range g[1 : len(g)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return strings.HasSuffix(s, g[len(g)-1])
}

// Frames returns the frames of a profile that any of the patterns matches, and whether there are any. Frames are few
// and samples many, so names are compared once. A library that another one moved into its own package matches by its
// original name.
func Frames(p *stacks.Profile, patterns []Pattern) (set stacks.Set, some bool) {
	set = p.Set(func(f stacks.Frame) bool {
		f.Name, _ = unshaded(f)
		for _, pattern := range patterns {
			if pattern.Frame(f) {
				some = true
				return true
			}
		}
		return false
	})
	return set, some
}
