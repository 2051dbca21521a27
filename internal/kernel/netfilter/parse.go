package netfilter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// errShort is returned for messages and attributes that end before their stated length.
var errShort = errors.New("short netlink message")

// message is one netlink message: type and flags of its header, the nfgenmsg family, and the attributes.
type message struct {
	typ, flags uint16
	family     byte
	body       []byte
	errno      unix.Errno
}

// genHeader is struct nfgenmsg: family, version, resource id (include/uapi/linux/netfilter/nfnetlink.h).
const genHeader = 4

// nextMessage splits the first message off a datagram.
func nextMessage(b []byte) (m message, rest []byte, err error) {
	if len(b) < unix.NLMSG_HDRLEN {
		return message{}, nil, errShort
	}
	size := int(binary.NativeEndian.Uint32(b))
	m.typ, m.flags = binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:])
	if size < unix.NLMSG_HDRLEN || size > len(b) {
		return message{}, nil, fmt.Errorf("%w: %d of %d bytes", errShort, len(b), size)
	}
	body := b[unix.NLMSG_HDRLEN:size]
	rest = b[min(len(b), align(size)):]
	switch m.typ {
	case unix.NLMSG_ERROR, unix.NLMSG_DONE: // both may carry a negative errno
		if len(body) >= 4 {
			m.errno = unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
		}
	default:
		if len(body) < genHeader {
			return message{}, nil, errShort
		}
		m.family, m.body = body[0], body[genHeader:]
	}
	return m, rest, nil
}

func align(n int) int { return (n + 3) &^ 3 } // NLMSG_ALIGNTO and NLA_ALIGNTO are both 4

// nestedMask removes NLA_F_NESTED and NLA_F_NET_BYTEORDER from an attribute's type (include/uapi/linux/netlink.h).
const nestedMask = 1<<14 - 1

// attributes calls f for each attribute; values are not copied.
func attributes(b []byte, f func(typ uint16, value []byte) error) error {
	for len(b) > 0 {
		if len(b) < unix.SizeofNlAttr {
			return errShort
		}
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofNlAttr || size > len(b) {
			return fmt.Errorf("%w: attribute of %d bytes in %d", errShort, size, len(b))
		}
		if err := f(binary.NativeEndian.Uint16(b[2:])&nestedMask, b[unix.SizeofNlAttr:size]); err != nil {
			return err
		}
		b = b[min(len(b), align(size)):]
	}
	return nil
}

// bigUint32 reads a number of nf_tables, which is big endian (unlike netlink's own).
func bigUint32(b []byte) (uint32, error) {
	if len(b) != 4 {
		return 0, fmt.Errorf("%w: a number of %d bytes", errShort, len(b))
	}
	return binary.BigEndian.Uint32(b), nil
}

// text removes the terminating zero from a string.
func text(b []byte) []byte {
	before, _, _ := bytes.Cut(b, []byte{0})
	return before
}

// chainID finds a chain: names are unique within a table, tables within a family.
type chainID struct {
	family      byte
	table, name string
}

// chain is what perfdoctor keeps of one chain: numbers of rules, and where they jump to.
type chain struct {
	Chain
	jumps []string
}

// attribute calls f for each attribute of one type.
func attribute(b []byte, want uint16, f func(value []byte) error) error {
	return attributes(b, func(typ uint16, value []byte) error {
		if typ != want {
			return nil
		}
		return f(value)
	})
}

