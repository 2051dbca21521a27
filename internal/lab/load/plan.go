package load

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Protocol is the protocol on a connection.
type Protocol string

// The protocols.
const (
	HTTP    Protocol = "http"    // HTTP/1.1 GET; the default
	TCP     Protocol = "tcp"     // RequestBytes out, ResponseBytes back
	Connect Protocol = "connect" // a request is a connection, without a byte on it
)

// Closer is the side that closes a connection first, and so keeps it in TIME_WAIT.
type Closer string

// Who closes first. A client that leaves it to the server waits for the end of the stream, at most for Plan.Timeout.
const (
	ClientCloses Closer = "client" // the default
	ServerCloses Closer = "server" // HTTP: the last request says "Connection: close"
	ClientResets Closer = "reset"  // SO_LINGER with 0 s: RST, no TIME_WAIT on either side
	ClientKeeps  Closer = "never"  // not before the load's duration has passed, even if the server has closed: a leak
)

// Session is how TLS connections begin.
type Session string

// TLS or not. Certificates are never checked: a scenario's server makes its own.
const (
	NoTLS     Session = ""       // plain TCP
	FullTLS   Session = "full"   // each connection makes a full handshake
	ResumeTLS Session = "resume" // a connection resumes the session of an earlier one
)

// The hard caps: a wrong plan must not hold the machine for ever, nor fill its memory.
const (
	// MaxDuration is the limit of a lab's loads.
	MaxDuration = 10 * time.Minute
	// MaxRate is ten times what one core can make.
	MaxRate = 1_000_000
	// MaxConnections is below the port range's 28,232 ports and the usual hard limit for open files.
	MaxConnections = 20_000
	// MaxCount is MaxRate for MaxDuration, in order.
	MaxCount = 600_000_000
	// MaxBytes is the largest request or response. Each connection keeps one buffer of that size.
	MaxBytes = 16 << 20

	defaultBytes    = 64              // as the requests of package lab: the cost of a connection should dominate
	defaultTimeout  = 5 * time.Second // lets the first two SYN retransmissions (after 1 and 3 s) succeed
	openConnections = 64              // for an open loop: at 100 ms a request, 640 requests a second
	// closedGrace lets the last requests of a closed loop end, so that a server sees whole requests.
	closedGrace = 250 * time.Millisecond
)

// Step is a part of an open loop.
type Step struct {
	Rate float64       `json:"rate" yaml:"rate"` // requests a second; 0: a pause
	For  time.Duration `json:"for" yaml:"for"`
}

