package load

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadHead(t *testing.T) {
	tests := []struct {
		name, text string
		want       head
		body       int64
		err        error
	}{
		{"length", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", head{status: 200, bytes: 38, length: 3}, 3, nil},
		{"case", "HTTP/1.1 200 OK\r\ncontent-length:3\r\n\r\nabc", head{status: 200, bytes: 37, length: 3}, 3, nil},
		{
			"chunked with trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: " +
				"y\r\n\r\n",
			head{status: 200, bytes: 47, length: -1, chunked: true},
			3, nil,
		},
		{
			"close", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabcde",
			head{status: 200, bytes: 38, length: -1, close: true},
			5, nil,
		},
		{"1.0", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", head{status: 200, bytes: 38, close: true}, 0, nil},
		{
			"1.0 kept", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: Keep-Alive\r\n\r\n",
			head{status: 200, bytes: 62},
			0, nil,
		},
		{"no content", "HTTP/1.1 204 No Content\r\n\r\n", head{status: 204, bytes: 27, length: -1}, 0, nil},
		{"request", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", head{bytes: 27, length: -1, close: true}, 0, nil},
		{"nothing", "", head{length: -1}, 0, io.EOF},
		{
			"cut in the head", "HTTP/1.1 200 OK\r\nConte",
			head{status: 200, bytes: 17, length: -1},
			0,
			io.ErrUnexpectedEOF,
		},
		{
			"cut in the body", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na",
			head{status: 200, bytes: 38, length: 3},
			1, io.ErrUnexpectedEOF,
		},
		{"status", "HTTP/1.1 many\r\n\r\n", head{bytes: 15, length: -1}, 0, errHead},
		{"short version", "HTTP/1. 200\r\n\r\n", head{bytes: 13, length: -1}, 0, errHead},
		{
			"length", "HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n",
			head{status: 200, bytes: 37, length: -1},
			0,
			errHead,
		},
		{"no field", "HTTP/1.1 200 OK\r\nabc\r\n\r\n", head{status: 200, bytes: 22, length: -1}, 0, errHead},
		{
			"endless line", "HTTP/1.1 200 OK\r\n" + strings.Repeat("a", 5000),
			head{status: 200, bytes: 17, length: -1},
			0,
			errHead,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in := bufio.NewReaderSize(strings.NewReader(test.text), readBuffer)
			got, err := readHead(in)
			var body int64
			if err == nil {
				body, err = got.skipBody(in)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(head{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !errors.Is(err, test.err) || body != test.body {
				t.Errorf("body of %d, error %v; want %d, %v", body, err, test.body, test.err)
			}
		})
	}
}

func FuzzReadHead(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"))
	f.Add([]byte("HTTP/1."))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bufio.NewReaderSize(bytes.NewReader(data), readBuffer)
		h, err := readHead(in)
		if err != nil {
			return
		}
		if h.bytes > len(data) || h.length < -1 {
			t.Errorf("%+v of %d bytes", h, len(data))
		}
		if n, _ := h.skipBody(in); int(n) > len(data) {
			t.Errorf("body of %d in %d bytes", n, len(data))
		}
	})
}
