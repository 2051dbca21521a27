package netfilter

import (
	"cmp"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Chain is one chain with the number of its own rules.
type Chain struct {
	Family, Table, Name string
	// Hook is where packets enter it, "" for a chain that is only jumped to.
	Hook string
	// Type is "filter", "nat" or "route" for a chain with a hook.
	Type     string
	Priority int32
	Rules    int
}

// Hook is what a packet meets at one hook of its path, in all base chains there.
//
// Packet and Connection are rules of the base chains themselves: a packet that matches no rule walks them all. Jumped
// rules are in chains reached from there by static jumps, each chain counted once. They are an approximation: jumps
// need not be taken, a chain may be entered twice, a verdict ends a walk early, and verdict maps are not followed.
type Hook struct {
	// Packet rules are walked for each packet.
	Packet int
	// Connection rules are in nat chains, which only the first packet of a connection walks
	// (net/netfilter/nf_nat_core.c).
	Connection int
	// PacketJumped and ConnectionJumped are the rules within reach by jumps.
	PacketJumped, ConnectionJumped int
}

// LegacyTable is a table of iptables-legacy or ip6tables-legacy, which nf_tables does not know.
type LegacyTable struct {
	// Family is "ip" or "ip6"; Name is "filter", "nat", "mangle", "raw" or "security".
	Family, Name string
	// Entries is the kernel's count: rules, one policy per hook, two for each user chain, and one that ends the
	// table.
	Entries int
	// Rules is Entries without those.
	Rules int
	// EntriesByHook is the number of entries from a hook's first to its policy: what a packet without a jump walks.
	EntriesByHook map[string]int
}

// Summary describes the packet filter rules of one network namespace. Numbers count rules unless they say otherwise.
type Summary struct {
	// Present says that nf_tables is in the kernel. Without it there are certainly no nftables rules.
	Present bool
	// Tables, Chains, Sets (maps too) and Rules are totals of nf_tables, all families.
	Tables, Chains, Sets, Rules int
	// NATRules translate addresses, in nf_tables and legacy tables; the next four are parts of it.
	NATRules, Masquerade, SNAT, DNAT, Redirect int
	// Lookups are rules' uses of a set; VerdictMaps are those that jump by a map.
	Lookups, VerdictMaps int
	// IPv4 and IPv6 are keyed by "prerouting", "input", "forward", "output", "postrouting" and sum the chains of the
	// family itself and of inet. They leave out legacy tables.
	IPv4, IPv6 map[string]Hook
	// Base are the chains with a hook, of all families, the longest first.
	Base []Chain
	// Longest is the chain with the most rules; its Rules are 0 when there are none.
	Longest Chain
	Legacy  []LegacyTable
	// Truncated is set when the reading stopped at its limit of rules or of time: all numbers are then lower bounds.
	Truncated bool
	// Changed is set when the rules changed while they were read, so that sums may be off by the change.
	Changed bool
	// Notes say in words what could not be read, and why.
	Notes []string
}

func add(a, b Hook) Hook {
	return Hook{
		a.Packet + b.Packet, a.Connection + b.Connection,
		a.PacketJumped + b.PacketJumped, a.ConnectionJumped + b.ConnectionJumped,
	}
}

// addNAT counts a target by its iptables name. Others, such as "LOG" or "KUBE-MARK", are not NAT.
func (s *Summary) addNAT(target string) {
	switch target {
	case "MASQUERADE":
		s.Masquerade++
	case "SNAT", "NETMAP": // NETMAP in either direction; one for one, still a translation
		s.SNAT++
	case "DNAT":
		s.DNAT++
	case "REDIRECT":
		s.Redirect++
	default:
		return
	}
	s.NATRules++
}

// ruleset is a Summary in the making.
type ruleset struct {
	summary Summary
	chains  map[chainID]*chain
}

func newRuleset() *ruleset {
	return &ruleset{
		summary: Summary{IPv4: map[string]Hook{}, IPv6: map[string]Hook{}},
		chains:  map[chainID]*chain{},
	}
}

// finish computes what depends on all chains.
func (r *ruleset) finish() Summary {
	s := &r.summary
	s.Chains = len(r.chains)
	for id, c := range r.chains {
		if longer(c.Chain, s.Longest) < 0 {
			s.Longest = c.Chain
		}
		if c.Hook == "" {
			continue
		}
		s.Base = append(s.Base, c.Chain)
		jumped := r.jumped(id, map[string]bool{id.name: true})
		if id.family == unix.NFPROTO_IPV4 || id.family == unix.NFPROTO_INET {
			s.IPv4[c.Hook] = add(s.IPv4[c.Hook], c.walk(jumped))
		}
		if id.family == unix.NFPROTO_IPV6 || id.family == unix.NFPROTO_INET {
			s.IPv6[c.Hook] = add(s.IPv6[c.Hook], c.walk(jumped))
		}
	}
	slices.SortFunc(s.Base, longer)
	return *s
}

func (c *chain) walk(jumped int) Hook {
	if c.Type == "nat" {
		return Hook{Connection: c.Rules, ConnectionJumped: jumped}
	}
	return Hook{Packet: c.Rules, PacketJumped: jumped}
}

// longer orders by rules, then by name so that equal ones come in the same order each time.
func longer(a, b Chain) int {
	return cmp.Or(cmp.Compare(b.Rules, a.Rules), cmp.Compare(a.Family, b.Family), cmp.Compare(a.Table, b.Table),
		cmp.Compare(a.Name, b.Name))
}

// jumped sums the rules of all chains of the table within reach of a chain. The kernel refuses loops
// (net/netfilter/nf_tables_api.c), but a listing torn by a change might show one, so the walk stops at visited
// chains.
func (r *ruleset) jumped(from chainID, visited map[string]bool) int {
	sum := 0
	pending := []string{from.name}
	for len(pending) > 0 {
		c := r.chains[chainID{from.family, from.table, pending[0]}]
		pending = pending[1:]
		if c == nil {
			continue
		}
		for _, name := range c.jumps {
			target := r.chains[chainID{from.family, from.table, name}]
			if target == nil || visited[name] {
				continue
			}
			visited[name] = true
			sum += target.Rules
			pending = append(pending, name)
		}
	}
	return sum
}

func familyName(family byte) string {
	switch family {
	case unix.NFPROTO_INET:
		return "inet"
	case unix.NFPROTO_IPV4:
		return "ip"
	case unix.NFPROTO_IPV6:
		return "ip6"
	case unix.NFPROTO_ARP:
		return "arp"
	case unix.NFPROTO_NETDEV:
		return "netdev"
	case unix.NFPROTO_BRIDGE:
		return "bridge"
	}
	return fmt.Sprintf("family %d", family)
}

// hookName follows enum nf_inet_hooks, nf_dev_hooks and nf_arp hooks of include/uapi/linux/netfilter*.h.
func hookName(family byte, hook uint32) string {
	names := []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}
	switch family {
	case unix.NFPROTO_NETDEV:
		names = []string{"ingress", "egress"}
	case unix.NFPROTO_ARP:
		names = []string{"input", "output", "forward"}
	}
	if int(hook) < len(names) {
		return names[hook]
	}
	return fmt.Sprintf("hook %d", hook)
}
