package lab

import (
	"encoding/binary"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// rulesPerBatch keeps a transaction's message below the socket buffer set beside it: about 300 bytes a rule.
	rulesPerBatch = 1000
	// ruleBuffer holds one batch of rules and its acknowledgements. The kernel sends all acknowledgements before the
	// first one is read: 1000 x (error header + skb overhead of about 800 bytes). Beyond that it reports ENOBUFS.
	ruleBuffer = 4 << 20
	// maxLinearRules keeps the chain's blob below what nft_chain_commit allocates at once
	// (net/netfilter/nf_tables_api.c, INT_MAX), and the load time in seconds.
	maxLinearRules = 150_000
	// maxOneIn is a loss of 0.1 %. A test of some seconds cannot tell a smaller loss from none.
	maxOneIn = 1000
)

// nft opens a connection to the host's rules. Each lab table has its own name, so that calls can be combined.
func (h *Host) nft() (*nftables.Conn, error) {
	conn, err := nftables.New(nftables.WithNetNSFd(h.ns), nftables.WithSockOptions(bigBuffers))
	if err != nil {
		return nil, fmt.Errorf("host %s: nftables (needs CONFIG_NF_TABLES): %w", h.name, err)
	}
	return conn, nil
}

func bigBuffers(conn *netlink.Conn) error {
	if err := conn.SetReadBuffer(ruleBuffer); err != nil {
		return err
	}
	return conn.SetWriteBuffer(ruleBuffer)
}

func (h *Host) flush(conn *nftables.Conn, what string) error {
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("host %s: %s: %w", h.name, what, err)
	}
	return nil
}

// Masquerade rewrites the source of IPv4 packets that leave by dev to the address of dev, with connection tracking.
func (h *Host) Masquerade(dev string) error {
	if len(dev) >= unix.IFNAMSIZ {
		return fmt.Errorf("host %s: masquerade: device name %q is too long", h.name, dev)
	}
	conn, err := h.nft()
	if err != nil {
		return err
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "pd_nat"})
	chain := conn.AddChain(&nftables.Chain{
		Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, dev)
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name},
		&expr.Masq{},
	}})
	return h.flush(conn, "masquerade "+dev)
}

// LinearRules puts n rules that never match into the forward chain, for a gateway whose cost per packet grows with
// its rules. Their addresses are from 240.0.0.0/4, which no host has (RFC 1112, reserved). Each call adds to the
// chain.
func (h *Host) LinearRules(n int) error {
	if n < 0 || n > maxLinearRules {
		return fmt.Errorf("host %s: %d rules: want 0 to %d", h.name, n, maxLinearRules)
	}
	conn, err := h.nft()
	if err != nil {
		return err
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "pd_linear"})
	chain := conn.AddChain(&nftables.Chain{
		Name: "forward", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	})
	for i := range n {
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: neverMatches(i)})
		if (i+1)%rulesPerBatch != 0 {
			continue
		}
		if err := h.flush(conn, "load linear rules"); err != nil {
			return err
		}
	}
	return h.flush(conn, "load linear rules")
}

// neverMatches returns "ip saddr 240.x.y.z drop".
func neverMatches(i int) []expr.Any {
	const sourceOffset = 12 // offset of the source address in an IPv4 header
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: sourceOffset, Len: 4},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint32(nil, 0xf0000000|uint32(i))},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}
}

// DropSYN silently drops the first packet of every TCP connection to port on this host: a black hole on the path that
// the listener's counters do not see.
func (h *Host) DropSYN(port uint16) error { return h.DropOneSYNIn(1, port) }

// DropOneSYNIn drops every nth SYN to port, beginning with the first: a lossy path with an exact loss rate.
func (h *Host) DropOneSYNIn(n int, port uint16) error {
	if n < 1 || n > maxOneIn {
		return fmt.Errorf("host %s: drop one SYN in %d: want 1 to %d", h.name, n, maxOneIn)
	}
	conn, err := h.nft()
	if err != nil {
		return err
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "pd_syn"})
	chain := conn.AddChain(&nftables.Chain{
		Name: "input", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter,
	})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: dropsSYN(n, port)})
	return h.flush(conn, fmt.Sprintf("drop SYN to port %d", port))
}

// dropsSYN returns "tcp dport PORT tcp flags & (syn|ack) == syn numgen inc mod N 0 drop". Offsets are in the TCP
// header (RFC 9293).
func dropsSYN(n int, port uint16) []expr.Any {
	const synBit, synAckBits = 0x02, 0x12
	match := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{synAckBits}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{synBit}},
	}
	if n > 1 { // numgen needs CONFIG_NFT_NUMGEN; dropping all SYNs does not
		match = append(match,
			&expr.Numgen{Register: 1, Modulus: uint32(n), Type: unix.NFT_NG_INCREMENTAL},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(0)})
	}
	return append(match, &expr.Verdict{Kind: expr.VerdictDrop})
}
