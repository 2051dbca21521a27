// Package conntrack stands in for github.com/mwitkow/go-conntrack, which Prometheus's client configuration dials with.
// That counts connections in a registry and traces them on pages of golang.org/x/net/trace, neither of which perfdoctor
// shows; and those pages are templates, for which Go's linker keeps every method of the program
// (docs/decisions/0073-pages-without-methods.md). This dials, and nothing else.
package conntrack

import (
	"context"
	"net"
)

// Dial connects, as net.Dialer.DialContext does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// An Option changes how NewDialContextFunc dials.
type Option func(*Dial)

// NewDialContextFunc gives what dials.
func NewDialContextFunc(options ...Option) func(context.Context, string, string) (net.Conn, error) {
	dial := Dial((&net.Dialer{}).DialContext)
	for _, o := range options {
		o(&dial)
	}
	return dial
}

// DialWithDialContextFunc dials with another function.
func DialWithDialContextFunc(f Dial) Option { return func(d *Dial) { *d = f } }

// DialWithTracing changes nothing: nobody could see the trace.
func DialWithTracing() Option { return func(*Dial) {} }

// DialWithName changes nothing: nobody could see what is counted under the name.
func DialWithName(string) Option { return func(*Dial) {} }
