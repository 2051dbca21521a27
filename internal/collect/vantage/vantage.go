// Package vantage measures round trips to a destination from a place other than the diagnosed host, and adds them to
// that host's recording. One host cannot show where on a path packets wait; several can.
package vantage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host/clock"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// Names returns the places that the checks distinguish: the diagnosed host, an unloaded host behind the same egress,
// and a host outside of it.
func Names() []string {
	return []string{metric.VantageHere, metric.VantageNeighbour, metric.VantageOutside}
}

// Bounds on the load for a destination: each measurement is a handshake.
const (
	MinInterval = 50 * time.Millisecond
	MaxDuration = time.Hour
	// timeout is the timeout of a first SYN, after which the kernel sends another (TCP_TIMEOUT_INIT in
	// include/net/tcp.h): anything longer is not a round trip.
	timeout = time.Second
)

// A Plan says what to measure.
type Plan struct {
	Name               string         // one of [Names]
	Destination        netip.AddrPort // something must listen there
	Duration, Interval time.Duration
	Version            string // of perfdoctor, for the recording
}

// ErrPlan is wrapped by errors about a plan.
var ErrPlan = errors.New("cannot ping so")

// Check says what is wrong with the plan.
func (p Plan) Check() error {
	switch {
	case !slices.Contains(Names(), p.Name):
		return fmt.Errorf("%w: as %q: want %s", ErrPlan, p.Name, strings.Join(Names(), ", "))
	case !p.Destination.IsValid() || p.Destination.Port() == 0:
		return fmt.Errorf("%w: destination %v: want an address with a port", ErrPlan, p.Destination)
	case p.Interval < MinInterval:
		return fmt.Errorf("%w: an interval of %v: give at least %v, each is a connection", ErrPlan, p.Interval,
			MinInterval)
	case p.Duration < p.Interval || p.Duration > MaxDuration:
		return fmt.Errorf("%w: a duration of %v: give at least the interval, %v, and at most %v", ErrPlan, p.Duration,
			p.Interval,
			MaxDuration)
	}
	return nil
}

// Ping opens and closes one connection after the other, from the calling thread's network namespace, and records the
// round trip of each handshake as the kernel measured it (tcpi_rtt): a busy host does not lengthen it. It counts
// handshakes without an answer within a second. It ends early with ctx, and returns an error if the destination
// refuses.
func (p Plan) Ping(ctx context.Context) (*recording.Recording, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	b, began := recording.NewBuilder(), time.Now()
	destination := p.Destination.String()
	sent, unanswered := 0, 0
	for ctx.Err() == nil && time.Since(began) < p.Duration {
		a := b.Appender()
		rtt, err := roundTrip(ctx, destination)
		switch {
		case errors.Is(err, unix.ECONNREFUSED):
			return nil, fmt.Errorf("ping %s: nobody listens there: give a port that somebody listens on: %w",
				destination, err)
		case err == nil:
			a.Gauge(metric.VantageRTT, rtt.Seconds(), p.Name, destination)
		case ctx.Err() != nil:
			continue
		default:
			unanswered++
		}
		sent++
		a.Counter(metric.VantagePings, float64(sent), p.Name, destination)
		a.Counter(metric.VantageUnanswered, float64(unanswered), p.Name, destination)
		a.Commit()
		_ = clock.Sleep(ctx, time.Until(began.Add(time.Duration(sent)*p.Interval)))
	}
	return b.Done(p.meta(began, time.Since(began), sent)), nil
}

// meta returns the Meta of a recording with one collector.
func (p Plan) meta(began time.Time, took time.Duration, sent int) recording.Meta {
	return recording.Meta{
		Schema: recording.SchemaVersion, Version: p.Version, Started: began.UTC(), Duration: took.Seconds(),
		Interval: p.Interval.Seconds(),
		Asked:    p.Duration.Seconds(), Target: recording.Target{Kind: "host"},
		Collectors: []recording.CollectorStatus{{
			Name: "ping", Status: recording.StatusOK, Samples: sent, Metrics: []string{
				metric.VantageRTT.Describe().Name, metric.VantagePings.Describe().Name,
				metric.VantageUnanswered.Describe().Name,
			},
		}},
	}
}

// roundTrip returns the round trip of one handshake. The calling goroutine dials a literal address on its own thread.
func roundTrip(ctx context.Context, destination string) (time.Duration, error) {
	d := net.Dialer{Timeout: timeout}
	conn, err := d.DialContext(ctx, "tcp", destination)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }() // nothing was sent
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	return handshake(raw)
}

func handshake(raw syscall.RawConn) (time.Duration, error) {
	var info *unix.TCPInfo
	var asked error
	err := raw.Control(func(fd uintptr) {
		info, asked = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP,
			unix.TCP_INFO)
	})
	if err := errors.Join(err, asked); err != nil {
		return 0, err
	}
	return time.Duration(info.Rtt) * time.Microsecond, nil
}

// ErrApart is wrapped if recordings were not made at the same time.
var ErrApart = errors.New("not recorded at the same time")

// Add returns the recording of a diagnosed host with the round trips that others measured meanwhile. It leaves out
// what they measured before and after. The hosts' clocks must agree to about a second.
func Add(rec *recording.Recording, others ...*recording.Recording) (*recording.Recording, error) {
	for _, other := range others {
		if !other.Recorded(metric.VantageRTT) && !other.Recorded(metric.VantageUnanswered) {
			return nil, fmt.Errorf("%w: it has no round trips: want one that `perfdoctor ping --save` made",
				recording.ErrFormat)
		}
		with, points := rec.With(other, metric.VantageRTT, metric.VantagePings, metric.VantageUnanswered)
		if points == 0 {
			return nil, fmt.Errorf("%w: %s was pinged from %s for %.0f s, and the diagnosis is of %s for %.0f s",
				ErrApart,
				destinations(other), other.Meta.Started.Format(time.DateTime), other.Meta.Duration,
				rec.Meta.Started.Format(time.DateTime), rec.Meta.Duration)
		}
		rec = with
	}
	return rec, nil
}

func destinations(rec *recording.Recording) string {
	var names []string
	for _, s := range rec.Counter(metric.VantagePings) {
		names = append(names, s.Label("destination"))
	}
	return strings.Join(names, ", ")
}
