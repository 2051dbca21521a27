package goroutines

import (
	"fmt"
	"regexp"
	"strconv"
)

// A layout holds the offsets of a goroutine's fields, in bytes: those of the structures g and gobuf of
// src/runtime/runtime2.go, which are the same on amd64 and arm64. TestLayout compares them with the debug information
// that each compiler writes.
type layout struct {
	frame       uint64 // sched.bp: the frame pointer where it stopped
	inCall      uint64 // syscallsp; syscallpc is the next word
	inCallFrame uint64 // syscallbp, 0 before Go 1.23
	status      uint64 // atomicstatus
	id          uint64 // goid
	start       uint64 // startpc: the function that it was started with
}

// The offsets that are the same in every version: stack.hi, and sched with its sp, pc and the goroutine itself.
const (
	stackEnd = 8
	schedSP  = 56
	schedPC  = schedSP + 8
	schedG   = schedSP + 16
	headSize = 320 // bytes that hold all of these
)

// The versions of Go whose goroutines are read, by the second number, and the older one that Debian 12 builds its
// packages with. The go command cannot fetch that toolchain, so TestLayout does not cover it.
const oldest, latest, debian12 = 21, 27, 19

// layoutOf returns the layout for a version, such as go1.26.3.
func layoutOf(version string) (l layout, err error) {
	match := goVersion.FindStringSubmatch(version)
	if match == nil {
		return l, fmt.Errorf("its version of Go has no number")
	}
	minor, err := strconv.Atoi(match[1])
	switch {
	case err == nil && minor == debian12:
		return layout{frame: 104, inCall: 112, status: 144, id: 152, start: 312}, nil
	case err != nil || minor < oldest || minor > latest:
		return l, fmt.Errorf("goroutines of Go 1.%s are not read, those of Go 1.%d to 1.%d are", match[1],
			oldest, latest)
	case minor < 23:
		return layout{frame: 104, inCall: 112, status: 144, id: 152, start: 296}, nil
	case minor < 25:
		return layout{frame: 104, inCall: 112, inCallFrame: 128, status: 152, id: 160, start: 304}, nil
	}
	l = layout{frame: 96, inCall: 104, inCallFrame: 120, status: 144, id: 152, start: 296}
	if minor > 25 {
		l.start = 304
	}
	return l, nil
}

// goVersion matches what a compiler calls itself: go1.26.3, go1.27-devel_…, devel go1.27-….
var goVersion = regexp.MustCompile(`\bgo1\.([0-9]{1,3})\b`)
