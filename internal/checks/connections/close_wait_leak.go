package connections

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramCloseWaitSockets = &check.Param{
		Name: "sockets", Default: 10, Unit: quantity.Sockets,
		Why: "a few are always between the peer's FIN and the program's close()",
	}
	paramCloseWaitGrowth = &check.Param{
		Name: "growth", Default: 3, Unit: quantity.Sockets,
		Why: "one or two more may be timing; three more and none gone is a leak",
	}
	paramCloseWaitSamples = &check.Param{
		Name: "samples", Default: 4, Unit: "samples",
		Why: "over fewer, a rise is luck; a number that only rises over four is not",
	}
	paramCloseWaitFall = &check.Param{
		Name: "fall", Default: 0.05, Unit: quantity.Ratio,
		Why: "sockets that are closed after all make the number fall; with a leak only a straggler does",
	}
)

var closeWaitLeak = &check.Check{
	Name:  "close-wait-leak",
	Stage: check.Connections,
	Doc: `Sockets in CLOSE_WAIT grow: the program does not close what its peer has closed
In CLOSE_WAIT the peer has sent FIN and the kernel waits for this program's close(). It waits for ever: no timeout, no
sysctl. Each holds a file descriptor, and on the client side a local port, until accept() or socket() fails with
EMFILE.

Measured: CLOSE_WAIT sockets per process at each sample; at least ten, more at the end than at the start, and never a
real fall in between. With the process's open files and limit, the time until they are used up. A level that stays is
info. Where owners cannot be read, the namespace's total is used.

Fix: close the socket, on the error path as well (response body not read or not closed, a pool that does not test
idle connections). A restart frees them for a while. Won't help: tcp_keepalive_time, tcp_fin_timeout, tcp_tw_reuse; none
ends CLOSE_WAIT.
Disproved if the number falls again by itself: then the program is only late.`,
	URL:   "https://www.rfc-editor.org/rfc/rfc9293#section-3.3.2",
	Needs: []metric.Metric{metric.Sockets},
	Uses: []metric.Metric{
		metric.ProcessSockets, metric.ProcessFDs, metric.ProcessFDLimit, metric.DestinationSockets,
		metric.ListenerSockets,
	},
	Params: []*check.Param{paramCloseWaitSockets, paramCloseWaitGrowth, paramCloseWaitSamples, paramCloseWaitFall},
	Run:    runCloseWaitLeak,
}

func runCloseWaitLeak(p *check.Pass) error {
	total, counted := evidence.First(p.Gauge(metric.Sockets, "state", evidence.CloseWait))
	all := 0.0
	if counted {
		all = total.Max()
	}
	p.Read(quantity.Of("sockets in CLOSE_WAIT, at most", all, quantity.Sockets))
	owned := p.Gauge(metric.ProcessSockets, "state", evidence.CloseWait)
	known := 0.0
	for _, s := range owned {
		known += s.Last()
	}
	if counted && 2*known < total.Last() { // most belong to processes whose descriptors could not be read
		reportCloseWait(p, total, evidence.NetNSSubject(p), "")
		return nil
	}
	for _, s := range owned {
		reportCloseWait(p, s, evidence.PIDSubject(s.Label("pid"), s.Label("comm")), s.Label("pid"))
	}
	return nil
}