// Plan says what load to make. In JSON durations are nanoseconds; in YAML they are written like 1.5s.
type Plan struct {
	Target string `json:"target" yaml:"target"` // ip:port
	// Others are more targets. Connections go to all targets in turn, as from a client with a list of backends. A
	// target that refuses is skipped.
	Others   []string `json:"others,omitempty" yaml:"others,omitempty"`
	Protocol Protocol `json:"protocol,omitempty" yaml:"protocol,omitempty"`
	TLS      Session  `json:"tls,omitempty" yaml:"tls,omitempty"`

	// Rate (requests a second for Duration) or Steps make an open loop. Without both, the loop is closed.
	Rate  float64 `json:"rate,omitempty" yaml:"rate,omitempty"`
	Steps []Step  `json:"steps,omitempty" yaml:"steps,omitempty"`
	// Connections is how many are in use at once, at most: 0 means 1 in a closed and 64 in an open loop. Requests
	// that become due while all are busy wait, and their latency shows it.
	Connections int `json:"connections,omitempty" yaml:"connections,omitempty"`
	// RequestsPerConn is the number of requests after which a connection is closed; 0: never (keep-alive).
	RequestsPerConn int    `json:"requests_per_conn,omitempty" yaml:"requests_per_conn,omitempty"`
	Close           Closer `json:"close,omitempty" yaml:"close,omitempty"`

	// Duration bounds when requests begin. Count bounds how many begin, and counts the requests of one connection
	// together. Duration, Count or Steps is needed. The load waits for a request that began in time: for Timeout in
	// an open loop, for at most 250 ms in a closed one. The whole load takes at most 10 min.
	Duration time.Duration `json:"duration,omitempty" yaml:"duration,omitempty"`
	Count    uint64        `json:"count,omitempty" yaml:"count,omitempty"`
	// Timeout bounds the connect with the TLS handshake, each answer, and the wait for the server to close; 0: 5 s.
	Timeout time.Duration `json:"timeout,omitempty" yaml:"timeout,omitempty"`

	// BindIP is the source address. With port 0, the kernel already chooses the port in bind(), from one pool for all
	// destinations. BindNoPort sets IP_BIND_ADDRESS_NO_PORT, and connect() chooses the port.
	BindIP     string `json:"bind_ip,omitempty" yaml:"bind_ip,omitempty"`
	BindNoPort bool   `json:"bind_no_port,omitempty" yaml:"bind_no_port,omitempty"`

	// Path and Host are for HTTP. Host is also the TLS server name. "": / and the target.
	Path string `json:"path,omitempty" yaml:"path,omitempty"`
	Host string `json:"host,omitempty" yaml:"host,omitempty"`
	// UserAgent is the User-Agent of HTTP requests; "": perfdoctor-load.
	UserAgent string `json:"user_agent,omitempty" yaml:"user_agent,omitempty"`
	// RequestBytes and ResponseBytes are for TCP; 0: 64, and the size of the request.
	RequestBytes  int `json:"request_bytes,omitempty" yaml:"request_bytes,omitempty"`
	ResponseBytes int `json:"response_bytes,omitempty" yaml:"response_bytes,omitempty"`

	// Live receives a line each second, see [Second.String].
	Live io.Writer `json:"-" yaml:"-"`
}

// Open reports whether the plan is an open loop.
func (p Plan) Open() bool { return p.Rate > 0 || len(p.Steps) > 0 }

// Check says what is wrong with the plan, one mistake per line.
func (p Plan) Check() error {
	_, err := p.normal()
	return err
}

// normal returns the plan with its defaults filled in.
func (p Plan) normal() (Plan, error) {
	errs := errors.Join(p.checkWords(), p.checkAddresses(), p.checkSteps(), p.checkNumbers())
	if errs != nil {
		return p, fmt.Errorf("load plan: %w", errs)
	}
	p.Protocol = cmp.Or(p.Protocol, HTTP)
	p.Close = cmp.Or(p.Close, ClientCloses)
	p.Path = cmp.Or(p.Path, "/")
	p.Host = cmp.Or(p.Host, p.Target)
	p.UserAgent = cmp.Or(p.UserAgent, "perfdoctor-load")
	if p.Protocol == Connect {
		p.RequestsPerConn = 1
	}
	p.Timeout = cmp.Or(p.Timeout, defaultTimeout)
	p.RequestBytes = cmp.Or(p.RequestBytes, defaultBytes)
	p.ResponseBytes = cmp.Or(p.ResponseBytes, p.RequestBytes)
	p.Duration = cmp.Or(p.Duration, p.stepTime(), MaxDuration)
	p.Connections = cmp.Or(p.Connections, p.defaultConnections())
	if p.Rate > 0 {
		p.Steps = []Step{{Rate: p.Rate, For: p.Duration}}
	}
	return p, nil
}

func (p Plan) defaultConnections() int {
	if p.Open() {
		return openConnections
	}
	return 1
}

func (p Plan) stepTime() time.Duration {
	var sum time.Duration
	for _, step := range p.Steps {
		sum += step.For
	}
	return sum
}

func (p Plan) checkWords() error {
	return errors.Join(
		oneOf("protocol", p.Protocol, "", HTTP, TCP, Connect),
		oneOf("tls", p.TLS, NoTLS, FullTLS, ResumeTLS),
		oneOf("close", p.Close, "", ClientCloses, ServerCloses, ClientResets, ClientKeeps),
	)
}

