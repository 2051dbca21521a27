package redact

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
)

// Endpoint returns the pseudonym of an address with or without a port: "10.0.0.5:443", "[::1]:80", "::",
// "db.example.com:5432", or "unix:/run/app.sock". Anything else is a host's name, except "" and "*", which name no
// host.
func (n *Names) Endpoint(s string) string {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return "unix:" + n.Path(path)
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return netip.AddrPortFrom(n.Addr(ap.Addr()), ap.Port()).String()
	}
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		out := n.Addr(a).String()
		if strings.HasPrefix(s, "[") {
			out = "[" + out + "]"
		}
		return out
	}
	host, port, found := strings.Cut(s, ":")
	if found && isNumber(port) {
		return n.host(host) + ":" + port
	}
	return n.host(s)
}

func (n *Names) host(name string) string {
	if name == "*" || name == "localhost" || isNumber(name) {
		return name
	}
	return n.Word("host", name)
}

// Addr returns an address of the same class: private for private, public for public. Addresses of one network (/24 of
// IPv4, /64 of IPv6, as the checks group peers) stay in one network. Loopback, unspecified, multicast and broadcast
// addresses name no host and stay.
func (n *Names) Addr(a netip.Addr) netip.Addr {
	if zone := a.Zone(); zone != "" { // named after an interface
		return n.Addr(a.WithZone("")).WithZone(n.Device(zone))
	}
	switch {
	case a.IsLoopback() || a.Unmap().IsLoopback() || a.Unmap().IsUnspecified() || a.Unmap().IsMulticast():
		return a
	case a.Is4():
		return n.addr4(a)
	case a.Is4In6():
		return netip.AddrFrom16(n.addr4(a.Unmap()).As16())
	}
	return n.addr6(a)
}

// The networks of one class, within which pseudonyms stay: private ones (RFC 1918, RFC 6598) and link-local ones (RFC
// 3927).
var classes4 = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("224.0.0.0/3"),
}

// hostBits is the part of an IPv4 address within its network.
const hostBits = 8

func (n *Names) addr4(a netip.Addr) netip.Addr {
	raw := a.As4()
	address := binary.BigEndian.Uint32(raw[:])
	if address == 1<<32-1 { // broadcast
		return a
	}
	network, class := n.network4(a, address>>hostBits)
	host := n.permute(fmt.Sprintf("host %s %d", class, address>>hostBits), address&(1<<hostBits-1), hostBits)
	binary.BigEndian.PutUint32(raw[:], network<<hostBits|host)
	return netip.AddrFrom4(raw)
}

// network4 permutes the networks of the address's class among each other, so that no two get the same pseudonym.
func (n *Names) network4(a netip.Addr, network uint32) (pseudonym uint32, class string) {
	for _, p := range classes4 {
		if p.Contains(a) {
			bits := 32 - hostBits - p.Bits()
			low := uint32(1)<<bits - 1
			return network&^low | n.permute(p.String(), network&low, bits), p.String()
		}
	}
	// permute all networks, again and again until the result is a public one: this permutes the public ones
	for {
		network = n.permute("public", network, 32-hostBits)
		if isPublic(network) {
			return network, "public"
		}
	}
}

func isPublic(network uint32) bool {
	var raw [4]byte
	binary.BigEndian.PutUint32(raw[:], network<<hostBits)
	for _, p := range classes4 {
		if p.Contains(netip.AddrFrom4(raw)) {
			return false
		}
	}
	return true
}

// rounds of a Feistel network: four make it a permutation that looks random to an observer of pairs (M. Luby, C.
// Rackoff, 1988); there are more because halves are small.
const rounds = 8

// permute is a keyed permutation of the numbers with that many bits, an even number.
func (n *Names) permute(kind string, x uint32, bits int) uint32 {
	half := bits / 2
	mask := uint32(1)<<half - 1
	left, right := x>>half, x&mask
	for round := range rounds {
		f := uint32(n.uint64("permute", fmt.Sprintf("%s %d %d", kind, round, right)))
		left, right = right, left^f&mask
	}
	return left<<half | right
}

// Where pseudonyms of IPv6 lie: private and link-local ones stay in their ranges, and the others are in the range for
// documentation (RFC 3849), from which no host has an address.
var (
	private6   = netip.MustParsePrefix("fc00::/7")
	linkLocal6 = netip.MustParsePrefix("fe80::/10")
	document6  = []byte{0x20, 0x01, 0x0d, 0xb8}
)

func (n *Names) addr6(a netip.Addr) netip.Addr {
	raw := a.As16()
	network, host := string(raw[:8]), string(raw[:])
	copy(raw[8:], n.sum("host6", host))
	switch {
	case linkLocal6.Contains(a): // all in one network
	case private6.Contains(a):
		copy(raw[1:8], n.sum("network6", network))
	default:
		copy(raw[:4], document6)
		copy(raw[4:8], n.sum("network6", network))
	}
	return netip.AddrFrom16(raw)
}
