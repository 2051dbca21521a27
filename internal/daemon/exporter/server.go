package exporter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/prometheus/exporter-toolkit/web"
	"golang.org/x/net/netutil"
)

// Times of the server. A scrape takes milliseconds; a peer that sends its request or takes its answer more slowly
// than this holds a connection for nothing. A recording has megabytes and takes a while on a slow line.
const (
	headerTime   = 10 * time.Second
	answerTime   = 5 * time.Minute
	idleTime     = 2 * time.Minute // Prometheus scrapes each minute at the latest, and keeps its connection
	shutdownTime = 3 * time.Second
	requestTime  = 15 * time.Second // for the whole request, which has no body
)

// Bounds on the cost of idle peers: 1,000 connections take some 20 MB, and a request of Prometheus has 500 bytes of
// headers.
const (
	maxConnections = 1000
	maxHeaders     = 16 << 10
	// maxUnsent is how much of its answers the kernel buffers for a connection: one answer fits, but not megabytes
	// (tcp_wmem) for each of a thousand peers that do not read.
	maxUnsent = 128 << 10
)

// WebOptions say where the exporter listens. They mean the same as exporter-toolkit's flags of these names.
type WebOptions struct {
	ListenAddresses []string // none: port 9843, only of this host unless there are TLS and a password
	SystemdSocket   bool     // listen on the sockets from systemd, instead of ListenAddresses
	ConfigFile      string   // TLS and passwords; "" for neither
	// Private are paths that need a password, or a listener that only this host reaches.
	Private []string
}

// Validate rejects a web configuration that cannot be used.
func (o WebOptions) Validate() error {
	if o.ConfigFile == "" {
		return nil
	}
	if err := web.Validate(o.ConfigFile); err != nil {
		return fmt.Errorf("%s: %w", o.ConfigFile, err)
	}
	return nil
}

// Serve serves the handler until the context is done. If a configuration requires a password, everything but health
// needs it.
func Serve(ctx context.Context, o WebOptions, handler http.Handler, log *slog.Logger) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	listeners, err := o.listen(ctx)
	if err != nil {
		return err
	}
	servers := make([]*http.Server, len(listeners))
	failed := make(chan error, len(listeners))
	for i, l := range listeners {
		guarded := o.Guard(l, handler)
		s := &http.Server{
			Handler: guarded, MaxHeaderBytes: maxHeaders,
			ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
		}
		servers[i] = s
		l = netutil.LimitListener(boundedListener{l}, maxConnections)
		go func() {
			flags := &web.FlagConfig{WebConfigFile: &o.ConfigFile}
			failed <- web.Serve(&healthListener{Listener: l, server: s, inner: guarded}, s, flags, log)
		}()
	}
	select {
	case <-ctx.Done():
		err = nil
	case err = <-failed:
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	for _, s := range servers {
		err = errors.Join(err, unlessLate(s.Shutdown(last)))
	}
	return err
}

// unlessLate drops the error about a peer that was still taking an answer: the process ends anyway.
func unlessLate(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

func (o WebOptions) listen(ctx context.Context) ([]net.Listener, error) {
	if o.SystemdSocket {
		listeners, err := activation.Listeners()
		if err == nil && len(listeners) == 0 {
			err = errors.New("systemd handed over no socket: start it by a socket unit, or without " +
				"--web.systemd-socket")
		}
		return listeners, err
	}
	var listeners []net.Listener
	for _, address := range o.ListenAddresses {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			for _, l := range listeners {
				_ = l.Close() // the other error is the one to fix
			}
			return nil, fmt.Errorf("listen: %w", err)
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

// boundedListener bounds what the kernel buffers for a peer.
type boundedListener struct{ net.Listener }

// Accept waits for a connection.
func (l boundedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(maxUnsent) // it fails if the peer is gone; the first read then finds out
	}
	return c, err
}

// healthListener serves health without a password. exporter-toolkit wraps the handler of the whole server when that
// begins to serve, and has no exceptions. So this listener wraps the wrapped handler once more when the server
// accepts its first connection, before there is a request.
type healthListener struct {
	net.Listener
	server *http.Server
	inner  http.Handler
	once   sync.Once
}

// Accept waits for a connection.
func (l *healthListener) Accept() (net.Conn, error) {
	l.once.Do(func() {
		guarded := l.server.Handler
		l.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == healthyPath || r.URL.Path == readyPath {
				l.inner.ServeHTTP(w, r)
				return
			}
			guarded.ServeHTTP(w, r)
		})
	})
	return l.Listener.Accept()
}
