package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// worker makes one request after the other, on a connection that it keeps between them.
type worker struct {
	run  *Runner
	end  context.Context // when it ends, it cuts requests under way
	live atomic.Pointer[os.File]

	file *os.File // nil: not connected
	rw   io.ReadWriter
	tls  *tls.Conn
	in   *bufio.Reader
	buf  []byte // TCP: an answer
	used int    // requests on the connection
	last bool   // the server closes after the current answer
}

// readBuffer holds the head of a usual response. It also bounds the length of a line.
const readBuffer = 4096

func (r *Runner) newWorker(end context.Context) *worker {
	w := &worker{run: r, end: end}
	if r.plan.Protocol == HTTP {
		w.in = bufio.NewReaderSize(nil, readBuffer)
	}
	if r.plan.Protocol == TCP {
		w.buf = make([]byte, r.plan.ResponseBytes)
	}
	return w
}

// cut ends the worker's wait. arm makes sure that no wait begins after it.
func (w *worker) cut() {
	if file := w.live.Load(); file != nil {
		_ = file.SetDeadline(past()) // an error means that it has just been closed
	}
}

// arm gives the next wait its timeout.
func (w *worker) arm() error {
	err := w.file.SetDeadline(time.Now().Add(w.run.plan.Timeout))
	if w.end.Err() != nil {
		w.cut()
	}
	return err
}

// request makes one request that was due at due, and counts how it ended.
func (w *worker) request(due time.Time) (ok bool) {
	begun := time.Now()
	sent, received, err := w.exchange()
	switch {
	case err == nil:
		w.run.rec.request(due, begun, sent, received)
	case w.end.Err() != nil:
		w.run.rec.unfinished(1)
	default:
		w.run.rec.fail(err)
	}
	if err != nil && !errors.As(err, new(statusError)) {
		w.drop()
		return false
	}
	w.used++
	if limit := w.run.plan.RequestsPerConn; w.last || limit > 0 && w.used >= limit {
		return w.finish() && err == nil
	}
	return err == nil
}

// errStale is a kept connection that the server had closed before it read the request.
var errStale = errors.New("stale connection")

// exchange sends a request and reads its answer, connecting when there is no connection.
func (w *worker) exchange() (sent, received int, err error) {
	kept := w.file != nil
	sent, received, err = w.attempt()
	if kept && errors.Is(err, errStale) && w.end.Err() == nil {
		w.drop()
		w.run.rec.retry()
		sent, received, err = w.attempt()
	}
	return sent, received, err
}

func (w *worker) attempt() (sent, received int, err error) {
	if w.file == nil {
		if err := w.connect(); err != nil {
			return 0, 0, err
		}
	} else if err := w.arm(); err != nil {
		return 0, 0, err
	}
	switch w.run.plan.Protocol {
	case TCP:
		return w.echo()
	case HTTP:
		return w.get()
	default: // Connect
		return 0, 0, nil
	}
}

// connect connects to the next target in turn that does not refuse.
func (w *worker) connect() error {
	begun := time.Now()
	var err error
	for range w.run.targets {
		if err = w.connectTo(w.run.next()); !errors.Is(err, unix.ECONNREFUSED) {
			break
		}
	}
	if err != nil {
		return err
	}
	if w.in != nil {
		w.in.Reset(w.rw)
	}
	resumed := w.tls != nil && w.tls.ConnectionState().DidResume
	w.run.rec.connected(time.Since(begun), resumed)
	return nil
}

// connectTo leaves no connection behind when it fails.
func (w *worker) connectTo(target netip.AddrPort) error {
	file, err := w.run.prepare(target)
	if err != nil {
		return err
	}
	w.file, w.rw, w.used, w.last = file, file, 0, false
	w.live.Store(file)
	if err := w.establish(); err != nil {
		w.drop()
		return err
	}
	return nil
}

func (w *worker) establish() error {
	if err := w.arm(); err != nil {
		return err
	}
	if err := AwaitConnected(w.file); err != nil || w.run.tls == nil {
		return err
	}
	w.tls = tls.Client(stream{w.file}, w.run.tls)
	w.rw = w.tls
	return w.tls.Handshake() //nolint:noctx // bounded by the deadline; with a context it would take a goroutine
}

func (w *worker) echo() (sent, received int, err error) {
	sent, err = w.rw.Write(w.run.text)
	if err != nil {
		return sent, 0, stale(err)
	}
	received, err = io.ReadFull(w.rw, w.buf)
	if received == 0 && err != nil {
		return sent, received, stale(err)
	}
	return sent, received, err
}

func (w *worker) get() (sent, received int, err error) {
	text := w.run.text
	if w.run.plan.Close == ServerCloses && w.used+1 == w.run.plan.RequestsPerConn {
		text = w.run.lastText
	}
	sent, err = w.rw.Write(text)
	if err != nil {
		return sent, 0, stale(err)
	}
	h, err := readHead(w.in)
	for err == nil && h.status >= 100 && h.status < 200 { // interim answers, RFC 9110 section 15.2
		h, err = readHead(w.in)
	}
	if err != nil && h.bytes == 0 {
		return sent, 0, stale(err)
	}
	if err != nil {
		return sent, h.bytes, err
	}
	if h.status == 0 {
		return sent, h.bytes, errHead
	}
	body, err := h.skipBody(w.in)
	w.last = h.close
	received = h.bytes + int(body)
	if err == nil && h.status >= http.StatusBadRequest {
		err = statusError(h.status)
	}
	return sent, received, err
}

// stale marks the errors of a connection that the peer closed between two requests.
func stale(err error) error {
	for _, sign := range []error{io.EOF, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, sign) {
			return errors.Join(errStale, err)
		}
	}
	return err
}

// finish ends a connection. The plan says which side closes first.
func (w *worker) finish() (ok bool) {
	if w.file == nil {
		return true
	}
	var err error
	switch {
	case w.run.plan.Close == ClientKeeps:
		w.leak()
		return true
	case w.last || w.run.plan.Close == ServerCloses:
		err = w.awaitEnd()
	case w.run.plan.Close == ClientResets:
		err = reset(w.file)
	case w.tls != nil:
		err = errors.Join(w.arm(), sayGoodbye(w.file, w.tls))
	}
	w.drop()
	if err != nil && w.end.Err() == nil {
		w.run.rec.fail(err)
		return false
	}
	return true
}

// awaitEnd reads until the server has closed. Unrequested answers are not an error here.
func (w *worker) awaitEnd() error {
	if err := w.arm(); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, onlyReader{w.rw})
	return err
}

// onlyReader keeps [io.Copy] from splicing to /dev/null, which would need a pipe.
type onlyReader struct{ io.Reader }

// leak leaves the connection open, and unread, until the load ends.
func (w *worker) leak() {
	w.live.Store(nil)
	w.run.mu.Lock()
	defer w.run.mu.Unlock()
	w.run.kept = append(w.run.kept, w.file)
	w.file, w.rw, w.tls = nil, nil, nil
}

func (w *worker) drop() {
	if w.file == nil {
		return
	}
	w.live.Store(nil)
	_ = w.file.Close() // the connection's own error was counted before
	w.file, w.rw, w.tls = nil, nil, nil
}