// reportCloseWait judges one series; pid is empty when it is the namespace's.
func reportCloseWait(p *check.Pass, s recording.GaugeSeries, subject check.Subject, pid string) {
	now := quantity.Of("in CLOSE_WAIT", s.Last(), quantity.Sockets)
	if now.Below(p.Param(paramCloseWaitSockets)) {
		return
	}
	f := check.Finding{
		Subject:  subject,
		Severity: check.Info,
		Summary: fmt.Sprintf("%.0f sockets in CLOSE_WAIT, closed by the peer and not by the program; not growing",
			s.Last()),
		Evidence: []quantity.Value{now},
		Remedies: []check.Remedy{{
			Action: "close the socket where the program stops using it, on error paths as well; test pooled " +
				"connections before use",
			Risk:   "none in the fix; a restart until then frees the descriptors and drops what is in flight",
			Effect: fmt.Sprintf("CLOSE_WAIT falls from %.0f to a few", s.Last()),
		}},
		Placebos: []string{"tcp_keepalive_time, tcp_fin_timeout, tcp_tw_reuse: no timer ends CLOSE_WAIT, only " +
			"close() does"},
		Disproof: "the number falls again without a restart: the program then closes late, and leaks nothing",
		Notes:    closeWaitPlaces(p),
	}
	if pid == "" {
		f.Confidence = check.Medium
		f.Doubts = []string{"no owner could be read: run as root to name the process"}
	}
	if grown, ok := leaking(p, s); ok {
		if pid != "" {
			grown = atMostTotal(p, grown)
		}
		if grown.Below(p.Param(paramCloseWaitGrowth)) {
			return
		}
		f.Severity = check.Warning
		rate := grown.Per(evidence.Span(s.Series)).Named("growth")
		f.Summary = fmt.Sprintf("%.0f sockets in CLOSE_WAIT, %.0f more in %s = %s", s.Last(), grown.Number(),
			evidence.Span(s.Series).Text(), rate.Text())
		f.Evidence = append(f.Evidence, rate)
		closeWaitForecast(p, &f, pid, rate)
	} else if s.Min() < p.Param(paramCloseWaitSockets).Number() {
		return // it was low in between: sockets come and go
	}
	p.Report(f)
}

// leaking reports whether the number grew without a fall, and by how much.
func leaking(p *check.Pass, s recording.GaugeSeries) (grown quantity.Value, ok bool) {
	grown = quantity.Of("more in the window", s.Last()-s.First(), quantity.Sockets)
	samples := quantity.Of("samples", float64(len(s.Points)), "samples")
	if samples.Below(p.Param(paramCloseWaitSamples)) || grown.Below(p.Param(paramCloseWaitGrowth)) {
		return grown, false
	}
	for i := 1; i < len(s.Points); i++ {
		fall := s.Points[i-1].Value - s.Points[i].Value
		if fall > max(1, p.Param(paramCloseWaitFall).Number()*s.Points[i-1].Value) {
			return grown, false
		}
	}
	return grown, true
}

// atMostTotal bounds a process's growth by the namespace's: a process's number also grows while its sockets are still
// being found, and that is no leak.
func atMostTotal(p *check.Pass, grown quantity.Value) quantity.Value {
	for _, s := range p.Gauge(metric.Sockets, "state", evidence.CloseWait) {
		total := quantity.Of(grown.Label(), s.Last()-s.First(), quantity.Sockets)
		if grown.Above(total) {
			return total
		}
	}
	return grown
}

// closeWaitForecast adds when the process runs out of file descriptors.
func closeWaitForecast(p *check.Pass, f *check.Finding, pid string, rate quantity.Value) {
	limit, limited := evidence.LastOf(p.Gauge(metric.ProcessFDLimit, "pid", pid))
	open, counted := evidence.LastOf(p.Gauge(metric.ProcessFDs, "pid", pid))
	if !limited || !counted {
		return
	}
	free := quantity.Of("limit", limit, quantity.Files).Minus(quantity.Of("open", open, quantity.Files)).
		Named("file descriptors left")
	left := free.As(quantity.Sockets).Per(rate).As(quantity.Seconds).Named("time until none is left")
	f.Evidence = append(f.Evidence, free, left)
	f.Summary += fmt.Sprintf("; out of file descriptors in %.0f s", left.Number())
}

// closeWaitPlaces names the destination or listener with most of them.
func closeWaitPlaces(p *check.Pass) []string {
	top, where := 0.0, ""
	for _, s := range p.Gauge(metric.DestinationSockets, "state", evidence.CloseWait) {
		if s.Last() > top {
			top, where = s.Last(), "to "+s.Label("destination")
		}
	}
	for _, s := range p.Gauge(metric.ListenerSockets, "state", evidence.CloseWait) {
		if s.Last() > top {
			top, where = s.Last(), "accepted on "+s.Label("listener")
		}
	}
	if where == "" {
		return nil
	}
	return []string{fmt.Sprintf("most of the namespace's: %.0f %s", top, where)}
}
