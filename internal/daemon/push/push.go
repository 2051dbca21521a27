// Package push sends what an exporter finds to other servers, without a request: the beginning and the end of
// findings as OpenTelemetry logs and as CloudEvents, and profiles to a Pyroscope-compatible store.
//
// Each destination has a bounded queue, bounded tries and its own goroutine, so that a destination that hangs holds
// up neither the exporter nor another destination. The outcome of each message is counted.
package push

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/perfdoctor/perfdoctor/internal/daemon/episode"
	"github.com/perfdoctor/perfdoctor/internal/daemon/exporter"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// Options say where to send.
type Options struct {
	Pyroscope Server // /ingest is added unless the path ends with it
	OTLP      Server // an OTLP/HTTP endpoint; /v1/logs is added if there is no path
	Webhook   Server // takes CloudEvents in the structured mode
	Host      string // name of this host
	Version   string // of perfdoctor
	Log       *slog.Logger

	firstPause time.Duration // before the second try, 0 for the default; for tests
}

// A Server is where to send, and how to authenticate: "" for neither. A user and a password in the URL are sent as
// basic authentication.
type Server struct {
	URL string
	// ConfigFile has passwords, tokens, certificates and a proxy, in the format of http_config of Prometheus's
	// configuration.
	ConfigFile string
}

// Bounds of a destination. A message is a few KB, a profile up to some 100 KB: a queue takes at most some MB of memory.
const (
	maxQueue = 64
	maxTries = 5
	// tryTime is for a server across the world. firstPause and maxPause give a server time to restart: five tries
	// take 10 to 30 s.
	tryTime    = 10 * time.Second
	firstPause = time.Second
	maxPause   = 15 * time.Second
	// maxTime ends the tries of a message: a message of a minute ago is still news.
	maxTime = 2 * time.Minute
)

// lastSends is how long the end of the program waits for queued messages.
const lastSends = 3 * time.Second

// A Pusher sends profiles and the beginnings and ends of findings.
type Pusher struct {
	o    Options
	all  []*destination
	otlp *destination // nil for none, like the others
	hook *destination
	pyro *destination

	mu      sync.Mutex
	tracker *episode.Tracker

	sent *prometheus.CounterVec
}

// A destination is a server with its queue.
type destination struct {
	name   string
	url    *url.URL
	client *http.Client
	queue  chan message
}

// A message is made only when its turn comes: a message that cannot be sent costs nothing.
type message struct {
	query url.Values // added to the destination's URL
	body  func() (content []byte, contentType string, err error)
}

// New makes a pusher. It sends once [Pusher.Run] is called. New fails if a URL is invalid, or a file cannot be used.
func New(o Options) (*Pusher, error) {
	p := &Pusher{o: o, tracker: episode.NewTracker(episode.Defaults()), sent: prometheus.NewCounterVec(
		prometheus.CounterOpts{
			Name: "perfdoctor_push_sent_total",
			Help: "Messages by destination and what became of them: ok; failed after all tries; refused, and " +
				"not tried " +
				"again; " +
				"dropped because too many waited.",
		}, []string{"to", "outcome"})}
	for _, d := range []struct {
		at     **destination
		name   string
		server Server
		path   func(string) string
	}{
		{&p.otlp, "otlp", o.OTLP, func(path string) string {
			if strings.Trim(path, "/") == "" {
				return "/v1/logs"
			}
			return path
		}},
		{&p.hook, "webhook", o.Webhook, func(path string) string { return path }},
		{&p.pyro, "pyroscope", o.Pyroscope, func(path string) string {
			return strings.TrimSuffix(strings.TrimRight(path, "/"), "/ingest") + "/ingest"
		}},
	} {
		made, err := newDestination(d.name, d.server)
		if err != nil {
			return nil, err
		}
		if made == nil {
			continue
		}
		made.url.Path = d.path(made.url.Path)
		*d.at = made
		p.all = append(p.all, made)
		// so that each series exists before it first counts
		for _, outcome := range []string{"ok", "failed", "refused", "dropped"} {
			p.sent.WithLabelValues(d.name, outcome)
		}
	}
	return p, nil
}

// newDestination returns nil for a server without a URL.
func newDestination(name string, s Server) (*destination, error) {
	switch {
	case s.URL == "" && s.ConfigFile != "":
		return nil, fmt.Errorf("--push.%s.config.file goes with --push.%s", name, name)
	case s.URL == "":
		return nil, nil //nolint:nilnil // nothing is asked for
	}
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		// not quoted: it may hold a password
		return nil, fmt.Errorf("--push.%s is no URL: give one such as https://host:port", name)
	}
	if u.User != nil && s.ConfigFile != "" { // the URL's user would be sent, and the file's would not
		return nil, fmt.Errorf("--push.%s has a user in its URL, and --push.%s.config.file is given: leave one of "+
			"them out", name, name)
	}
	client, err := clientOf(s.ConfigFile)
	if err != nil {
		return nil, fmt.Errorf("--push.%s.config.file: %w", name, err)
	}
	return &destination{name: name, url: u, client: client, queue: make(chan message, maxQueue)}, nil
}

// Describe describes the pusher's own metrics.
func (p *Pusher) Describe(to chan<- *prometheus.Desc) { p.sent.Describe(to) }

