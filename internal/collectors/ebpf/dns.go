package ebpf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func dnsCollector(l *Loader) collect.Collector {
	return collect.Collector{
		Name: "bpf-dns",
		Doc: "The target's questions to name servers over UDP, whoever waits for the answers: how many, how long, " +
			"and with what code.",
		Overhead: "measured by the kernel and recorded as bpf_program_seconds_total: 0.05 µs a packet that the " +
			"host sends, and as much for one that comes once the target has asked",
		Provides: append(Costs(), dnsMetrics()...),
		Requires: requires(),
		Since:    tracepointsWithTypes(),
		Open: func(ctx context.Context, env collect.Env) (collect.Source, error) {
			return openDNS(ctx, l, env)
		},
	}
}

func dnsMetrics() []metric.Metric {
	return []metric.Metric{metric.DNSQueries, metric.DNSAnswers, metric.DNSSeconds}
}

// dns is the source of bpf-dns.
type dns struct {
	set     *set
	expired map[bpf.DNSServer]time.Duration // how long questions were open that nobody waits for any more
}

func openDNS(ctx context.Context, l *Loader, env collect.Env) (collect.Source, error) {
	members, err := targetMembers(ctx, env, "each question to a name server")
	if err != nil {
		return nil, err
	}
	netns, err := targetNetNS(env)
	if err != nil {
		return nil, err
	}
	s, err := l.open(ctx, bpf.LoadDNS, func(spec *cilium.CollectionSpec, _ *btf.Spec) error {
		return errors.Join(setTargets(spec, members), spec.Variables[bpf.DNSVarOnlyNetns].Set(netns))
	})
	if err != nil {
		return nil, err
	}
	return &dns{set: s, expired: map[bpf.DNSServer]time.Duration{}}, nil
}

// Close unloads the programs.
func (d *dns) Close() error { return d.set.Close() }

// Sample appends the questions and answers since the programs were loaded.
func (d *dns) Sample(_ context.Context, a *recording.Appender) error {
	waited, err := d.open()
	if err != nil {
		return err
	}
	a.None(dnsMetrics()...)
	err = readHash(d.set.collection.Maps[bpf.DNSMapServers], func(by bpf.DNSServer, t *bpf.DNSAsked) {
		server := netip.AddrPortFrom(addressOf(by.Addr), uint16(by.Port)).String()
		seconds := time.Duration(t.Ns) + waited[by] + d.expired[by]
		a.Counter(metric.DNSQueries, float64(t.Queries), server)
		a.Counter(metric.DNSSeconds, seconds.Seconds(), server)
		for kind, answers := range t.Answers {
			for code, n := range answers {
				if n > 0 {
					a.Counter(metric.DNSAnswers, float64(n), server, kindNames()[kind], codeName(code))
				}
			}
		}
	})
	if err != nil {
		return err
	}
	if err := d.set.appendCost(a); err != nil {
		return err
	}
	_, err = d.set.appendLost(a, "questions past the kernel's table", "name servers past the kernel's table")
	return err
}

// longestQuery is how long a question is kept without an answer before it makes room for others: resolvers have given
// it up by then. resolv.conf may ask for 30 s at most (RES_MAXRETRANS in resolv.h).
const longestQuery = 30 * time.Second

// open returns how long questions without an answer have been open, by server.
func (d *dns) open() (map[bpf.DNSServer]time.Duration, error) {
	now, err := monotonic()
	if err != nil {
		return nil, err
	}
	m := d.set.collection.Maps[bpf.DNSMapQuestions]
	waited, old := map[bpf.DNSServer]time.Duration{}, map[bpf.DNSQuery]bpf.DNSOpen{}
	err = readHash(m, func(q bpf.DNSQuery, open *bpf.DNSOpen) {
		switch age := time.Duration(now - open.Since); {
		case now < open.Since: // asked since the clock was read
		case age > longestQuery:
			old[q] = *open
		default:
			waited[open.Server] += age
		}
	})
	for q, open := range old {
		if gone := m.Delete(q); errors.Is(gone, cilium.ErrKeyNotExist) {
			continue // answered since
		} else if gone != nil {
			return nil, errors.Join(err, fmt.Errorf("forget a question: %w", gone))
		}
		d.expired[open.Server] += time.Duration(now - open.Since)
	}
	return waited, err
}

// kindNames returns the types of questions as dig names them, in the order of bpf/dns.bpf.c, which distinguishes those
// for addresses.
func kindNames() [3]string { return [...]string{"other", "A", "AAAA"} }

// codeName returns the code of an answer as dig names it (RFC 1035, 4.1.1).
func codeName(code int) string {
	names := []string{"NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"}
	if code < len(names) {
		return names[code]
	}
	return strconv.Itoa(code)
}
