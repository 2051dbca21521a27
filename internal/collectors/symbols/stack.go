package symbols

import (
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// Stack returns a profile's frame numbers for addresses, the innermost first: the kernel's, then the program's. All
// but the first of each are return addresses.
func (s *Symbolizer) Stack(b *stacks.Builder, pid uint32, kernel, user []uint64) []int {
	var out []int
	for i, ip := range kernel {
		if i > 0 {
			ip-- // a return address: the call before it may be the last instruction of its function
		}
		out = append(out, b.Frame(s.KernelFrame(ip)))
	}
	for _, f := range s.UserStack(pid, user) {
		out = append(out, b.Frame(f))
	}
	return out
}

// UserStack names the addresses of a program's stack, the innermost first. All but the first are return addresses.
func (s *Symbolizer) UserStack(pid uint32, addresses []uint64) (frames []stacks.Frame) {
	for i, ip := range addresses {
		if i > 0 {
			ip--
		}
		frames = append(frames, s.UserFrames(pid, ip)...)
	}
	nameStart(frames)
	return frames
}

// nameStart labels the outermost frame if it is in the C library and has no name: start_thread and
// __libc_start_call_main of glibc are static. Where library.starts does not find them, as in musl and glibc before
// 2.34, the frame's place at the bottom of nearly every stack is all that is known.
func nameStart(frames []stacks.Frame) {
	if len(frames) < 2 {
		return
	}
	f := &frames[len(frames)-1]
	if f.Name == unknownFrame && (strings.HasPrefix(f.Module, "libc.so") || strings.HasPrefix(f.Module, "libc-") ||
		strings.HasPrefix(f.Module, "libpthread") || strings.HasPrefix(f.Module, "ld-musl")) {
		f.Name = stacks.ThreadStart
	}
}