// Collect returns the pusher's own metrics.
func (p *Pusher) Collect(to chan<- prometheus.Metric) { p.sent.Collect(to) }

// Observe takes a window, and queues its profiles and events. It does not block.
func (p *Pusher) Observe(w exporter.Window) {
	p.Profiles(w.Name, w.Recording)
	if p.otlp == nil && p.hook == nil {
		return
	}
	p.mu.Lock()
	begun, ended := p.tracker.Observe(w)
	p.mu.Unlock()
	for _, e := range begun {
		p.tell(event{e, "began", e.End})
	}
	for _, e := range ended {
		p.tell(event{e, "ended", w.End})
	}
}

// Profiles queues the profiles of a recording of a target. It does not block.
func (p *Pusher) Profiles(target string, rec *recording.Recording) {
	if p.pyro == nil {
		return
	}
	for _, e := range stacks.Events() {
		if prof, ok := rec.Profile(e); ok && len(prof.Samples) > 0 {
			p.enqueue(p.pyro, p.pyroscope(target, rec, prof))
		}
	}
}

func (p *Pusher) tell(e event) {
	if p.otlp != nil {
		p.enqueue(p.otlp, message{body: func() ([]byte, string, error) { return p.logs(e) }})
	}
	if p.hook != nil {
		p.enqueue(p.hook, message{body: func() ([]byte, string, error) { return p.cloudEvent(e) }})
	}
}

func (p *Pusher) enqueue(d *destination, m message) {
	select {
	case d.queue <- m:
	default:
		p.count(d, "dropped")
	}
}

func (p *Pusher) count(d *destination, outcome string) { p.sent.WithLabelValues(d.name, outcome).Inc() }

// Run sends until the context is done, and then sends for a moment what still waits.
func (p *Pusher) Run(ctx context.Context) error {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lastSends, cancel) })
	defer stop()
	var wg sync.WaitGroup
	for _, d := range p.all {
		wg.Go(func() { p.serve(ctx, sending, d) })
	}
	wg.Wait()
	return nil
}

// serve sends what comes into the queue of a destination; once running is done, only what is in it.
func (p *Pusher) serve(running, sending context.Context, d *destination) {
	for {
		select {
		case m := <-d.queue:
			p.send(sending, d, m)
			continue
		default:
		}
		select {
		case m := <-d.queue:
			p.send(sending, d, m)
		case <-running.Done():
			if len(d.queue) == 0 {
				return
			}
		}
	}
}

// send tries to send one message, and counts the outcome.
func (p *Pusher) send(ctx context.Context, d *destination, m message) {
	body, contentType, err := m.body()
	if err != nil {
		p.o.Log.Error("push: a message cannot be written", "to", d.name, "err", err)
		p.count(d, "failed")
		return
	}
	u := *d.url
	query := u.Query()
	for k, v := range m.query {
		query[k] = v
	}
	u.RawQuery = query.Encode()
	pause := backoff.NewExponentialBackOff() // with jitter, so that a fleet does not come back at once
	pause.InitialInterval, pause.MaxInterval = firstPause, maxPause
	if p.o.firstPause > 0 {
		pause.InitialInterval = p.o.firstPause
	}
	_, err = backoff.Retry(ctx, func() (struct{}, error) {
		return struct{}{},
			post(ctx, d.client, u.String(), contentType, body)
	},
		backoff.WithBackOff(pause), backoff.WithMaxTries(maxTries), backoff.WithMaxElapsedTime(maxTime))
	switch {
	case err == nil:
		p.count(d, "ok")
		return
	case errors.Is(err, errRefused):
		p.count(d, "refused")
	default:
		p.count(d, "failed")
	}
	p.o.Log.Warn("push: a message is lost", "to", d.name, "err", err)
}

// errRefused is wrapped by the error of a server that would answer the same again.
var errRefused = errors.New("refused")

// maxAnswer bounds how much of an answer is read, so that the connection can be used again, and how much the log
// shows.
const maxAnswer = 4 << 10

// post makes one try. Its error is one of package backoff's, which says whether and when to try again.
func post(ctx context.Context, client *http.Client, to, contentType string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return backoff.Permanent(err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("User-Agent", "perfdoctor")
	resp, err := client.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // without the URL, which may hold a password
		}
		return err
	}
	defer resp.Body.Close()
	// the answer matters only if it is an error, and then as much as arrived
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	status := fmt.Errorf("the server answers %s: %.200q", resp.Status, answer)
	switch {
	case resp.StatusCode < http.StatusMultipleChoices:
		return nil
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable:
		return later(resp.Header.Get("Retry-After"), status)
	case resp.StatusCode == http.StatusRequestTimeout || resp.StatusCode >= http.StatusInternalServerError:
		return status
	}
	return backoff.Permanent(fmt.Errorf("%w: %w", errRefused, status))
}

// later tries again at the time that the server names, in seconds. For a date it uses the usual pause.
func later(after string, status error) error {
	seconds, err := strconv.Atoi(after)
	if err != nil || seconds <= 0 || seconds > int(maxTime/time.Second) {
		return status
	}
	return errors.Join(status, backoff.RetryAfter(seconds))
}
