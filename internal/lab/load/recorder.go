package load

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// recorder gathers a Result from many goroutines. It keeps the current second apart, so that the second has its own
// quantiles, and adds it to the total when it ends.
type recorder struct {
	mu     sync.Mutex
	start  time.Time
	usage  unix.Rusage // at the start
	total  Result
	now    Second
	nowLat Histogram
}

func newRecorder() (*recorder, error) {
	r := &recorder{start: time.Now()}
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r.usage); err != nil {
		return nil, fmt.Errorf("getrusage: %w", err)
	}
	r.total.Start = r.start
	return r, nil
}

// lock takes the mutex, and ends the seconds that are over at t.
func (r *recorder) lock(t time.Time) {
	r.mu.Lock()
	for t.Sub(r.start) >= time.Duration(len(r.total.Seconds)+1)*time.Second {
		r.endSecond(time.Duration(len(r.total.Seconds)+1) * time.Second)
	}
}

func (r *recorder) endSecond(at time.Duration) {
	r.now.At = at
	r.now.For = at - time.Duration(len(r.total.Seconds))*time.Second
	r.now.P50, r.now.P99, r.now.Max = r.nowLat.Quantile(0.5), r.nowLat.Quantile(0.99), r.nowLat.Max()
	r.total.Seconds = append(r.total.Seconds, r.now)
	r.total.Requests += r.now.Requests
	r.total.Conns += r.now.Conns
	r.total.Errors = mergeErrors(r.total.Errors, r.now.Errors)
	r.total.Latency.Merge(r.nowLat)
	r.now = Second{}
	if r.nowLat.hdr != nil {
		r.nowLat.hdr.Reset()
	}
}

// request counts an answered request.
func (r *recorder) request(due, begun time.Time, sent, received int) {
	t := time.Now()
	r.lock(t)
	defer r.mu.Unlock()
	r.now.Requests++
	r.nowLat.record(t.Sub(due))
	r.total.Wait.record(begun.Sub(due))
	r.total.BytesSent += uint64(sent)
	r.total.BytesReceived += uint64(received)
}

func (r *recorder) connected(took time.Duration, resumed bool) {
	r.lock(time.Now())
	defer r.mu.Unlock()
	r.now.Conns++
	if resumed {
		r.total.Resumed++
	}
	r.total.Connect.record(took)
}

func (r *recorder) retry() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total.Retries++
}

func (r *recorder) unfinished(n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total.Unfinished += n
}

func (r *recorder) fail(err error) {
	name := ErrorName(err)
	r.lock(time.Now())
	defer r.mu.Unlock()
	if r.now.Errors == nil {
		r.now.Errors = map[string]uint64{}
	}
	if len(r.now.Errors) >= maxErrorNames {
		name = "other"
	}
	r.now.Errors[name]++
}

// maxErrorNames is the most error names in one second: an error's text may hold an address or a number.
const maxErrorNames = 32

// seconds returns the seconds that have ended, starting with the given one.
func (r *recorder) seconds(from int) []Second {
	r.lock(time.Now())
	defer r.mu.Unlock()
	return slices.Clone(r.total.Seconds[from:])
}

// snapshot returns the result until now, with the current second as the last one.
func (r *recorder) snapshot() (Result, error) {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return Result{}, fmt.Errorf("getrusage: %w", err)
	}
	t := time.Now()
	r.lock(t)
	defer r.mu.Unlock()
	copied := &recorder{start: r.start, total: r.total, now: r.now, nowLat: r.nowLat.clone()}
	copied.total.Seconds = slices.Clone(r.total.Seconds)
	copied.total.Errors = maps.Clone(r.total.Errors)
	copied.total.Latency = r.total.Latency.clone()
	copied.total.Connect = r.total.Connect.clone()
	copied.total.Wait = r.total.Wait.clone()
	copied.now.Errors = maps.Clone(r.now.Errors)
	copied.endSecond(t.Sub(r.start))
	copied.total.Elapsed = t.Sub(r.start)
	copied.total.CPUUser = time.Duration(usage.Utime.Nano() - r.usage.Utime.Nano())
	copied.total.CPUSystem = time.Duration(usage.Stime.Nano() - r.usage.Stime.Nano())
	return copied.total, nil
}

// statusError is an HTTP answer whose status is an error.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("HTTP %d", int(e)) }

// ErrorName returns the errno's name. A deadline set by this package counts as ETIMEDOUT, like a timeout of the
// kernel.
func ErrorName(err error) string {
	var errno syscall.Errno
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "ETIMEDOUT"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "EOF"
	default:
		return err.Error()
	}
}
