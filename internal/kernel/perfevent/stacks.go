package perfevent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A StackSample is what a thread had on its user stack at one moment.
type StackSample struct {
	// PC, SP and FP are registers of the program; if the kernel ran, they are those at the entry into it.
	PC, SP, FP uint64
	// Stack is the memory from SP on, StackSize bytes at most. It is valid until the next sample.
	Stack []byte
}

// StackSize bounds the copied part of a stack, in bytes. A record of perf has less than 64 KiB.
const StackSize = 32 << 10

// stackPages of a buffer hold 15 whole stacks, 150 ms at 100 a second.
const stackPages = 128

// A StackSampler takes the user stacks of one thread, by the thread's own CPU time. It costs one descriptor, 516 KiB
// and 5 µs a sample. It is not safe for concurrent use. Close it.
type StackSampler struct {
	ring ring
	buf  []byte
}

// OpenStacks takes a stack of the thread each time it has run for a period. It needs the rights of [OpenSampler].
func OpenStacks(tid int, period time.Duration) (*StackSampler, error) {
	registers, ok := stackRegisters[runtime.GOARCH]
	if !ok || period <= 0 {
		return nil, &RefusedError{NotSupported, "stacks are not read on " + runtime.GOARCH}
	}
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Sample: uint64(period),
		Sample_type:       unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER,
		Sample_regs_user:  registers,
		Sample_stack_user: StackSize,
	}
	attr.Size = uint32(unsafe.Sizeof(attr))
	fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		if errors.Is(err, unix.ESRCH) {
			return nil, err // it has ended
		}
		return nil, refusal(err)
	}
	r, err := mapRing(fd, stackPages)
	if err != nil {
		return nil, err
	}
	return &StackSampler{ring: r}, nil
}

// stackRegisters are the masks of frame pointer, stack pointer and program counter, which come in this order, from
// enum perf_event_x86_regs and perf_event_arm_regs (arch/*/include/uapi/asm/perf_regs.h).
var stackRegisters = map[string]uint64{
	"amd64": 1<<6 | 1<<7 | 1<<8,
	"arm64": 1<<29 | 1<<31 | 1<<32,
}

// Read visits the samples since the last Read, and returns how many were lost because the buffer was full.
func (s *StackSampler) Read(visit func(StackSample)) (lost uint64, err error) {
	s.buf = s.ring.take(s.buf[:0])
	return parseStacks(s.buf, visit)
}

// parseStacks reads whole records: after the header the kind of the registers, the three of them, the size of the
// stack, the stack, and how much of it was there (perf_output_sample_ustack in kernel/events/core.c).
func parseStacks(b []byte, visit func(StackSample)) (lost uint64, err error) {
	const registers, words = 3, 5 // with the kind and the size
	word := func(at int) uint64 { return binary.NativeEndian.Uint64(b[at:]) }
	for len(b) > 0 {
		typ, size, err := firstRecord(b)
		if err != nil {
			return lost, err
		}
		switch {
		case typ == unix.PERF_RECORD_LOST && size >= lostSize:
			lost += word(recordHeader + 8)
		case typ != unix.PERF_RECORD_SAMPLE || size < recordHeader+8*words:
		case word(recordHeader) == unix.PERF_SAMPLE_REGS_ABI_NONE: // the thread's program is gone
		default:
			room := word(recordHeader + 8*(1+registers))
			begin := recordHeader + 8*words
			if room > uint64(size-begin) || room > 0 && room+8 > uint64(size-begin) {
				return lost, fmt.Errorf("samples of perf: a stack of %d bytes in a record of %d", room, size)
			}
			taken := uint64(0)
			if room > 0 {
				taken = min(room, word(begin+int(room)))
			}
			visit(StackSample{
				FP: word(recordHeader + 8), SP: word(recordHeader + 16), PC: word(recordHeader + 24),
				Stack: b[begin : begin+int(taken)],
			})
		}
		b = b[size:]
	}
	return lost, nil
}

// Close ends the sampling.
func (s *StackSampler) Close() { s.ring.close() }
