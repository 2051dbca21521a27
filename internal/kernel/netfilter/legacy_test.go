package netfilter

import (
	"encoding/binary"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// legacyEntry is an ipt_entry for any packet with a target of nf_nat_ipv4_multi_range_compat, as iptables-legacy
// writes "-j MASQUERADE": entry 112, xt_entry_target 32, range count u32, one range of 16, padded to 8.
func legacyEntry(target string) []byte {
	const header, size = 112, 112 + 32 + 24
	b := make([]byte, size)
	binary.NativeEndian.PutUint16(b[88:], header)
	binary.NativeEndian.PutUint16(b[90:], size)
	binary.NativeEndian.PutUint16(b[header:], size-header)
	copy(b[header+2:], target)
	binary.NativeEndian.PutUint32(b[header+32:], 1)
	return b
}

// addMasquerade puts n rules before the policy of postrouting, with IPT_SO_SET_REPLACE as iptables-legacy does.
func addMasquerade(l legacy, name string, n int) error {
	return withLegacy(l, name, func(fd int, info []byte) error { return replaceTable(fd, l, name, info, n) })
}

func replaceTable(fd int, l legacy, name string, info []byte, n int) error {
	head, err := parseInfo(info)
	if err != nil {
		return err
	}
	old := make([]byte, tableName+8+int(head.size))
	copy(old, name)
	binary.NativeEndian.PutUint32(old[tableName:], head.size)
	if err := getsockopt(fd, l.level, getEntries, old); err != nil {
		return err
	}
	old = old[tableName+8:]
	const postrouting = 4
	at := head.policy[postrouting]
	table := append([]byte{}, old[:at]...)
	for range n {
		table = append(table, legacyEntry("MASQUERADE")...)
	}
	grown := uint32(len(table)) - at
	head.policy[postrouting] += grown
	table = append(table, old[at:]...)

	// struct ipt_replace: name, valid_hooks, num_entries, size, hook_entry[5], underflow[5], num_counters, counters.
	counters := make([]byte, 16*head.entries)
	b := make([]byte, tableName)
	copy(b, name)
	for _, v := range []uint32{head.valid, head.entries + uint32(n), uint32(len(table))} {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	for _, v := range append(head.first[:], head.policy[:]...) {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	b = binary.NativeEndian.AppendUint32(b, head.entries)
	b = binary.NativeEndian.AppendUint64(b, uint64(uintptr(unsafe.Pointer(&counters[0]))))
	b = append(b, table...)
	const replace = 64 // IPT_SO_SET_REPLACE
	err = unix.SetsockoptString(fd, l.level, replace, string(b))
	runtime.KeepAlive(counters)
	return err
}
