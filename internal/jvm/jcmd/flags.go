package jcmd

import (
	"fmt"
	"strings"
)

// Flag is one -XX flag of a running JVM.
type Flag struct {
	Value  string // true, false, a number or a text
	Origin string // default, command line, ergonomic, environment, management, …
}

// ParseFlags reads the output of `VM.flags -all` (JVMFlag::print_on in src/hotspot/share/runtime/flags/jvmFlag.cpp),
// one flag a line,
//
//	uint ParallelGCThreads                        = 2                                         {product} {default}
func ParseFlags(text string) (map[string]Flag, error) {
	flags := map[string]Flag{}
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(line, "=")
		words := strings.Fields(left)
		if !ok || len(words) != 2 {
			continue // the head, and the further lines of a text
		}
		value, origin, ok := flagTail(right)
		if !ok {
			continue
		}
		flags[words[1]] = Flag{Value: value, Origin: origin}
	}
	if len(flags) == 0 {
		return nil, fmt.Errorf("no flags: the answer begins with %.60q", text)
	}
	return flags, nil
}

// flagTail reads " 2      {pd product} {default}".
func flagTail(s string) (value, origin string, ok bool) {
	s = strings.TrimSpace(s)
	last := strings.LastIndexByte(s, '{')
	if last < 0 || !strings.HasSuffix(s, "}") {
		return "", "", false
	}
	origin = s[last+1 : len(s)-1]
	kind := strings.LastIndexByte(s[:last], '{')
	if kind < 0 {
		return "", "", false
	}
	return strings.TrimSpace(s[:kind]), origin, true
}
