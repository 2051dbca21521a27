package load

import (
	"bufio"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host/clock"
)

// Key is the kind of a TLS server's key. It decides what a handshake costs.
type Key string

// The keys. The self-signed certificate is made when the server starts.
const (
	NoKey      Key = ""         // plain TCP
	ECDSAKey   Key = "ecdsa"    // P-256
	RSAKey     Key = "rsa"      // 2048 bits, the usual size today: an expensive handshake
	RSA4096Key Key = "rsa-4096" // many administrators use it to be on the safe side: six times that cost
)

// ServerPlan says how a server answers. In JSON durations are nanoseconds; in YAML they are written like 1.5s.
type ServerPlan struct {
	Listen string `json:"listen" yaml:"listen"` // ip:port, port 0 for any
	// with connect, each connection is closed at once
	Protocol Protocol `json:"protocol,omitempty" yaml:"protocol,omitempty"`
	TLS      Key      `json:"tls,omitempty" yaml:"tls,omitempty"`
	// NoResume issues no session tickets, so that every TLS connection makes a full handshake.
	NoResume bool `json:"no_resume,omitempty" yaml:"no_resume,omitempty"`
	Backlog  int  `json:"backlog,omitempty" yaml:"backlog,omitempty"` // of listen; 0: 4096. The kernel queues one more

	// AcceptRate is how many connections are accepted a second; 0: all at once.
	AcceptRate float64 `json:"accept_rate,omitempty" yaml:"accept_rate,omitempty"`
	// leave every connection in the kernel's queue
	NeverAccept bool `json:"never_accept,omitempty" yaml:"never_accept,omitempty"`
	// HoldOpen neither reads nor closes a connection before the end.
	HoldOpen bool `json:"hold_open,omitempty" yaml:"hold_open,omitempty"`

	// RequestsPerConn is the number of answers after which the server closes. An HTTP server says so in the last one.
	// 0: the client closes first.
	RequestsPerConn int `json:"requests_per_conn,omitempty" yaml:"requests_per_conn,omitempty"`
	RequestBytes    int `json:"request_bytes,omitempty" yaml:"request_bytes,omitempty"` // TCP; 0: 64
	// ResponseBytes is the size of the HTTP body or of the TCP answer. For TCP, 0 means an echo.
	ResponseBytes int `json:"response_bytes,omitempty" yaml:"response_bytes,omitempty"`

	// Workers is how many connections are served at a time; others wait in the kernel's queue. 0: all.
	Workers int `json:"workers,omitempty" yaml:"workers,omitempty"`
	// Slots is how many requests are processed at a time, as by a pool behind the server; others wait in the program.
	// 0: all.
	Slots int `json:"slots,omitempty" yaml:"slots,omitempty"`
	// Upstream is a server (ip:port, of the same protocol, without TLS) that is asked before each answer, as by a
	// proxy. Each worker keeps a connection to it; without a bound of workers, each connection does.
	Upstream string `json:"upstream,omitempty" yaml:"upstream,omitempty"`

	ServiceTime time.Duration `json:"service_time,omitempty" yaml:"service_time,omitempty"` // asleep before each answer
	// on a CPU before each answer
	ServiceCPU time.Duration `json:"service_cpu,omitempty" yaml:"service_cpu,omitempty"`
	Stall      Stall         `json:"stall,omitzero" yaml:"stall,omitempty"`

	Duration time.Duration `json:"duration,omitempty" yaml:"duration,omitempty"` // 0: until stopped; at most 10 min
}

// Stall stops all answers, as a garbage collection does. Connections are still accepted.
type Stall struct {
	After time.Duration `json:"after,omitempty" yaml:"after,omitempty"` // the server's start
	For   time.Duration `json:"for,omitempty" yaml:"for,omitempty"`
	Every time.Duration `json:"every,omitempty" yaml:"every,omitempty"` // from start to start; 0: once
}

// left returns how long an answer must wait at a time after the server's start.
func (s Stall) left(at time.Duration) time.Duration {
	at -= s.After
	if at < 0 {
		return 0
	}
	if s.Every > 0 {
		at %= s.Every
	}
	return max(s.For-at, 0)
}

