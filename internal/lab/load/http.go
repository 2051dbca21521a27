package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strconv"
)

// head is what a client needs from the head of an HTTP response, and a server from the head of a request.
type head struct {
	status  int
	bytes   int   // size of the head
	length  int64 // length of the body; -1: unknown
	chunked bool
	close   bool // the peer closes after this message
}

// maxHeadLines has the same order of magnitude as net/http's limit: a peer that never ends its head causes an error,
// not a wait.
const maxHeadLines = 1000

var errHead = errors.New("malformed HTTP head")

// readHead reads the lines up to the empty one. A line is at most as long as the reader's buffer. readHead is written
// by hand because [http.ReadResponse] makes a map of each head, which costs more than everything else in a short
// request (3 µs and 15 allocations).
func readHead(in *bufio.Reader) (head, error) {
	h := head{length: -1}
	first, err := in.ReadSlice('\n')
	if err != nil {
		return h, headError(err)
	}
	h.bytes = len(first)
	if bytes.HasPrefix(first, []byte("HTTP/1.")) {
		if h.status, err = parseStatus(first); err != nil {
			return h, err
		}
		h.close = first[len("HTTP/1.")] == '0'
	}
	for range maxHeadLines {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return h, headError(atLeastUnexpected(err))
		}
		h.bytes += len(line)
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			return h, nil
		}
		if err := h.field(line); err != nil {
			return h, err
		}
	}
	return h, errHead
}

func headError(err error) error {
	if errors.Is(err, bufio.ErrBufferFull) {
		return errHead
	}
	return err
}

// atLeastUnexpected turns io.EOF into io.ErrUnexpectedEOF, for places where a message has begun.
func atLeastUnexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// parseStatus reads "HTTP/1.1 200 OK".
func parseStatus(line []byte) (int, error) {
	field := bytes.Fields(line)
	if len(field) < 2 || len(field[0]) != len("HTTP/1.1") {
		return 0, errHead
	}
	status, err := strconv.Atoi(string(field[1]))
	if err != nil || status < 100 || status > 999 {
		return 0, errHead
	}
	return status, nil
}

func (h *head) field(line []byte) error {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok {
		return errHead
	}
	value = bytes.TrimSpace(value)
	switch len(name) { // distinguishes most fields without looking at the letters
	case len("Content-Length"):
		if !bytes.EqualFold(name, []byte("Content-Length")) {
			return nil
		}
		length, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil || length < 0 {
			return errHead
		}
		h.length = length
	case len("Connection"):
		if bytes.EqualFold(name, []byte("Connection")) {
			h.close = bytes.EqualFold(value, []byte("close"))
		}
	case len("Transfer-Encoding"):
		if bytes.EqualFold(name, []byte("Transfer-Encoding")) {
			h.chunked = bytes.EqualFold(value, []byte("chunked"))
		}
	}
	return nil
}

// skipBody reads a response's body (RFC 9112 section 6.3) and returns its length.
func (h *head) skipBody(in *bufio.Reader) (int64, error) {
	switch {
	case h.status == http.StatusNoContent || h.status == http.StatusNotModified:
		return 0, nil
	case h.chunked:
		n, err := io.Copy(io.Discard, httputil.NewChunkedReader(in))
		if err != nil {
			return n, err
		}
		return n, skipTrailer(in)
	case h.length >= 0:
		n, err := io.CopyN(io.Discard, in, h.length)
		return n, atLeastUnexpected(err)
	default:
		h.close = true
		return io.Copy(io.Discard, in)
	}
}

func skipTrailer(in *bufio.Reader) error {
	for range maxHeadLines {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return headError(atLeastUnexpected(err))
		}
		if len(bytes.TrimRight(line, "\r\n")) == 0 {
			return nil
		}
	}
	return errHead
}

// httpRequest returns the text of a request that keeps the connection or asks the server to close it.
func httpRequest(p Plan, last bool) []byte {
	text := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n", p.Path, p.Host, p.UserAgent)
	if last {
		text += "Connection: close\r\n"
	}
	return []byte(text + "\r\n")
}
