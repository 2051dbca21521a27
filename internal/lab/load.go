package lab

import (
	"context"
	"fmt"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/lab/load"
)

const (
	// maxDuration bounds every load, so that a load that nobody stops ends within a test binary's own limit.
	maxDuration = 10 * time.Minute
	// defaultClientTime and defaultServerTime apply when Duration is 0. A server outlasts its clients: in an emulated
	// guest on a busy machine 1,200 connections take minutes.
	defaultClientTime = 10 * time.Second
	defaultServerTime = maxDuration
	// requestBytes is the size of a request and of its echo, as package load has it.
	requestBytes = 64
	// errorPause keeps a client whose connects fail at once from using a whole CPU.
	errorPause = time.Millisecond
)

// ClientOptions say which connections a client makes, in the terms of most tests and scenarios. Package load makes
// them. It sends 64-byte requests and reads their echo. A unit is a request, or a connection without any.
type ClientOptions struct {
	Count       int           // connections in all, or requests with KeepAlive; 0: until Duration has passed
	Concurrency int           // connections at a time; 0: 1
	Rate        float64       // connections due a second, or requests with KeepAlive; 0: as fast as possible
	Duration    time.Duration // 0: as long as Count takes, else 10 s; at most 10 min
	Timeout     time.Duration // of connect and of each answer; 0: 5 s
	Requests    int           // on each connection
	KeepAlive   bool          // each worker uses one connection for all its requests
	CloseFirst  bool          // the client closes first; otherwise it waits for the server to close
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

// Stats returns what the load has done so far.
func (l *Load) Stats() Stats { return l.rec.snapshot() }

// Wait waits until the load ends by its own bounds.
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

// limited returns d within the bounds, or fallback for 0.
func limited(d, fallback time.Duration) time.Duration {
	if d <= 0 {
		d = fallback
	}
	return min(d, maxDuration)
}

// fallback returns the client's time limit without a Duration. A client with a Count may take as long as it needs: in
// an emulated guest on a busy machine, 1000 connections may take a minute.
func (o ClientOptions) fallback() time.Duration {
	if o.Count > 0 && !o.HoldOpen {
		return maxDuration
	}
	return defaultClientTime
}

// plan returns the client's load.
func (o ClientOptions) plan(addr string, limit time.Duration) load.Plan {
	p := load.Plan{
		Target: addr, Protocol: load.TCP, Connections: max(o.Concurrency, 1), Count: uint64(max(o.Count, 0)),
		Duration: limit,
		Timeout:  min(o.Timeout, maxDuration), BindIP: o.BindIP, BindNoPort: o.BindNoPort, Close: load.ServerCloses,
	}
	perUnit := 1
	switch {
	case o.KeepAlive:
	case o.Requests == 0:
		p.Protocol = load.Connect
	default:
		p.RequestsPerConn, perUnit = o.Requests, o.Requests
	}
	p.Count *= uint64(perUnit)
	p.Rate = o.Rate * float64(perUnit)
	switch {
	case o.HoldOpen:
		p.Close = load.ClientKeeps
	case o.CloseFirst, o.KeepAlive:
		p.Close = load.ClientCloses
	}
	return p
}

// Connect starts a client of addr (ip:port) with its sockets in the host. For a client that must be fast, or whose
// sockets another process must own, see [Host.StartClient].
func (h *Host) Connect(addr string, o ClientOptions) (*Load, error) {
	plan := o.plan(addr, limited(o.Duration, o.fallback()))
	rec := newRecorder()
	run, err := newLoad(&plan, h.Socket, rec)
	if err != nil {
		return nil, fmt.Errorf("host %s: client: %w", h.name, err)
	}
	return h.begin(maxDuration, rec, run)
}

// ServeOptions say how a server treats its connections, in the terms of most tests and scenarios. Package load makes
// the server. By default it echoes 64-byte requests until the client closes. A unit is a request answered.
type ServeOptions struct {
	Backlog     int           // for listen; 0: 4096. The kernel queues one more
	AcceptRate  float64       // connections accepted a second; 0: as fast as possible
	NeverAccept bool          // leave every connection in the queue
	CloseFirst  bool          // close after Requests answers, before the client does
	Requests    int           // with CloseFirst: answers on each connection; 0: close at once
	Delay       time.Duration // before each answer
	HoldOpen    bool          // never read nor close a connection before the end
	Duration    time.Duration // 0: 1 min; at most 10 min
}

func (o ServeOptions) plan(addr string, limit time.Duration) load.ServerPlan {
	p := load.ServerPlan{
		Listen: addr, Protocol: load.TCP, Backlog: o.Backlog, AcceptRate: o.AcceptRate, NeverAccept: o.NeverAccept,
		ServiceTime: o.Delay,
		HoldOpen:    o.HoldOpen, Duration: limit,
	}
	switch {
	case o.CloseFirst && o.Requests == 0:
		p.Protocol = load.Connect
	case o.CloseFirst:
		p.RequestsPerConn = o.Requests
	}
	return p
}

// Listen starts a server on addr (ip:port, port 0 for any) in the host. It is listening when the call returns. Its
// address is in Stats.
func (h *Host) Listen(addr string, o ServeOptions) (*Load, error) {
	plan := o.plan(addr, limited(o.Duration, defaultServerTime))
	rec := newRecorder()
	run, err := newAnswer(&plan, h.Socket, rec)
	if err != nil {
		return nil, fmt.Errorf("host %s: server: %w", h.name, err)
	}
	return h.begin(maxDuration, rec, run)
}
