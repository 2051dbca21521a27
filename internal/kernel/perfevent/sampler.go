package perfevent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sample is where a CPU was at one moment.
type Sample struct {
	// PID and TID identify the thread that ran, in perfdoctor's pid namespace; they are 0 for a thread outside of it.
	PID, TID int
	// IP is the program counter: the address of the instruction that runs next after the sample.
	IP   uint64
	User bool // the CPU was in user mode
}

// RefusedError says why the kernel refuses to sample, and what would change that.
type RefusedError struct {
	Status Status // Denied, NotSupported or NotCounted
	Reason string
}

// Error returns the reason.
func (e *RefusedError) Error() string { return e.Reason }

// Sampler samples the program counters of whole CPUs by their clock, which every machine has, even a virtual one. A
// CPU costs one descriptor and 68 KiB, and 1 to 2 µs a sample. Context switches of threads cost nothing more, since
// the events belong to the CPUs. It is not safe for concurrent use. Close it.
type Sampler struct {
	rings []ring
	buf   []byte
}

// ring is the buffer of one event.
type ring struct {
	fd    int
	bytes []byte // a page for perf_event_mmap_page, then a power of two of them
}

// dataPages of the buffer hold 2700 samples, 27 s at 100 a second, so that a tick may be late. A power of two
// (perf_mmap in kernel/events/core.c).
const dataPages = 16

// OpenSampler samples the CPUs every period each, while they are not idle. Needs CAP_PERFMON (CAP_SYS_ADMIN before 5.8)
// or kernel.perf_event_paranoid <= 0, else its error is a *RefusedError.
func OpenSampler(cpus []int, period time.Duration) (*Sampler, error) {
	if len(cpus) == 0 || period <= 0 {
		return nil, fmt.Errorf("nothing to sample: %d CPUs every %v", len(cpus), period)
	}
	if room := fileRoom(); len(cpus) > room {
		return nil, fmt.Errorf("no descriptors left to sample %d CPUs (%d): raise RLIMIT_NOFILE", len(cpus), room)
	}
	s := &Sampler{}
	var failed error
	for _, cpu := range cpus {
		r, err := openRing(cpu, period)
		switch {
		case errors.Is(err, unix.ENODEV): // went offline meanwhile
			failed = err
		case err != nil:
			s.Close()
			return nil, refusal(err)
		default:
			s.rings = append(s.rings, r)
		}
	}
	if len(s.rings) == 0 {
		return nil, refusal(failed)
	}
	return s, nil
}

func refusal(err error) error {
	status, reason := explain(err)
	return &RefusedError{status, reason}
}

func openRing(cpu int, period time.Duration) (ring, error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample: uint64(period), Sample_type: unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID,
		Bits: unix.PerfBitExcludeIdle,
	}
	attr.Size = uint32(unsafe.Sizeof(attr))
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return ring{}, err
	}
	r, err := mapRing(fd, dataPages)
	if err != nil {
		return ring{}, fmt.Errorf("samples of CPU %d: %w", cpu, err)
	}
	return r, nil
}

// mapRing maps the buffer of an event. If that fails, it closes the event.
func mapRing(fd, pages int) (ring, error) {
	b, err := unix.Mmap(fd, 0, (1+pages)*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		closeFiles([]int{fd})
		return ring{}, fmt.Errorf("map a buffer (limits: RLIMIT_MEMLOCK, kernel.perf_event_mlock_kb): %w", err)
	}
	return ring{fd, b}, nil
}

func (r ring) close() {
	_ = unix.Munmap(r.bytes) // our own mapping: cannot fail
	closeFiles([]int{r.fd})
}

// Read visits the samples since the last Read, one CPU after another, and returns how many were lost because the
// buffers were full. An error in one CPU's buffer costs only what is in that buffer.
func (s *Sampler) Read(visit func(Sample)) (lost uint64, err error) {
	var errs []error
	for _, r := range s.rings {
		s.buf = r.take(s.buf[:0])
		n, err := parseSamples(s.buf, visit)
		lost += n
		if err != nil {
			errs = append(errs, err)
		}
	}
	return lost, errors.Join(errs...)
}

// take appends the contents of the buffer to dst, and frees the buffer. It follows the protocol of struct
// perf_event_mmap_page (include/uapi/linux/perf_event.h): only the kernel moves the head, and only the reader the
// tail.
func (r ring) take(dst []byte) []byte {
	page := (*unix.PerfEventMmapPage)(unsafe.Pointer(&r.bytes[0]))
	data := r.bytes[os.Getpagesize():]
	size := uint64(len(data))
	head, tail := atomic.LoadUint64(&page.Data_head), page.Data_tail
	from, to := tail%size, head%size
	switch {
	case head == tail:
	case from < to:
		dst = append(dst, data[from:to]...)
	default:
		dst = append(append(dst, data[from:]...), data[:to]...)
	}
	atomic.StoreUint64(&page.Data_tail, head)
	return dst
}

// From perf_event.h: the header of a record is its type (4 bytes), misc and size (2 each).
const (
	recordHeader = 8
	sampleSize   = recordHeader + 8 + 4 + 4 // PERF_SAMPLE_IP, then pid and tid of PERF_SAMPLE_TID
	lostSize     = recordHeader + 8 + 8     // the event's id and the number of records
	modeMask     = unix.PERF_RECORD_MISC_CPUMODE_MASK
	modeUser     = unix.PERF_RECORD_MISC_USER
)

// parseSamples reads whole records. It skips records of other types than requested, such as throttling.
func parseSamples(b []byte, visit func(Sample)) (lost uint64, err error) {
	for len(b) > 0 {
		typ, size, err := firstRecord(b)
		if err != nil {
			return lost, err
		}
		need := map[uint32]int{unix.PERF_RECORD_SAMPLE: sampleSize, unix.PERF_RECORD_LOST: lostSize}[typ]
		if size < need {
			return lost, fmt.Errorf("samples of perf: a record of type %d has %d bytes", typ, size)
		}
		switch typ {
		case unix.PERF_RECORD_SAMPLE:
			visit(Sample{
				IP:   binary.NativeEndian.Uint64(b[8:]),
				User: binary.NativeEndian.Uint16(b[4:])&modeMask == modeUser,
				PID:  int(int32(binary.NativeEndian.Uint32(b[16:]))),
				TID:  int(int32(binary.NativeEndian.Uint32(b[20:]))),
			})
		case unix.PERF_RECORD_LOST:
			lost += binary.NativeEndian.Uint64(b[16:])
		}
		b = b[size:]
	}
	return lost, nil
}

// firstRecord returns the type and size of the first record. It makes sure that the record is complete and has at
// least a header.
func firstRecord(b []byte) (typ uint32, size int, err error) {
	if len(b) < recordHeader {
		return 0, 0, fmt.Errorf("samples of perf: %d bytes are no record", len(b))
	}
	typ, size = binary.NativeEndian.Uint32(b), int(binary.NativeEndian.Uint16(b[6:]))
	if size < recordHeader || size > len(b) {
		return 0, 0, fmt.Errorf("samples of perf: a record of type %d has %d bytes of %d", typ, size, len(b))
	}
	return typ, size, nil
}

// Close ends the sampling.
func (s *Sampler) Close() {
	for _, r := range s.rings {
		r.close()
	}
	s.rings = nil
}
