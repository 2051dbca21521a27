package connections

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var paramTCPMemoryShare = &check.Param{
	Name: "share", Default: 0.9, Unit: quantity.Ratio,
	Why: "at the limit sockets get no memory and data is dropped; one burst of a tenth is seconds away",
}

// pageBytes is the page size of amd64 and of most arm64 kernels; the recording does not hold the real one, so text that
// uses it says so.
const pageBytes = 4096

var tcpMemoryPressure = &check.Check{
	Name:  "tcp-memory-pressure",
	Stage: check.Connections,
	Doc: `TCP is short of buffer memory
The kernel bounds the memory of all TCP sockets of the host by net.ipv4.tcp_mem (low, pressure, high, in pages). Above
pressure it stops growing windows and prunes; at high it drops segments and aborts orphans.

Measured: pages in use (/proc/net/sockstat) over high, and entries into pressure in the window (TCPMemoryPressures).
It is critical when connections were aborted for it.

Usual causes: readers that do not read (Recv-Q), peers that do not acknowledge (Send-Q), very many connections, a leak.
Fix: find the sockets with large queues first; raise tcp_mem when there is free memory.
Won't help: larger tcp_rmem or tcp_wmem, which use memory up faster.
Disproved if pages in use fall while load is the same.`,
	URL:   "https://www.kernel.org/doc/html/latest/networking/ip-sysctl.html",
	Needs: []metric.Metric{metric.TCPMemory, metric.TCPMemHigh},
	Uses: []metric.Metric{
		metric.TCPMemPressure, metric.TCPMemoryPressures, metric.TCPAbortOnMemory,
		metric.MemoryAvailable,
	},
	Params: []*check.Param{paramTCPMemoryShare},
	Run:    runTCPMemoryPressure,
}

func runTCPMemoryPressure(p *check.Pass) error {
	high, err := evidence.NeedGlobalSetting(p, metric.TCPMemHigh)
	if err != nil {
		return err
	}
	series := p.Gauge(metric.TCPMemory, "netns", metric.NetNSTarget)
	if len(series) == 0 || high <= 0 {
		return check.NotAssessed("", "tcp_memory_pages has no sample, or tcp_mem is %.0f", high)
	}
	limit := quantity.Of("tcp_mem high", high, quantity.Pages)
	used := quantity.Of("pages in use, at most", series[0].Max(), quantity.Pages)
	share := used.Per(limit).Named("TCP memory in use")
	p.Read(share)
	entered, recorded := evidence.MaybeNetRise(p, metric.TCPMemoryPressures, "entries into memory pressure")
	pressed := recorded && entered.N.Number() > 0
	if share.Below(p.Param(paramTCPMemoryShare)) && !pressed {
		return nil
	}
	f := check.Finding{
		Subject:  check.Host,
		Severity: check.Warning,
		Summary:  fmt.Sprintf("TCP buffers hold %.0f of %s = %s", used.Number(), limit.Text(), share.Text()),
		Evidence: []quantity.Value{share},
		Remedies: tcpMemoryRemedies(p, high),
		Placebos: []string{"larger tcp_rmem or tcp_wmem: they use the memory up faster"},
		Disproof: "pages in use (mem in /proc/net/sockstat) fall while the load stays the same",
	}
	if pressed {
		f.Evidence = append(f.Evidence, entered.Rate())
		f.Summary += fmt.Sprintf("; entered memory pressure %.0f times", entered.N.Number())
	}
	if v, ok := evidence.GlobalSetting(p, metric.TCPMemPressure); ok {
		f.Evidence = append(f.Evidence, quantity.Of("tcp_mem pressure", v, quantity.Pages))
	}
	if a, ok := evidence.MaybeNetRise(p, metric.TCPAbortOnMemory, "connections aborted for memory"); ok &&
		a.N.Number() > 0 {
		f.Severity = check.Critical
		f.Evidence = append(f.Evidence, a.Rate())
		f.Summary += fmt.Sprintf("; %.0f connections aborted", a.N.Number())
	}
	p.Report(f)
	return nil
}

func tcpMemoryRemedies(p *check.Pass, high float64) []check.Remedy {
	out := []check.Remedy{{
		Action: "find the sockets that hold it: a large Recv-Q is a program here that does not read, a large Send-Q " +
			"a peer " +
			"that does not acknowledge",
		Command: evidence.InNetNS(p, "ss -tmnp"),
		Risk:    "none, it only reads; seconds of CPU with 100000 sockets",
		Effect:  "pages in use fall once the queue drains",
	}}
	raise := check.Remedy{
		Action:  "raise tcp_mem, by half",
		Command: check.Commandf("sysctl -w net.ipv4.tcp_mem='%.0f %.0f %.0f'", 0.75*high, high, 1.5*high),
		Risk: fmt.Sprintf("up to %s more kernel memory that cannot be swapped (at 4 KiB a page)",
			quantity.Of("", high/2*pageBytes, quantity.Bytes).Text()),
		Effect: fmt.Sprintf("the limit rises from %.0f to %.0f pages", high, 1.5*high),
	}
	for _, s := range p.Gauge(metric.MemoryAvailable) {
		raise.Risk += fmt.Sprintf("; %s are available now", quantity.Of("", s.Last(), quantity.Bytes).Text())
	}
	return append(out, raise)
}
