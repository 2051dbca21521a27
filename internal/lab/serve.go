package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"time"
)

// defaultBacklog is net.core.somaxconn's default since 5.4 (include/linux/socket.h): no limit of the server's own.
const defaultBacklog = 4096

// ServeOptions say how a server treats its connections. By default it echoes 64-byte requests until the client closes.
// A unit is a request answered.
type ServeOptions struct {
	Backlog     int           // of listen; 0: 4096. The kernel queues one more
	AcceptRate  float64       // connections accepted a second; 0: as fast as possible
	NeverAccept bool          // leave every connection in the queue
	CloseFirst  bool          // close after Requests answers, before the client does
	Requests    int           // with CloseFirst: answers on each connection; 0: close at once
	Delay       time.Duration // before each answer
	HoldOpen    bool          // never read nor close a connection before the end
	Duration    time.Duration // 0: 1 min; at most 10 min
}

// Listen starts a server on addr (ip:port, port 0 for any) in the host. It listens when the call returns; its address
// is in Stats.
func (h *Host) Listen(addr string, o ServeOptions) (*Load, error) {
	s, err := newServer(h.socket, addr, o, newRecorder())
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", h.name, err)
	}
	return h.begin(limited(o.Duration, defaultServerTime), s.rec, s.run)
}

type server struct {
	ServeOptions
	listener *os.File
	rec      *recorder
	conns    sync.WaitGroup
}

func newServer(open socketFunc, addr string, o ServeOptions, rec *recorder) (*server, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	if o.Backlog <= 0 {
		o.Backlog = defaultBacklog
	}
	listener, bound, err := listen(open, at, o.Backlog)
	if err != nil {
		return nil, err
	}
	rec.ready(bound.String())
	return &server{ServeOptions: o, listener: listener, rec: rec}, nil
}

func (s *server) run(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = s.listener.SetDeadline(time.Unix(1, 0)) })()
	if s.NeverAccept {
		<-ctx.Done()
	}
	for n := 0; ctx.Err() == nil; n++ {
		if s.AcceptRate > 0 && !wait(ctx, time.Duration(float64(time.Second)/s.AcceptRate)) {
			break
		}
		s.acceptOne(ctx)
	}
	_ = s.listener.Close()
	s.conns.Wait()
}

func (s *server) acceptOne(ctx context.Context) {
	conn, err := accept(s.listener)
	if ctx.Err() != nil {
		if err == nil {
			_ = conn.Close()
		}
		return
	}
	if err != nil {
		s.rec.fail(err)
		wait(ctx, errorPause) // EMFILE would repeat at once
		return
	}
	s.rec.conn()
	s.conns.Go(func() {
		defer func() { _ = conn.Close() }()
		if err := s.serve(ctx, conn); err != nil && ctx.Err() == nil {
			s.rec.fail(err)
		}
	})
}

func (s *server) serve(ctx context.Context, conn *os.File) error {
	if s.HoldOpen {
		<-ctx.Done()
		return nil
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	var buf [requestBytes]byte
	for n := 0; !s.CloseFirst || n < s.Requests; n++ {
		if _, err := io.ReadFull(conn, buf[:]); err != nil {
			return endOfRequests(err)
		}
		received := time.Now()
		if !wait(ctx, s.Delay) {
			return nil
		}
		if _, err := conn.Write(buf[:]); err != nil {
			return err
		}
		s.rec.unit(received)
	}
	return nil
}

// endOfRequests: the client closing between two requests is no error.
func endOfRequests(err error) error {
	if errors.Is(err, io.EOF) { // a request cut short is io.ErrUnexpectedEOF
		return nil
	}
	return err
}
