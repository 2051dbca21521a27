package exporter

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The default addresses: whoever reaches a port without a password can read what is behind it. The port is in no list
// of exporters.
const (
	localAddress  = "127.0.0.1:9843"
	publicAddress = ":9843"
)

// withDefaults listens to other hosts only with TLS and a password, unless it is told to.
func (o WebOptions) withDefaults() (WebOptions, error) {
	if o.SystemdSocket || len(o.ListenAddresses) > 0 {
		return o, nil
	}
	g, err := o.guards()
	if err != nil {
		return o, err
	}
	o.ListenAddresses = []string{localAddress}
	if g.tls && g.password {
		o.ListenAddresses = []string{publicAddress}
	}
	return o, nil
}

// guards are what the web configuration requires of a peer.
type guards struct {
	tls      bool
	password bool // or a certificate of the peer
}

func (o WebOptions) guards() (guards, error) {
	if o.ConfigFile == "" {
		return guards{}, nil
	}
	text, err := os.ReadFile(o.ConfigFile)
	if err != nil {
		return guards{}, err // it names the file
	}
	var c struct {
		TLS   map[string]any `yaml:"tls_server_config"`
		Users map[string]any `yaml:"basic_auth_users"`
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		// Not quoted: it has secrets.
		return guards{}, fmt.Errorf("%s is not as exporter-toolkit's web configuration wants it", o.ConfigFile)
	}
	// A certificate of the peer proves who it is as well as a password does.
	known := len(c.Users) > 0 || c.TLS["client_auth_type"] == "RequireAndVerifyClientCert"
	return guards{tls: len(c.TLS) > 0, password: known}, nil
}

// trusted is the context key for [Trusted].
type trusted struct{}

// Trusted reports whether the client may read more than the metrics say: it gave the required password, or only this
// host reaches the listener. Without [WebOptions.Guard] nobody is trusted.
func Trusted(r *http.Request) bool { return r.Context().Value(trusted{}) != nil }

// Guard refuses the private pages to a client without a password, unless only this host can reach the listener. It
// tells the other pages whether it would refuse the client. A page in a browser on this host can send requests too,
// under a name that resolves to 127.0.0.1 (DNS rebinding): such a request carries that name, and is refused.
func (o WebOptions) Guard(l net.Listener, inner http.Handler) http.Handler {
	local := isLocal(l.Addr())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g, err := o.guards() // each time, as exporter-toolkit does: the password may be removed from the file
		refusal := ""
		switch {
		case err == nil && g.password:
		case !local:
			refusal = "recordings need a password, or an exporter that listens on 127.0.0.1 only: " +
				"give it one with --web.config.file"
		case !o.ownName(r.Host):
			refusal = "recordings are served under the name localhost or an IP address only"
		}
		if refusal == "" {
			r = r.WithContext(context.WithValue(r.Context(), trusted{}, true))
		} else if o.isPrivate(r.URL.Path) {
			http.Error(w, refusal, http.StatusForbidden)
			return
		}
		inner.ServeHTTP(w, r)
	})
}

func (o WebOptions) isPrivate(asked string) bool {
	asked = path.Clean("/" + asked)
	for _, p := range o.Private {
		if p = strings.TrimSuffix(p, "/"); asked == p || strings.HasPrefix(asked, p+"/") {
			return true
		}
	}
	return false
}

// isLocal reports whether only this host can reach a listener.
func isLocal(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback() || a.Network() == "unix"
}

// ownName reports whether no foreign name server had a part in a Host header: it is missing, as in HTTP/1.0, or an
// address, or a name that the exporter was told to listen on.
func (o WebOptions) ownName(host string) bool {
	name := hostOf(host)
	if name == "" || name == "localhost" {
		return true
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return slices.ContainsFunc(o.ListenAddresses, func(a string) bool { return strings.EqualFold(hostOf(a), name) })
}

// hostOf returns an address without its port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}
