package connections

import (
	"fmt"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
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
(ip_local_port_range less ip_local_reserved_ports) is left, connect() fails with EADDRNOTAVAIL and no kernel counter
moves.

Measured: client-side sockets in every state from one source to one destination, over the usable ports. TIME_WAIT that
tcp_tw_reuse may take is not counted. At 90 % and growing it warns with the time left; full is critical; a steady
level is info. Where BPF programs may run, the failures themselves are counted, and a full range alone is not critical.

The fix depends on the state that dominates: TIME_WAIT is short connections (keep-alive; see
short-connection-ceiling), ESTABLISHED is too many held at once (a smaller pool, multiplexing, more destination
addresses), CLOSE_WAIT a leak (close the socket). A wider range moves the limit to 64512 ports at most.
Disproved if connect() to the destination never fails.`,
	URL:    "https://www.kernel.org/doc/html/latest/networking/ip-sysctl.html",
	Needs:  evidence.PortNeeds(),
	Uses:   evidence.PortUses(),
	Params: []*check.Param{paramExhaustionShare, evidence.ParamPortsFull, evidence.ParamReuseDelay},
	Run:    runLocalPortExhaustion,
}

func runLocalPortExhaustion(p *check.Pass) error {
	r, err := evidence.PortRangeOf(p)
	if err != nil {
		return err
	}
	worst := map[string]evidence.PortLoad{}
	top := evidence.PortLoad{Share: quantity.Of("ports in use to any destination", 0, quantity.Ratio)}
	for _, c := range evidence.ClientPaths(p) {
		l := evidence.PortLoadOf(r, c)
		if w, ok := worst[c.Destination]; !ok || l.Share.Above(w.Share) {
			worst[c.Destination] = l
		}
		if l.Share.Above(top.Share) {
			top = l
		}
	}
	p.Read(top.Share)
	for _, c := range evidence.ClientPaths(p) { // in order, so that findings are
		if l := worst[c.Destination]; l.Path.Source == c.Source && l.Share.AtLeast(p.Param(paramExhaustionShare)) {
			p.Report(exhaustionFinding(p, r, l))
		}
	}
	return nil
}

func exhaustionFinding(p *check.Pass, r evidence.PortRange, l evidence.PortLoad) check.Finding {
	tw := l.Path.At(evidence.TimeWait, l.At)
	f := check.Finding{
		Subject:  evidence.DestinationSubject(l.Path),
		Severity: check.Info,
		Summary: fmt.Sprintf("%.0f of %s in use from %s (%s), most in %s", l.Used.Number(), r.Usable.Text(),
			l.Path.Source,
			l.Share.Text(), dominantState(l)),
		Evidence: append([]quantity.Value{r.Usable, l.Share}, portStates(l)...),
		Notes:    portOwners(l, p),
		Remedies: exhaustionRemedies(p, r, l),
		Disproof: "connect() to it never fails with EADDRNOTAVAIL (strace -f -e connect)",
		Doubts:   r.Doubts,
	}
	if 2*tw >= l.Used.Number() {
		f.Placebos = []string{evidence.FinTimeoutPlacebo}
	}
	failing, counted := evidence.Unavailable(p, l.Path.Destination)
	if counted {
		f.Evidence = append(f.Evidence, failing)
	}
	switch {
	case counted && failing.Number() > 0:
		f.Severity = check.Critical
		f.Summary += fmt.Sprintf(": %s fail with EADDRNOTAVAIL", failing.Text())
	case !counted && l.Share.AtLeast(p.Param(evidence.ParamPortsFull)):
		f.Severity = check.Critical
		f.Summary += ": connect() fails with EADDRNOTAVAIL"
	case l.Slope > 0:
		f.Severity = check.Warning
		left := r.Usable.Minus(l.Used).Per(quantity.Of("growth", l.Slope, "ports/s")).As(quantity.Seconds).
			Named("time until no port is left")
		f.Evidence = append(f.Evidence, left)
		f.Summary += fmt.Sprintf("; full in %.0f s", left.Number())
	}
	if len(r.Doubts) > 0 {
		f.Confidence = check.Medium
	}
	evidence.Gone(p, &f, check.FailedConnect)
	return f
}

// portOwners names who holds the ports, if sockets with an owner hold most of them, and who opens them.
func portOwners(l evidence.PortLoad, p *check.Pass) []string {
	live := l.Path.Live(l.At)
	if held := heldBy(p, l.Path, live); held != "" && 2*live > l.Used.Number() {
		if opened := evidence.OpenersOf(p, l.Path.Destination); opened != "" {
			return []string{held, opened}
		}
		return []string{held}
	}
	return []string{evidence.OwnersOf(p, l.Path.Destination)}
}

// dominantState returns the state that holds most of the ports.
func dominantState(l evidence.PortLoad) string {
	state, most := "", 0.0
	for _, s := range tcpStates {
		if n := l.Path.At(s, l.At); n > most {
			state, most = s, n
		}
	}
	return state
}

// portStates returns the sockets by state at the peak.
func portStates(l evidence.PortLoad) []quantity.Value {
	var out []quantity.Value
	for _, s := range tcpStates {
		if n := l.Path.At(s, l.At); n > 0 {
			out = append(out, quantity.Of(s, n, quantity.Sockets))
		}
	}
	return out
}

// tcpStates lists the client side's states, the commonest first.
var tcpStates = []string{
	evidence.TimeWait, evidence.Established, evidence.SynSent, evidence.CloseWait, "FIN_WAIT1",
	"FIN_WAIT2", "LAST_ACK", "CLOSING", "SYN_RECV",
}

func exhaustionRemedies(p *check.Pass, r evidence.PortRange, l evidence.PortLoad) []check.Remedy {
	switch dominantState(l) {
	case evidence.CloseWait:
		return []check.Remedy{{
			Action: "close sockets whose peer has closed: the program leaks them",
			Risk:   "none in the fix; a restart until then frees the ports and loses what is in flight",
			Effect: fmt.Sprintf("CLOSE_WAIT to %s falls from %.0f to about 0", l.Path.Destination,
				l.Path.At(evidence.CloseWait, l.At)),
		}}
	case evidence.TimeWait:
		return evidence.PortRemedies(p, r, l.Path)
	}
	out := []check.Remedy{{
		Action: "hold fewer connections to " + l.Path.Destination +
			": a bounded pool, or requests multiplexed over few connections",
		Risk:   "too small a pool makes requests wait: size it to rate × time a connection is in use",
		Effect: fmt.Sprintf("ports in use fall from %.0f to the pool's size", l.Used.Number()),
	}}
	if m, ok := evidence.WidenRemedy(p, r, l.Path); ok {
		m.Effect = fmt.Sprintf("usable ports rise from %.0f to %.0f", r.Usable.Number(),
			evidence.WidestHigh-evidence.WidestLow+1-r.Reserved)
		out = append(out, m)
	}
	return append(out, evidence.MorePairsRemedy(r.Usable))
}

// heldBy says who holds the sockets of a path, except those in TIME_WAIT, and how many: a process that connects in
// the window may be a victim of one that connected before. It is empty when no holder was seen.
func heldBy(p *check.Pass, c *evidence.ClientPath, live float64) string {
	list := evidence.HoldersOf(p, c.Destination)
	known := 0.0
	for _, h := range list {
		known += h.Sockets
	}
	of := fmt.Sprintf("of the %.0f looked at", known)
	// most were looked at, so it is a count and not a sample; of a process that keeps connecting a few more or fewer
	// are seen
	if 2*known > live {
		of = "sockets"
	}
	var names []string
	for i, h := range list {
		if i == evidence.OwnersShown {
			names = append(names, fmt.Sprintf("and %d more", len(list)-i))
			break
		}
		names = append(names, fmt.Sprintf("pid %s: %.0f %s", h.Name, h.Sockets, of))
	}
	if len(names) == 0 {
		return ""
	}
	return "held by " + strings.Join(names, "; ")
}
