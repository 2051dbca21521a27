// Package collect runs collectors side by side for a bounded time and gathers what they measure into one recording.
//
// Only collectors touch the host. Each has its own time limit for a sample, its own status, and a share of time that
// it may not exceed; a collector that hangs or fails costs its own metrics and nothing else.
package collect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// A Collector reads one part of the host.
type Collector struct {
	Name     string            // kebab-case
	Doc      string            // one sentence
	Overhead string            // what one sample costs, measured
	Provides []metric.Metric   //
	Requires []host.Capability // what it requires; Sample reports what is merely better with one
	Since    Floor             // the oldest kernel it works on, if there are older ones
	Pace     Pace              //
	// Grace is how much later than the window the collector may end: for its last sample, or to undo an Open that was
	// still running at the end of the window. It is for a collector that leaves something in the target which it must
	// remove; the others end as soon as without it, and the measurements cover the same time. 0 means the same limit
	// as for all collectors. A run gives no collector more than is left of [afterWindow].
	Grace time.Duration
	// Share is the share of one CPU's time that samples may take, if less than what dutyShare leaves; 0 for no limit.
	Share float64
	// Deep says that it is one of the probes that cost the host more, and that are given up first.
	Deep bool
	Open func(context.Context, Env) (Source, error)
}

// A Floor is the oldest Linux that has what a collector needs. It forbids nothing, because vendors backport features
// to older kernels; it only explains what does not work on an older kernel.
type Floor struct {
	Release string // "5.9"; "" for every Linux that perfdoctor runs on
	Brought string // what came with it: "the BPF helper bpf_skc_to_tcp_sock"
}

// Explain prefixes an error on opening with the kernel's age, if the kernel is older than the floor.
func (f Floor) Explain(h *host.Host, err error) error {
	if err == nil || f.Release == "" {
		return err
	}
	running, readErr := h.KernelRelease()
	if readErr != nil {
		return err
	}
	if old, parseErr := host.ReleaseBefore(running, f.Release); parseErr != nil || !old {
		return err
	}
	return Unavailable(recording.StatusUnsupported, "Linux "+f.Release+" or newer",
		"Linux %s is older than %s, which brought %s: %v", running, f.Release, f.Brought, err)
}

// Env is what a collector is opened for. It does not change while collectors run.
type Env struct {
	Host     *host.Host
	Target   host.Target
	Deep     bool          // the user allows probes that cost the host more
	Duration time.Duration // requested length of the window; Run fills it in

	worker *worker // that opens a collector with it; nil if something else does
}

// A Source is an opened collector.
type Source interface {
	// Sample appends one sample. It must return soon after the context is done.
	Sample(context.Context, *recording.Appender) error
	Close() error
}

// SourceFunc is a source without state to close: what it reads is opened, read and closed in each sample.
type SourceFunc func(context.Context, *recording.Appender) error

// Sample appends one sample.
func (f SourceFunc) Sample(ctx context.Context, a *recording.Appender) error { return f(ctx, a) }

// Close does nothing.
func (f SourceFunc) Close() error { return nil }

// A Pace is how often a collector samples.
type Pace int

// The paces.
const (
	EveryTick    Pace = iota // once an interval
	FirstAndLast             // counters that are costly to read and needed only as an increase over the window
	Once                     // facts that do not change
	AtEnd                    // what was gathered since Open, read once at the end of the window
)

// An UnavailableError says that a collector cannot work here: why, and what would change that.
type UnavailableError struct {
	Status         recording.Status
	Reason, Remedy string
}

// Error returns the reason.
func (e *UnavailableError) Error() string { return e.Reason }

// Unavailable returns an [UnavailableError].
func Unavailable(status recording.Status, remedy, reason string, args ...any) error {
	return &UnavailableError{Status: status, Reason: fmt.Sprintf(reason, args...), Remedy: remedy}
}

// Classify sorts an error: unsupported by the kernel, denied to this user, late, or broken.
func Classify(err error) (st recording.Status, reason, remedy string) {
	var u *UnavailableError
	switch {
	case errors.As(err, &u):
		return u.Status, u.Reason, u.Remedy
	case errors.Is(err, host.ErrPermission), errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EPERM),
		errors.Is(err, unix.EACCES):
		return recording.StatusDenied, err.Error(), "run perfdoctor as root"
	case errors.Is(err, fs.ErrNotExist):
		return recording.StatusUnsupported, err.Error() + ": this kernel or its configuration does not have it", ""
	case late(err):
		return recording.StatusTimeout, err.Error(), "a longer --interval leaves a collector more time"
	}
	return recording.StatusFailed, err.Error(), ""
}

// late reports whether err is a timeout: of a context, or of a file or socket with a deadline.
func late(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// Wanted returns the collectors that provide any of the metrics, in their order.
func Wanted(all []Collector, metrics map[string]bool) []Collector {
	var out []Collector
	for _, c := range all {
		for _, m := range c.Provides {
			if metrics[m.Describe().Name] {
				out = append(out, c)
				break
			}
		}
	}
	return out
}

// dutyShare is the share of wall time one collector may spend sampling; after a sample that took d the next one starts
// d / dutyShare later at the earliest. It keeps a host with a million sockets from paying for its diagnosis.
const dutyShare = 0.1

// leeway is for how long a collector may use its [Collector.Share] in advance: a first sample looks names up, and a
// sample on a cold cache takes twice the time. Without leeway one expensive sample in ten cost a window of five
// seconds the next sample.
const leeway = 5 * time.Second

// openGrace is how long the first sample waits for collectors that are slow to open: healthy ones take a few
// milliseconds, and what is not seen before the first sample is lost to the user. A late collector is sampled as soon
// as it is open.
const openGrace = 100 * time.Millisecond

// afterWindow is how long after its window a run waits for targets and names at most, minus the time the process took
// to start ([Options.Asked]). A run must end within five seconds after its window (docs/security.md); the rest is for
// what follows: to check, print, save, and have the kernel remove its programs. leastGrace is what a collector gets
// in any case, to name functions or to remove what it left in the target.
const (
	afterWindow = 2500 * time.Millisecond
	leastGrace  = 1500 * time.Millisecond
)

// lastLimit is how long the last samples may take, except for a collector with more [Collector.Grace]. closeGrace is
// how long the end of the run waits after that for samples that notice their deadline. Together they end a run within
// half a second of its duration, or of the longest grace, whatever hangs.
const (
	lastLimit  = 300 * time.Millisecond
	closeGrace = 100 * time.Millisecond
)