// addChain takes in an NFT_MSG_NEWCHAIN.
func (r *ruleset) addChain(m message) error {
	c := chain{Chain: Chain{Family: familyName(m.family)}}
	var hook uint32
	base := false
	err := attributes(m.body, func(typ uint16, value []byte) error {
		var err error
		switch typ {
		case unix.NFTA_CHAIN_TABLE:
			c.Table = string(text(value))
		case unix.NFTA_CHAIN_NAME:
			c.Name = string(text(value))
		case unix.NFTA_CHAIN_TYPE:
			c.Type = string(text(value))
		case unix.NFTA_CHAIN_HOOK:
			base = true
			hook, c.Priority, err = parseHook(value)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("chain %s %s: %w", c.Table, c.Name, err)
	}
	if base {
		c.Hook = hookName(m.family, hook)
	}
	r.chains[chainID{m.family, c.Table, c.Name}] = &c
	return nil
}

func parseHook(b []byte) (hook uint32, priority int32, err error) {
	err = attributes(b, func(typ uint16, value []byte) error {
		switch typ {
		case unix.NFTA_HOOK_HOOKNUM:
			hook, err = bigUint32(value)
		case unix.NFTA_HOOK_PRIORITY:
			var n uint32
			n, err = bigUint32(value)
			priority = int32(n)
		}
		return err
	})
	return hook, priority, err
}

// addRule takes in an NFT_MSG_NEWRULE. It is the hot path: it walks 20,000 rules without an allocation for each.
func (r *ruleset) addRule(m message) error {
	var table, name, expressions []byte
	err := attributes(m.body, func(typ uint16, value []byte) error {
		switch typ {
		case unix.NFTA_RULE_TABLE:
			table = text(value)
		case unix.NFTA_RULE_CHAIN:
			name = text(value)
		case unix.NFTA_RULE_EXPRESSIONS:
			expressions = value
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("rule: %w", err)
	}
	c := r.chains[chainID{m.family, string(table), string(name)}]
	if c == nil { // added between the two dumps
		r.summary.Changed = true
		return nil
	}
	c.Rules++
	r.summary.Rules++
	err = attributes(expressions, func(_ uint16, value []byte) error { return r.addExpression(c, value) })
	if err != nil {
		return fmt.Errorf("rule of chain %s %s: %w", table, name, err)
	}
	return nil
}

func (r *ruleset) addExpression(c *chain, b []byte) error {
	var name, data []byte
	err := attributes(b, func(typ uint16, value []byte) error {
		switch typ {
		case unix.NFTA_EXPR_NAME:
			name = text(value)
		case unix.NFTA_EXPR_DATA:
			data = value
		}
		return nil
	})
	if err != nil {
		return err
	}
	switch string(name) {
	case "masq":
		r.summary.addNAT("MASQUERADE")
	case "redir":
		r.summary.addNAT("REDIRECT")
	case "nat":
		return r.addNAT(data)
	case "target": // iptables-nft keeps the old targets (net/netfilter/nft_compat.c)
		return attribute(data, unix.NFTA_TARGET_NAME, func(value []byte) error {
			r.summary.addNAT(string(text(value)))
			return nil
		})
	case "lookup":
		return r.addLookup(data)
	case "immediate":
		return addJump(c, data)
	}
	return nil
}

func (r *ruleset) addNAT(data []byte) error {
	return attribute(data, unix.NFTA_NAT_TYPE, func(value []byte) error {
		kind, err := bigUint32(value)
		if err == nil && kind == unix.NFT_NAT_SNAT {
			r.summary.addNAT("SNAT")
		} else if err == nil {
			r.summary.addNAT("DNAT")
		}
		return err
	})
}

// addLookup counts set lookups, and separately those into a map of verdicts (destination register 0,
// NFT_REG_VERDICT). The jumps of such a map are in its elements and are not followed.
func (r *ruleset) addLookup(data []byte) error {
	r.summary.Lookups++
	return attribute(data, unix.NFTA_LOOKUP_DREG, func(value []byte) error {
		register, err := bigUint32(value)
		if err == nil && register == unix.NFT_REG_VERDICT {
			r.summary.VerdictMaps++
		}
		return err
	})
}

// addJump notes the chain an immediate verdict leads to; other verdicts have no chain.
func addJump(c *chain, data []byte) error {
	return attribute(data, unix.NFTA_IMMEDIATE_DATA, func(value []byte) error {
		return attribute(value, unix.NFTA_DATA_VERDICT, func(verdict []byte) error {
			return attribute(verdict, unix.NFTA_VERDICT_CHAIN, func(name []byte) error {
				c.jumps = append(c.jumps, string(text(name)))
				return nil
			})
		})
	})
}
