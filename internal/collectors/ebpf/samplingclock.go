package ebpf

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// A clock of one period beats with programs that do the same again and again: a server that answered eight requests in
// each 0.45 ms had 7 and 17 % of its samples in one method, in two windows of one run. So the period changes after
// each periodLasts, to a random one within periodSpread of the mean: that moves samples by 1 ms, as long as the
// requests of a busy server and the ticks of a kernel of 1000 Hz. Each change takes 3 µs on every CPU.
const (
	periodLasts  = 250 * time.Millisecond
	periodSpread = 0.1
)

// meanPeriod is the period of sampleRate.
const meanPeriod = time.Second / sampleRate

// samplingClock runs a program at each tick of a clock per CPU, which does not tick for the idle task.
type samplingClock struct {
	events []int // descriptors, one for each CPU

	mu      sync.Mutex
	timer   *time.Timer // to the next change; nil when stopped
	failed  error
	began   time.Time
	since   time.Time // of the last change
	period  time.Duration
	samples float64 // until then, of a CPU that is always busy
}

// startSampling attaches a program to the clocks of the CPUs. It attaches the program as was done before bpf_link,
// which these events have only since Linux 5.15.
func startSampling(cpus []int, program int) (*samplingClock, error) {
	now := time.Now()
	c := &samplingClock{began: now, since: now, period: meanPeriod}
	for _, cpu := range cpus {
		fd, err := openClock(cpu, program)
		if errors.Is(err, unix.ENODEV) {
			continue // it went offline meanwhile
		}
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.events = append(c.events, fd)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(periodLasts, c.change)
	return c, nil
}

// openClock starts the clock of one CPU.
func openClock(cpu, program int) (int, error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample: uint64(meanPeriod), Bits: unix.PerfBitExcludeIdle | unix.PerfBitDisabled,
	}
	attr.Size = uint32(unsafe.Sizeof(attr))
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return 0, perfUnavailable(cpu, err)
	}
	err = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, program)
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0)
	}
	if err != nil {
		return 0, errors.Join(fmt.Errorf("attach the program to the clock of CPU %d: %w", cpu, err), unix.Close(fd))
	}
	return fd, nil
}

func perfUnavailable(cpu int, err error) error {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return collect.Unavailable(recording.StatusDenied,
			"run perfdoctor as root; in a container, allow perf_event_open in the seccomp profile",
			"perf_event_open of CPU %d: %v", cpu,
			err)
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
		return collect.Unavailable(recording.StatusUnsupported, "a kernel with CONFIG_PERF_EVENTS",
			"perf_event_open of CPU %d: %v", cpu, err)
	case errors.Is(err, unix.EMFILE):
		return collect.Unavailable(recording.StatusDenied, "raise ulimit -n", "perf_event_open of CPU %d: %v", cpu, err)
	}
	return fmt.Errorf("perf_event_open of CPU %d: %w", cpu, err)
}

// change sets another period on all clocks.
func (c *samplingClock) change() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer == nil {
		return
	}
	next := time.Duration(float64(meanPeriod) * (1 + periodSpread*(2*rand.Float64()-1)))
	for _, fd := range c.events {
		if err := setPeriod(fd, next); err != nil {
			c.failed = err
			return
		}
	}
	c.count(time.Now())
	c.samples -= halfInterval
	c.period = next
	c.timer.Reset(periodLasts)
}

// halfInterval is what a change costs in samples: the interval that is under way begins anew (__perf_event_period in
// kernel/events/core.c clears period_left), and half of one has passed on average.
const halfInterval = 0.5

// setPeriod makes the clock tick at another rate. The kernel reads the period from memory, not from the argument.
func setPeriod(fd int, period time.Duration) error {
	ns := uint64(period)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PERF_EVENT_IOC_PERIOD, uintptr(unsafe.Pointer(&ns)))
	if errno != 0 {
		return fmt.Errorf("change the period of a sampling clock: %w", errno)
	}
	return nil
}

// count adds the samples since the last change.
func (c *samplingClock) count(now time.Time) {
	c.samples += now.Sub(c.since).Seconds() / c.period.Seconds()
	c.since = now
}

// stop ends the sampling, and returns the time that a sample stands for.
func (c *samplingClock) stop() (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
	for _, fd := range c.events {
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_DISABLE, 0); err != nil {
			return 0, fmt.Errorf("stop the sampling clock: %w", err)
		}
	}
	if c.failed != nil {
		return 0, c.failed
	}
	now := time.Now()
	c.count(now)
	if c.samples < 1 {
		return meanPeriod, nil
	}
	return time.Duration(float64(now.Sub(c.began)) / c.samples), nil
}

// end stops further changes of the period.
func (c *samplingClock) end() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// close ends the clocks. On nil it does nothing.
func (c *samplingClock) close() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
	var errs []error
	for _, fd := range c.events {
		errs = append(errs, unix.Close(fd))
	}
	c.events = nil
	return errors.Join(errs...)
}