func (p Plan) checkAddresses() error {
	var errs []error
	for _, target := range append([]string{p.Target}, p.Others...) {
		if _, err := netip.ParseAddrPort(target); err != nil {
			errs = append(errs, fmt.Errorf("target %q: want ip:port: %w", target, err))
		}
	}
	if _, err := netip.ParseAddr(p.BindIP); err != nil && p.BindIP != "" {
		errs = append(errs, fmt.Errorf("bind_ip: %w", err))
	}
	if p.BindNoPort && p.BindIP == "" {
		errs = append(errs, errors.New("bind_no_port: without bind_ip nothing is bound"))
	}
	if strings.ContainsAny(p.Path+p.Host, " \r\n") || p.Path != "" && p.Path[0] != '/' {
		errs = append(errs, fmt.Errorf("path %q, host %q: want a path that begins with /, and no blanks", p.Path,
			p.Host))
	}
	if strings.ContainsAny(p.UserAgent, "\r\n") {
		errs = append(errs, fmt.Errorf("user_agent %q: want one line", p.UserAgent))
	}
	return errors.Join(errs...)
}

func (p Plan) checkSteps() error {
	var errs []error
	if p.Rate != 0 && len(p.Steps) > 0 {
		errs = append(errs, errors.New("rate and steps: want one of them"))
	}
	if len(p.Steps) > 0 && p.Duration != 0 {
		errs = append(errs, errors.New("duration: the steps say how long"))
	}
	for i, step := range p.Steps {
		// a NaN is outside of all bounds
		if step.For <= 0 || step.For > MaxDuration || !(step.Rate >= 0 && step.Rate <= MaxRate) {
			errs = append(errs, fmt.Errorf("step %d: rate %v for %v: want 0 to %d a second, for at most %v",
				i+1, step.Rate, step.For, MaxRate, MaxDuration))
		}
	}
	if !(p.Rate >= 0 && p.Rate <= MaxRate) {
		errs = append(errs, fmt.Errorf("rate %v: want 0 to %d a second", p.Rate, MaxRate))
	}
	if p.Duration == 0 && p.Count == 0 && len(p.Steps) == 0 {
		errs = append(errs, errors.New("no end: want a duration, a count or steps"))
	}
	return errors.Join(errs...)
}

func (p Plan) checkNumbers() error {
	return errors.Join(
		upTo("duration", p.Duration+p.stepTime(), MaxDuration),
		upTo("timeout", p.Timeout, MaxDuration),
		upTo("count", p.Count, MaxCount),
		upTo("connections", p.Connections, MaxConnections),
		upTo("requests_per_conn", p.RequestsPerConn, MaxCount),
		upTo("request_bytes", p.RequestBytes, MaxBytes),
		upTo("response_bytes", p.ResponseBytes, MaxBytes),
	)
}

func oneOf[T ~string](name string, value T, known ...T) error {
	if slices.Contains(known, value) {
		return nil
	}
	return fmt.Errorf("%s %q: want one of %q", name, value, known)
}

// upTo returns an error unless the value is from zero to high.
func upTo[T cmp.Ordered](name string, value, high T) error {
	var zero T
	if value >= zero && value <= high {
		return nil
	}
	return fmt.Errorf("%s %v: want %v to %v", name, value, zero, high)
}

// schedule says when the requests of an open loop are due.
type schedule struct {
	steps []Step
	step  int           // index of the current step
	start time.Duration // when the current step starts
	first float64       // requests due before this step; a fraction is carried into the next step
}

// due returns the time of request n after the start. n must not decrease between calls. After the last step it returns
// false.
func (s *schedule) due(n uint64) (time.Duration, bool) {
	for ; s.step < len(s.steps); s.step++ {
		step := s.steps[s.step]
		end := s.first + step.Rate*step.For.Seconds()
		if float64(n) < end-roundingError {
			return s.start + time.Duration((float64(n)-s.first)/step.Rate*float64(time.Second)), true
		}
		s.start, s.first = s.start+step.For, end
	}
	return 0, false
}

// roundingError is far above the rounding error of float64 at MaxCount (1e-7), and far below one request.
const roundingError = 1e-3