// ServerStats is what a server has done so far.
type ServerStats struct {
	Addr     netip.AddrPort    `json:"addr"`
	Conns    uint64            `json:"conns"`    // accepted
	Requests uint64            `json:"requests"` // answered
	Resumed  uint64            `json:"resumed"`  // TLS connections that resumed a session
	Errors   map[string]uint64 `json:"errors,omitempty"`
}

const (
	// defaultBacklog is the default of net.core.somaxconn since 5.4 (include/linux/socket.h): the server sets no
	// limit of its own.
	defaultBacklog = 4096
	// upstreamTimeout is the timeout of most proxies (nginx: proxy_read_timeout).
	upstreamTimeout = time.Minute
	maxBacklog      = 65535 // the maximum of somaxconn, a u16 until 5.4
	maxWorkers      = 1000  // more than the pools of real servers
)

// Check says what is wrong with the plan.
func (p ServerPlan) Check() error {
	var address error
	if _, err := netip.ParseAddrPort(p.Listen); err != nil {
		address = fmt.Errorf("listen %q: want ip:port: %w", p.Listen, err)
	}
	var upstream error
	if _, err := netip.ParseAddrPort(p.Upstream); err != nil && p.Upstream != "" {
		upstream = fmt.Errorf("upstream %q: want ip:port: %w", p.Upstream, err)
	}
	err := errors.Join(
		address,
		upstream,
		oneOf("protocol", p.Protocol, "", HTTP, TCP, Connect),
		oneOf("tls", p.TLS, NoKey, ECDSAKey, RSAKey, RSA4096Key),
		upTo("backlog", p.Backlog, maxBacklog),
		upTo("accept_rate", p.AcceptRate, MaxRate),
		upTo("workers", p.Workers, maxWorkers),
		upTo("slots", p.Slots, maxWorkers),
		upTo("requests_per_conn", p.RequestsPerConn, MaxCount),
		upTo("request_bytes", p.RequestBytes, MaxBytes),
		upTo("response_bytes", p.ResponseBytes, MaxBytes),
		upTo("service_time", p.ServiceTime, MaxDuration),
		upTo("service_cpu", p.ServiceCPU, MaxDuration),
		upTo("stall: after", p.Stall.After, MaxDuration),
		upTo("stall: for", p.Stall.For, MaxDuration),
		upTo("stall: every", p.Stall.Every, MaxDuration),
		upTo("duration", p.Duration, MaxDuration),
	)
	if err != nil {
		return fmt.Errorf("server plan: %w", err)
	}
	return nil
}

// Server answers the requests of a load. It listens as soon as [Listen] returns, and answers while Run runs.
type Server struct {
	plan     ServerPlan
	listener *os.File
	addr     netip.AddrPort
	tls      *tls.Config
	answer   []byte // nil: an echo
	last     []byte // the answer before the server closes
	start    time.Time
	upstream *Runner       // nil: none
	slots    chan struct{} // nil: no bound

	conns, requests, resumed atomic.Uint64
	handlers                 sync.WaitGroup

	mu     sync.Mutex
	errors map[string]uint64
}

// Listen opens the server's socket and makes its certificate.
func Listen(p ServerPlan, d Dialer) (*Server, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	addr, err := netip.ParseAddrPort(p.Listen)
	if err != nil {
		return nil, fmt.Errorf("server plan: %w", err)
	}
	if p.Protocol == "" {
		p.Protocol = HTTP
	}
	if p.RequestBytes == 0 {
		p.RequestBytes = defaultBytes
	}
	if p.Backlog == 0 {
		p.Backlog = defaultBacklog
	}
	s := &Server{plan: p, start: time.Now(), errors: map[string]uint64{}}
	if p.Slots > 0 {
		s.slots = make(chan struct{}, p.Slots)
	}
	s.answer, s.last = answers(p)
	if p.TLS != NoKey {
		if s.tls, err = tlsServer(p, addr.Addr()); err != nil {
			return nil, err
		}
	}
	if p.Upstream != "" {
		plan := Plan{
			Target: p.Upstream, Protocol: p.Protocol, RequestBytes: p.RequestBytes, Duration: MaxDuration,
			Timeout: upstreamTimeout,
		}
		if s.upstream, err = New(plan, d); err != nil {
			return nil, err
		}
	}
	s.listener, s.addr, err = listen(d, addr, p.Backlog)
	return s, err
}

