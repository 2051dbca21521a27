package exporter

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// Bounds of a handler. An answer is some 100 KB, and takes milliseconds of a CPU.
const (
	maxRenders   = 2                // at a time: the CPUs belong to the host
	renderWait   = 5 * time.Second  // for a turn; Prometheus gives up after 10 s
	maxAnswer    = 16 << 20         // bytes, a hundred times the usual
	maxUnwritten = 64 << 20         // bytes that peers have yet to take: twice this is half of the unit's MemoryMax
	scrapeTime   = 10 * time.Second // to take an answer: Prometheus's default limit for a scrape
)

// limited bounds the cost of answers. It writes an answer once that is whole, so that a slow client does not hold up
// the next turn.
type limited struct {
	inner     http.Handler
	turns     chan struct{}
	unwritten atomic.Int64
}

// Limit bounds what the answers of a handler cost in time and memory.
func Limit(inner http.Handler) http.Handler {
	return &limited{inner: inner, turns: make(chan struct{}, maxRenders)}
}

// ServeHTTP answers 503 if there is no turn or no memory.
func (l *limited) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), renderWait)
	defer cancel()
	select {
	case l.turns <- struct{}{}:
	case <-ctx.Done():
		tooMany(w)
		return
	}
	whole := &answerBuffer{header: w.Header(), status: http.StatusOK}
	func() {
		defer func() { <-l.turns }()
		l.inner.ServeHTTP(whole, r)
	}()
	encoding := w.Header().Get("Content-Encoding")
	w.Header().Del("Content-Encoding")      // set again below for an answer that has it
	body := bytes.Clone(whole.body.Bytes()) // a buffer that grew has up to twice the room
	size := int64(len(body))
	defer l.unwritten.Add(-size)
	if l.unwritten.Add(size) > maxUnwritten {
		tooMany(w)
		return
	}
	if whole.full {
		http.Error(w, "the answer is too large", http.StatusInternalServerError)
		return
	}
	// Only writers in tests lack deadlines.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeTime))
	if encoding != "" {
		w.Header().Set("Content-Encoding", encoding)
	}
	w.WriteHeader(whole.status)
	_, _ = w.Write(body) // a peer that is gone has no use for it
}

func tooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "5")    // seconds, as long as a peer waits for its turn
	w.Header().Set("Connection", "close") // and drop what else it has sent already
	http.Error(w, "too many requests at once", http.StatusServiceUnavailable)
}

// errAnswerSize ends the rendering of an answer without bound.
var errAnswerSize = errors.New("the answer is too large")

// answerBuffer keeps an answer in memory.
type answerBuffer struct {
	header http.Header
	status int
	body   bytes.Buffer
	full   bool // a part had no room
}

// Header returns the headers of the answer.
func (b *answerBuffer) Header() http.Header { return b.header }

// WriteHeader keeps the status.
func (b *answerBuffer) WriteHeader(status int) { b.status = status }

// Write keeps a part of the body.
func (b *answerBuffer) Write(p []byte) (int, error) {
	if b.body.Len()+len(p) > maxAnswer {
		b.full = true
		return 0, errAnswerSize
	}
	return b.body.Write(p)
}
