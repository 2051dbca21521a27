package stacks

import (
	"fmt"
	"strings"
)

// ThreadStart labels the outermost frame of a thread in a C library without symbols. Only the place identifies it, so
// a [Picture] counts it as a frame without a name.
const ThreadStart = "[thread start]"

// Unnamed is the name of a frame whose code has no symbol.
const Unnamed = "[unknown]"

// IsUnnamed reports whether a name belongs to a frame whose code has no symbol, including [Placed] ones.
func IsUnnamed(name string) bool { return strings.HasPrefix(name, "[unknown") }

// Placed names a function without a symbol by its beginning in its file, and by a neighbour with a symbol, "" if
// there is none.
func Placed(begin uint64, near string) string {
	if near == "" {
		return fmt.Sprintf("[unknown %#x]", begin)
	}
	return fmt.Sprintf("[unknown %#x near %s]", begin, near)
}

// Place returns where a function that [Placed] named begins, as 0x4f20. ok is false for every other name.
func Place(name string) (begin string, ok bool) {
	at, ok := strings.CutPrefix(name, "[unknown 0x")
	at, ends := strings.CutSuffix(at, "]")
	if !ok || !ends {
		return "", false
	}
	begin, _, _ = strings.Cut(at, " near ")
	return "0x" + begin, true
}

// A Picture is how much of the truth the stacks of a profile show. Values are samples, except Frames and Unnamed.
type Picture struct {
	Samples int64
	Managed int64 // with frames of a managed runtime, or of code made at run time
	// of those, with only one frame of the program: the code keeps no frame pointer, so its callers are not known
	Shallow int64
	Frames  int64 // in all samples
	Unnamed int64 // of those, without a symbol
	Placed  int64 // of those, named by their place in the file
	Made    int64 // of the unnamed, in code without a file: a compiler made it at run time
}

// PictureOf examines a profile from a sampler that follows frame pointers.
func PictureOf(p *Profile) Picture {
	var out Picture
	for _, s := range p.Samples {
		managed, user := false, 0
		for _, i := range s.Stack {
			f := p.Frames[i]
			if f.Kind != Kernel {
				user++
			}
			managed = managed || f.Managed() || f.Kind == Unknown && f.Module != ""
			if f.Name == ThreadStart || IsUnnamed(f.Name) {
				out.addUnnamed(f, s.Count)
			}
		}
		out.Samples += s.Count
		out.Frames += int64(len(s.Stack)) * s.Count
		if managed {
			out.Managed += s.Count
		}
		if managed && user == 1 {
			out.Shallow += s.Count
		}
	}
	return out
}

// addUnnamed counts a frame without a symbol.
func (p *Picture) addUnnamed(f Frame, count int64) {
	p.Unnamed += count
	if IsUnnamed(f.Name) && f.Name != Unnamed {
		p.Placed += count
	}
	if f.Kind == Unknown && f.Module != "" {
		p.Made += count
	}
}
