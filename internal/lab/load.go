package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxDuration bounds every load, so that one which nobody stops ends within a test binary's own limit.
	maxDuration = 10 * time.Minute
	// defaultClientTime and defaultServerTime apply when Duration is 0: a server outlasts its clients.
	defaultClientTime = 10 * time.Second
	defaultServerTime = time.Minute
	// defaultTimeout lets the first two SYN retransmissions (after 1 and 3 s) succeed.
	defaultTimeout = 5 * time.Second
	// requestBytes is the size of a request and of its echo: small, as the cost of a connection is to dominate.
	requestBytes = 64
	// errorPause keeps a client whose connects fail at once from using a CPU for it alone.
	errorPause = time.Millisecond
)

// ClientOptions say what connections a client makes. It sends 64-byte requests and reads their echo. A unit is a
// connection with all its requests, or one request with KeepAlive.
type ClientOptions struct {
	Count       int           // units in all; 0: until Duration has passed
	Concurrency int           // units at a time; 0: 1
	Rate        float64       // units due a second; 0: as fast as possible
	Duration    time.Duration // 0: 10 s; at most 10 min
	Timeout     time.Duration // of connect and of each answer; 0: 5 s
	Requests    int           // on each connection
	KeepAlive   bool          // one connection a worker, for all its requests
	CloseFirst  bool          // the client closes first, else it waits for the server to close
	HoldOpen    bool          // keeps each connection open, and unread, until the end
	BindIP      string        // source address, bound before connect; "": the kernel chooses
	BindNoPort  bool          // with BindIP: set IP_BIND_ADDRESS_NO_PORT
}

// Load is a client or server that runs in this process, with its sockets in a host.
type Load struct {
	rec    *recorder
	cancel context.CancelFunc
	done   chan struct{}
}

// Stats is what the load has done so far.
func (l *Load) Stats() Stats { return l.rec.snapshot() }

// Wait waits until the load has ended by its own bounds.
func (l *Load) Wait() Stats {
	<-l.done
	return l.rec.snapshot()
}

// Stop ends the load, and closes its sockets.
func (l *Load) Stop() Stats {
	l.cancel()
	return l.Wait()
}

// begin runs a load on goroutines of this process.
func (h *Host) begin(limit time.Duration, rec *recorder, run func(context.Context)) (*Load, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	l := &Load{rec: rec, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		defer cancel()
		run(ctx)
		rec.finish()
	}()
	return l, h.lab.onClose(func() error {
		l.Stop()
		return nil
	})
}

// limited is d within the bounds, and fallback for 0.
func limited(d, fallback time.Duration) time.Duration {
	if d <= 0 {
		d = fallback
	}
	return min(d, maxDuration)
}

// Connect starts a client of addr (ip:port) with its sockets in the host. For a client whose sockets another process
// owns, or which must be fast, see [Host.StartClient].
func (h *Host) Connect(addr string, o ClientOptions) (*Load, error) {
	c, err := newClient(h.socket, addr, o, newRecorder())
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", h.name, err)
	}
	return h.begin(limited(o.Duration, defaultClientTime), c.rec, c.run)
}

type client struct {
	ClientOptions
	open    socketFunc
	to      netip.AddrPort
	from    bindTo
	rec     *recorder
	start   time.Time
	tickets atomic.Int64

	mu   sync.Mutex
	held []*os.File
}

func newClient(open socketFunc, addr string, o ClientOptions, rec *recorder) (*client, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	c := &client{ClientOptions: o, open: open, to: to, rec: rec, start: time.Now()}
	if o.BindIP != "" {
		ip, err := netip.ParseAddr(o.BindIP)
		if err != nil {
			return nil, fmt.Errorf("client: source address: %w", err)
		}
		c.from = bindTo{ip: ip, noPort: o.BindNoPort}
	}
	c.Timeout = limited(o.Timeout, defaultTimeout)
	c.Concurrency = max(o.Concurrency, 1)
	return c, nil
}

func (c *client) run(ctx context.Context) {
	c.rec.ready("")
	var workers sync.WaitGroup
	for range c.Concurrency {
		workers.Go(func() { c.work(ctx) })
	}
	workers.Wait()
	if len(c.held) > 0 {
		<-ctx.Done()
	}
	for _, conn := range c.held {
		_ = conn.Close()
	}
}

// work takes units until they or the time are used up.
func (c *client) work(ctx context.Context) {
	var kept *os.File
	defer func() {
		if kept != nil {
			_ = kept.Close()
		}
	}()
	for {
		due, ok := c.next(ctx)
		if !ok {
			return
		}
		var err error
		if c.KeepAlive {
			kept, err = c.requestOn(ctx, kept)
		} else {
			err = c.connection(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			c.rec.unit(due)
			continue
		}
		c.rec.fail(err)
		wait(ctx, errorPause)
	}
}

// next waits for the time of the next unit.
func (c *client) next(ctx context.Context) (due time.Time, ok bool) {
	n := c.tickets.Add(1)
	if c.Count > 0 && n > int64(c.Count) || ctx.Err() != nil {
		return time.Time{}, false
	}
	if c.Rate <= 0 {
		return time.Now(), true
	}
	due = c.start.Add(time.Duration(float64(n-1) / c.Rate * float64(time.Second)))
	return due, wait(ctx, time.Until(due))
}

// wait sleeps unless ctx ends before.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// connection makes one connection with its requests.
func (c *client) connection(ctx context.Context) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	if c.HoldOpen {
		c.mu.Lock()
		c.held = append(c.held, conn)
		c.mu.Unlock()
		return c.requests(ctx, conn)
	}
	err = c.requests(ctx, conn)
	if err == nil && !c.CloseFirst {
		err = awaitClose(ctx, conn, c.Timeout)
	}
	return errors.Join(err, conn.Close())
}

func (c *client) dial(ctx context.Context) (*os.File, error) {
	conn, err := dial(ctx, c.open, c.to, c.from, c.Timeout)
	if err == nil {
		c.rec.conn()
	}
	return conn, err
}

func (c *client) requests(ctx context.Context, conn *os.File) error {
	for range c.Requests {
		if err := roundTrip(ctx, conn, c.Timeout); err != nil {
			return err
		}
	}
	return nil
}

// requestOn sends a request on the kept connection, making it first when there is none.
func (c *client) requestOn(ctx context.Context, conn *os.File) (*os.File, error) {
	if conn == nil {
		var err error
		if conn, err = c.dial(ctx); err != nil {
			return nil, err
		}
	}
	if err := roundTrip(ctx, conn, c.Timeout); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// within gives conn a deadline, and ends its wait when ctx ends.
func within(ctx context.Context, conn *os.File, timeout time.Duration, fn func() error) error {
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	return fn()
}

func roundTrip(ctx context.Context, conn *os.File, timeout time.Duration) error {
	return within(ctx, conn, timeout, func() error {
		var buf [requestBytes]byte
		if _, err := conn.Write(buf[:]); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, buf[:])
		return err
	})
}

// awaitClose reads until the server has closed.
func awaitClose(ctx context.Context, conn *os.File, timeout time.Duration) error {
	return within(ctx, conn, timeout, func() error {
		_, err := io.Copy(io.Discard, conn)
		return err
	})
}