func answers(p ServerPlan) (answer, last []byte) {
	if p.Protocol == TCP {
		if p.ResponseBytes == 0 {
			return nil, nil
		}
		answer = make([]byte, p.ResponseBytes)
		return answer, answer
	}
	text := func(field string) []byte {
		head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n%s\r\n",
			p.ResponseBytes, field)
		return append([]byte(head), make([]byte, p.ResponseBytes)...)
	}
	return text(""), text("Connection: close\r\n")
}

// certificateLife is longer than any run, with room for a clock that is set during the run.
const certificateLife = 24 * time.Hour

func tlsServer(p ServerPlan, ip netip.Addr) (*tls.Config, error) {
	key, err := newKey(p.TLS)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "perfdoctor load"},
		NotBefore:    time.Now().Add(-certificateLife),
		NotAfter:     time.Now().Add(certificateLife),
		IPAddresses:  []net.IP{ip.AsSlice()},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	return &tls.Config{
		Certificates:           []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}},
		SessionTicketsDisabled: p.NoResume,
	}, nil
}

func newKey(kind Key) (crypto.Signer, error) {
	switch kind {
	case RSAKey:
		return rsa.GenerateKey(rand.Reader, 2048)
	case RSA4096Key:
		return rsa.GenerateKey(rand.Reader, 4096)
	}
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

// Addr returns the address with the port that the kernel chose.
func (s *Server) Addr() netip.AddrPort { return s.addr }

// Stats returns what the server has done so far.
func (s *Server) Stats() ServerStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ServerStats{
		Addr: s.addr, Conns: s.conns.Load(), Requests: s.requests.Load(), Resumed: s.resumed.Load(),
		Errors: mergeErrors(nil, s.errors),
	}
}

// Run answers until ctx or the plan's duration ends, then closes every connection and returns what was done. It runs
// once.
func (s *Server) Run(ctx context.Context) ServerStats {
	limit := s.plan.Duration
	if limit == 0 {
		limit = MaxDuration
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = s.listener.SetDeadline(past()) })()
	switch {
	case s.plan.NeverAccept:
	case s.plan.Workers == 0:
		s.acceptAll(ctx, func(conn *os.File) {
			s.handlers.Go(func() { s.proxied(ctx, func(up *worker) { s.handle(ctx, conn, up) }) })
		})
	default:
		for range s.plan.Workers {
			s.handlers.Go(func() {
				s.proxied(ctx, func(up *worker) { s.acceptAll(ctx, func(conn *os.File) { s.handle(ctx, conn, up) }) })
			})
		}
	}
	<-ctx.Done()
	_ = s.listener.Close()
	s.handlers.Wait()
	return s.Stats()
}

// acceptAll accepts connections until ctx ends.
func (s *Server) acceptAll(ctx context.Context, take func(*os.File)) {
	for ctx.Err() == nil {
		if s.plan.AcceptRate > 0 && clock.Sleep(ctx, time.Duration(float64(time.Second)/s.plan.AcceptRate)) != nil {
			return
		}
		conn, err := accept(s.listener)
		switch {
		case err == nil:
			s.conns.Add(1)
			take(conn)
		case ctx.Err() == nil:
			s.fail(err)
			_ = clock.Sleep(ctx, errorPause) // EMFILE would repeat at once
		}
	}
}

// proxied runs fn with its own connection to the upstream, or with nil if there is no upstream.
func (s *Server) proxied(ctx context.Context, fn func(up *worker)) {
	if s.upstream == nil {
		fn(nil)
		return
	}
	up := s.upstream.newWorker(ctx)
	defer context.AfterFunc(ctx, up.cut)()
	defer up.drop()
	fn(up)
}

