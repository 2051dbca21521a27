package checks

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
)

var paramExhaustionShare = &check.Param{
	Name: "share", Default: 0.9, Unit: quantity.Ratio,
	Why: "a tenth of the range is left, and connect() already tries most ports before it finds a free one",
}

var localPortExhaustion = &check.Check{
	Name:  "local-port-exhaustion",
	Stage: check.Connections,
	Doc: `Local ports towards one destination are used up
Each connection takes a local port per source address and destination address and port. When none of the range
(ip_local_port_range less ip_local_reserved_ports) is left, connect() fails with EADDRNOTAVAIL and no kernel counter moves.

Measured: client-side sockets in every state from one source to one destination, over the usable ports. TIME_WAIT that tcp_tw_reuse
may take is not counted. At 90 % and growing it warns with the time left; full is critical; a steady level is info. Where BPF
programs may run, the failures themselves are counted, and full alone is not critical.

The cure depends on the state that dominates: TIME_WAIT is short connections (keep-alive; see short-connection-ceiling),
ESTABLISHED is too many held at once (a smaller pool, multiplexing, more destination addresses), CLOSE_WAIT a leak (close the
socket). A wider range moves the limit to 64512 ports at most.
Wrong if connect() to the destination never fails.`,
	URL:      "https://www.kernel.org/doc/html/latest/networking/ip-sysctl.html",
	Needs:    portNeeds(),
	Uses:     portUses(),
	Params:   []*check.Param{paramExhaustionShare, paramPortsFull},
	Explains: []*check.Check{tooManyThreads},
	Run:      runLocalPortExhaustion,
}

// A portLoad is the ports blocked on one path.
type portLoad struct {
	path  *clientPath
	at    int // the sample with the most
	used  quantity.Value
	share quantity.Value
	slope float64 // ports/s
}

func runLocalPortExhaustion(p *check.Pass) error {
	r, err := readPortRange(p)
	if err != nil {
		return err
	}
	worst := map[string]portLoad{}
	top := portLoad{share: quantity.Of("ports in use to any destination", 0, quantity.Ratio)}
	for _, c := range clientPaths(p) {
		l := portLoadOf(r, c)
		if w, ok := worst[c.destination]; !ok || l.share.Above(w.share) {
			worst[c.destination] = l
		}
		if l.share.Above(top.share) {
			top = l
		}
	}
	p.Read(top.share)
	for _, c := range clientPaths(p) { // in order, so that findings are
		if l := worst[c.destination]; l.path.source == c.source && l.share.AtLeast(p.Param(paramExhaustionShare)) {
			p.Report(exhaustionFinding(p, r, l))
		}
	}
	return nil
}

func portLoadOf(r portRange, c *clientPath) portLoad {
	row := c.each(func(i int) float64 { return r.blocked(c, i) })
	at, n := peak(row)
	used := quantity.Of("ports in use from "+c.source+" to "+c.destination, n, quantity.Ports)
	return portLoad{
		path: c, at: at, used: used, slope: c.slope(row),
		share: used.Per(r.usable).Named("ports in use to %s", c.destination),
	}
}

func exhaustionFinding(p *check.Pass, r portRange, l portLoad) check.Finding {
	tw := l.path.at(timeWait, l.at)
	f := check.Finding{
		Subject:  destinationSubject(l.path),
		Severity: check.Info,
		Summary: fmt.Sprintf("%.0f of %s in use from %s (%s), most in %s", l.used.Number(), r.usable.Text(), l.path.source,
			l.share.Text(), l.dominant()),
		Evidence: append([]quantity.Value{r.usable, l.share}, l.states()...),
		Notes:    l.owners(p),
		Remedies: exhaustionRemedies(p, r, l),
		Disproof: "connect() to it never fails with EADDRNOTAVAIL (strace -f -e connect)",
		Doubts:   r.doubts,
	}
	if 2*tw >= l.used.Number() {
		f.Placebos = []string{finTimeoutPlacebo}
	}
	failing, counted := unavailable(p, l.path.destination)
	if counted {
		f.Evidence = append(f.Evidence, failing)
	}
	switch {
	case counted && failing.Number() > 0:
		f.Severity = check.Critical
		f.Summary += fmt.Sprintf(": %s fail with EADDRNOTAVAIL", failing.Text())
	case !counted && l.share.AtLeast(p.Param(paramPortsFull)):
		f.Severity = check.Critical
		f.Summary += ": connect() fails with EADDRNOTAVAIL"
	case l.slope > 0:
		f.Severity = check.Warning
		left := r.usable.Minus(l.used).Per(quantity.Of("growth", l.slope, "ports/s")).As(quantity.Seconds).
			Named("time until no port is left")
		f.Evidence = append(f.Evidence, left)
		f.Summary += fmt.Sprintf("; full in %.0f s", left.Number())
	}
	if len(r.doubts) > 0 {
		f.Confidence = check.Medium
	}
	return f
}

// owners names who holds the ports, where sockets that have an owner do, and who opens them.
func (l portLoad) owners(p *check.Pass) []string {
	live := l.path.live(l.at)
	if held := heldBy(p, l.path, live); held != "" && 2*live > l.used.Number() {
		if opened := openersOf(p, l.path.destination); opened != "" {
			return []string{held, opened}
		}
		return []string{held}
	}
	return []string{ownersOf(p, l.path.destination)}
}

// dominant is the state most of the ports are held in.
func (l portLoad) dominant() string {
	state, most := "", 0.0
	for _, s := range tcpStates {
		if n := l.path.at(s, l.at); n > most {
			state, most = s, n
		}
	}
	return state
}

// states are the sockets by state at the peak.
func (l portLoad) states() []quantity.Value {
	var out []quantity.Value
	for _, s := range tcpStates {
		if n := l.path.at(s, l.at); n > 0 {
			out = append(out, quantity.Of(s, n, quantity.Sockets))
		}
	}
	return out
}

// tcpStates are the client side's states, the commonest first.
var tcpStates = []string{timeWait, established, synSent, closeWait, "FIN_WAIT1", "FIN_WAIT2", "LAST_ACK", "CLOSING", "SYN_RECV"}

func exhaustionRemedies(p *check.Pass, r portRange, l portLoad) []check.Remedy {
	switch l.dominant() {
	case closeWait:
		return []check.Remedy{{
			Action: "close sockets whose peer has closed: the program leaks them",
			Risk:   "none in the fix; a restart until then frees the ports and loses what is in flight",
			Effect: fmt.Sprintf("CLOSE_WAIT to %s falls from %.0f to about 0", l.path.destination, l.path.at(closeWait, l.at)),
		}}
	case timeWait:
		return portRemedies(p, r, l.path)
	}
	out := []check.Remedy{{
		Action: "hold fewer connections to " + l.path.destination + ": a bounded pool, or requests multiplexed over few connections",
		Risk:   "too small a pool makes requests wait: size it to rate × time a connection is in use",
		Effect: fmt.Sprintf("ports in use fall from %.0f to the pool's size", l.used.Number()),
	}}
	if m, ok := widenRemedy(p, r, l.path); ok {
		m.Effect = fmt.Sprintf("usable ports rise from %.0f to %.0f", r.usable.Number(), widestHigh-widestLow+1-r.reserved)
		out = append(out, m)
	}
	return append(out, morePairsRemedy(r.usable))
}
