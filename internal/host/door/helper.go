package door

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// helperName is the first argument of a helper, by which the program knows that it is one.
	helperName = "perfdoctor: memory of others"
	// helperSocket is its descriptor for requests, the first after the standard ones.
	helperSocket = 3
	// helperTime is how long an answer may take: reading a page takes a microsecond, or some milliseconds from a busy
	// disk, and the helper has to get a CPU first.
	helperTime = time.Second
	// maxHung bounds the helpers that hang, each of some 10 MiB. After that perfdoctor reads no more memory of
	// others.
	maxHung = 4
)

// helpers read memory for this process, one at a time. A helper that does not answer is left behind, and the memory
// of the process that it was asked for is not asked for again.
type helpers struct {
	mu      sync.Mutex
	socket  int // of the helper that serves, -1 for none
	command *exec.Cmd
	refused map[int]error // by the process id
	hung    int
	used    time.Duration // CPU time of those that ended
	peak    int64         // see [HelperMemory]
	message []byte
}

// theHelpers returns the helpers of this program. It is nil if the program's main does not call [Helped]: the program
// then reads by itself.
var theHelpers = sync.OnceValue(func() *helpers {
	info, ok := debug.ReadBuildInfo()
	if !ok || !strings.HasSuffix(info.Path, "/cmd/perfdoctor") {
		return nil
	}
	return newHelpers()
})

func newHelpers() *helpers { return &helpers{socket: -1, refused: map[int]error{}} }

// read is [Memory.ReadAt] by a helper.
func (h *helpers) read(pid int, into []byte, at uint64) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.refused[pid]; err != nil {
		return 0, err
	}
	if h.hung >= maxHung {
		return 0, fmt.Errorf("%d processes hang that read it, for memory of a file %w", h.hung, ErrServer)
	}
	if h.socket < 0 {
		if err := h.start(); err != nil {
			return 0, fmt.Errorf("start a process that reads it: %w", err)
		}
	}
	n, err := h.ask(pid, into, at)
	if late(err) {
		err = fmt.Errorf("it lies in a file %w", ErrServer)
		h.refused[pid] = err
		h.leave()
	}
	return n, err
}

// start starts a helper. The helper ends when this process does, as its socket is then closed.
func (h *helpers) start() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(pair[1]), "requests")
	defer theirs.Close()
	limit := unix.NsecToTimeval(int64(helperTime))
	err = unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit)
	command := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{helperName}, Env: []string{"GOMAXPROCS=1"},
		ExtraFiles: []*os.File{theirs},
	}
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		closeQuietly(pair[0])
		return err
	}
	h.socket, h.command = pair[0], command
	return nil
}

// requestSize is the size of a request in bytes: eight for an address, four for a size and four for a process id.
const requestSize = 16

// ask sends a request and takes the answer: the number of an error, or 0 and the bytes.
func (h *helpers) ask(pid int, into []byte, at uint64) (int, error) {
	m := binary.LittleEndian.AppendUint64(h.message[:0], at)
	m = binary.LittleEndian.AppendUint32(m, uint32(len(into)))
	h.message = binary.LittleEndian.AppendUint32(m, uint32(pid))
	if err := unix.Sendto(h.socket, h.message, unix.MSG_NOSIGNAL, nil); err != nil {
		h.leave()
		return 0, fmt.Errorf("ask the process that reads it: %w", err)
	}
	if need := 4 + len(into); cap(h.message) < need {
		h.message = make([]byte, need)
	}
	answer := h.message[:4+len(into)]
	n, err := receive(h.socket, answer)
	switch {
	case late(err):
		return 0, err
	case err != nil || n < 4:
		h.leave()
		return 0, fmt.Errorf("the process that reads it has ended: %w", errors.Join(err, unix.EPIPE))
	}
	if number := binary.LittleEndian.Uint32(answer); number != 0 {
		return 0, syscall.Errno(number)
	}
	return copy(into, answer[4:n]), nil
}

// receive takes a message. A signal to this process (Go's scheduler sends many) does not end the wait, nor make it
// more than twice as long.
func receive(socket int, into []byte) (n int, err error) {
	for end := time.Now().Add(helperTime); ; {
		n, _, err = unix.Recvfrom(socket, into, 0)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
		if time.Now().After(end) {
			return 0, unix.EAGAIN
		}
	}
}

func late(err error) bool { return errors.Is(err, unix.EAGAIN) }

// leave ends a helper, or leaves it behind if it cannot end. The helper counts as hung until it has ended.
func (h *helpers) leave() {
	closeQuietly(h.socket)
	h.notePeak()
	command := h.command
	h.socket, h.command = -1, nil
	h.hung++
	_ = command.Process.Kill() // it may have ended
	go func() {
		_ = command.Wait() // it was killed
		h.mu.Lock()
		defer h.mu.Unlock()
		h.hung--
		h.used += command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	}()
}

// HelperCPU returns the CPU time that this process's helpers have used so far.
func HelperCPU() time.Duration {
	h := theHelpers()
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	used := h.used
	if h.command != nil {
		var t unix.Timespec
		// The clock of a process: MAKE_PROCESS_CPUCLOCK in include/linux/posix-timers_types.h, with CPUCLOCK_SCHED.
		clock := ^int32(h.command.Process.Pid)<<3 | 2
		if unix.ClockGettime(clock, &t) == nil {
			used += time.Duration(t.Nano())
		}
	}
	return used
}

// HelperMemory returns the largest resident memory of a helper so far, in bytes, times the helpers that hang or serve
// now.
func HelperMemory() int64 {
	h := theHelpers()
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	number := h.hung
	if h.command != nil {
		number++
		h.notePeak()
	}
	return h.peak * int64(max(number, 1))
}

// notePeak notes the peak memory of the serving helper while that exists: VmHWM of proc(5), in KiB.
func (h *helpers) notePeak() {
	text, _, err := read(fmt.Sprintf("/proc/%d/status", h.command.Process.Pid), maxStatus)
	if err != nil {
		return
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if n, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil && n == 1 {
			h.peak = max(h.peak, kib<<10)
		}
	}
}

// Helped reports whether this process is a helper. If so, it has served until it was not wanted any more, and main
// returns.
func Helped() bool {
	if os.Args[0] != helperName {
		return false
	}
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // it has to outlive the process that it serves
	runtime.LockOSThread()
	if err := confine(); err != nil {
		return true // it reads nothing, like a helper that was killed
	}
	request, answer := make([]byte, requestSize), make([]byte, 4+maxPiece)
	for {
		n, _, err := unix.Recvfrom(helperSocket, request, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n != requestSize {
			return true
		}
		pid, size := binary.LittleEndian.Uint32(request[12:]), binary.LittleEndian.Uint32(request[8:])
		piece := answer[4 : 4+max(1, min(size, maxPiece))]
		n, err = readMemory(int(pid), piece, binary.LittleEndian.Uint64(request))
		number, ok := errors.AsType[syscall.Errno](err)
		if err != nil && !ok {
			number = unix.EIO
		}
		binary.LittleEndian.PutUint32(answer, uint32(number))
		if unix.Sendto(helperSocket, answer[:4+n], unix.MSG_NOSIGNAL, nil) != nil {
			return true
		}
	}
}