func (s *Server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := ErrorName(err)
	if len(s.errors) >= maxErrorNames {
		name = "other"
	}
	s.errors[name]++
}

func (s *Server) handle(ctx context.Context, conn *os.File, up *worker) {
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(past()) })()
	if s.plan.HoldOpen {
		<-ctx.Done()
		return
	}
	err := s.serve(ctx, conn, up)
	// A client resets because its plan says so or because it was cut. That is not the server's fault.
	if err != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		s.fail(err)
	}
}

func (s *Server) serve(ctx context.Context, conn *os.File, up *worker) error {
	switch {
	case s.plan.Protocol == Connect:
		return nil
	case s.tls == nil:
		return s.talk(ctx, conn, up)
	}
	// Otherwise the first answer waits for the session tickets to be acknowledged.
	if err := setOption(conn, unix.TCP_NODELAY); err != nil {
		return err
	}
	secure := tls.Server(stream{conn}, s.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		return err
	}
	if secure.ConnectionState().DidResume {
		s.resumed.Add(1)
	}
	if err := s.talk(ctx, secure, up); err != nil {
		return err
	}
	return sayGoodbye(conn, secure) // the server closes first
}

// talk answers requests, and returns nil when it is the server's turn to close.
func (s *Server) talk(ctx context.Context, conn io.ReadWriter, up *worker) error {
	in := bufio.NewReaderSize(conn, readBuffer)
	echo := make([]byte, s.plan.RequestBytes)
	for n := 1; ; n++ {
		asked, err := s.readRequest(in, echo)
		if err != nil {
			return err
		}
		if err := s.work(ctx, up); err != nil {
			return err
		}
		last := asked || s.plan.RequestsPerConn > 0 && n >= s.plan.RequestsPerConn
		if err := s.respond(conn, echo, last); err != nil {
			return err
		}
		s.requests.Add(1)
		if last {
			return nil
		}
	}
}

// readRequest reads a request. It reports whether the client asks the server to close after its answer.
func (s *Server) readRequest(in *bufio.Reader, echo []byte) (asked bool, err error) {
	if s.plan.Protocol == TCP {
		_, err := io.ReadFull(in, echo)
		return false, err
	}
	h, err := readHead(in)
	if err != nil {
		return false, err
	}
	if h.length > 0 {
		_, err = io.CopyN(io.Discard, in, h.length)
	}
	return h.close, err
}

func (s *Server) respond(conn io.Writer, echo []byte, last bool) error {
	text := s.answer
	if last {
		text = s.last
	}
	if text == nil {
		text = echo
	}
	_, err := conn.Write(text)
	return err
}

func (s *Server) work(ctx context.Context, up *worker) error {
	if s.slots != nil {
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		defer func() { <-s.slots }()
	}
	if up != nil {
		if _, _, err := up.exchange(); err != nil {
			up.drop()
			return err
		}
	}
	if err := Burn(ctx, s.plan.ServiceCPU); err != nil {
		return err
	}
	wait := s.plan.ServiceTime
	if s.plan.Stall.For > 0 {
		wait += s.plan.Stall.left(time.Since(s.start))
	}
	if wait > 0 && clock.Sleep(ctx, wait) != nil {
		return ctx.Err()
	}
	return nil
}

// Burn uses CPU time on one thread, unless ctx ends earlier.
func Burn(ctx context.Context, cpu time.Duration) error {
	if cpu <= 0 {
		return nil
	}
	runtime.LockOSThread() // because the thread's CPU clock is read
	defer runtime.UnlockOSThread()
	begin, err := threadTime()
	for err == nil && ctx.Err() == nil {
		for range 20_000 { // some 10 µs, so that the clock's system call takes less than a tenth
			runtime.KeepAlive(ctx)
		}
		var now time.Duration
		if now, err = threadTime(); now-begin >= cpu {
			break
		}
	}
	return err
}

func threadTime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0, fmt.Errorf("thread CPU clock: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
