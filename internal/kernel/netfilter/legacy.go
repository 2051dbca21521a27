package netfilter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// legacy is one of the two families of x_tables that route packets. Their structs differ in the address part only.
type legacy struct {
	family, names string
	domain, level int
	// addresses is sizeof(struct ipt_ip) or ip6t_ip6, which begins each entry
	// (include/uapi/linux/netfilter_ipv{4,6}/ip{,6}_tables.h).
	addresses int
	// header is sizeof(struct ipt_entry) or ip6t_entry: addresses, nfcache u32, target_offset u16, next_offset u16,
	// comefrom u32, two u64 counters (for ip6 after four bytes of padding).
	header int
}

var errNoTables = errors.New("no tables") // not a failure: most hosts have none

func families() []legacy {
	return []legacy{
		{"ip", "/proc/thread-self/net/ip_tables_names", unix.AF_INET, unix.IPPROTO_IP, 84, 112},
		{"ip6", "/proc/thread-self/net/ip6_tables_names", unix.AF_INET6, unix.IPPROTO_IPV6, 136, 168},
	}
}

const (
	// getInfo and getEntries are IPT_SO_GET_INFO and IPT_SO_GET_ENTRIES, the same numbers for IPv6.
	getInfo, getEntries = 64, 65
	// tableName is XT_TABLE_MAXNAMELEN.
	tableName = 32
	// infoSize is sizeof(struct ipt_getinfo): name, valid_hooks, hook_entry[5], underflow[5], num_entries, size.
	infoSize = tableName + 4*(1+5+5+1+1)
	// maxTableSize bounds the copy of a table: 200,000 rules of 200 bytes.
	maxTableSize = 40 << 20
)

// addLegacy reads all tables that are listed for this namespace. It does not ask for other tables: that would make
// the kernel create them and load their module (net/netfilter/x_tables.c, xt_request_find_table_lock).
func (s *Summary) addLegacy() {
	for _, l := range families() {
		names, err := l.tables()
		if errors.Is(err, errNoTables) {
			continue
		}
		if err != nil {
			s.Notes = append(s.Notes, err.Error())
			continue
		}
		for _, name := range names {
			table, err := l.read(name, s)
			if err != nil {
				s.Notes = append(s.Notes, fmt.Sprintf("legacy table %s of %s: %v", name, l.family, err))
				continue
			}
			s.Legacy = append(s.Legacy, table)
		}
	}
}

func (l legacy) tables() ([]string, error) {
	b, err := os.ReadFile(l.names)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errNoTables
	}
	if err != nil {
		return nil, fmt.Errorf("legacy tables: %w: run as root", err)
	}
	var names []string
	for _, name := range bytes.Fields(b) {
		if len(name) < tableName {
			names = append(names, string(name))
		}
	}
	return names, nil
}

func (l legacy) read(name string, s *Summary) (LegacyTable, error) {
	fd, err := unix.Socket(l.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return LegacyTable{}, fmt.Errorf("raw socket: %w: needs CAP_NET_RAW", err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing is written to it
	info := make([]byte, infoSize)
	copy(info, name)
	if err := getsockopt(fd, l.level, getInfo, info); err != nil {
		return LegacyTable{}, fmt.Errorf("IPT_SO_GET_INFO: %w: needs CAP_NET_ADMIN", err)
	}
	head, err := parseInfo(info)
	if err != nil {
		return LegacyTable{}, err
	}
	// struct ipt_get_entries: name, size, then the table at 8-byte alignment.
	const header = tableName + 8
	entries := make([]byte, header+int(head.size))
	copy(entries, name)
	binary.NativeEndian.PutUint32(entries[tableName:], head.size)
	if err := getsockopt(fd, l.level, getEntries, entries); err != nil { // EAGAIN: it changed size since
		return LegacyTable{}, fmt.Errorf("IPT_SO_GET_ENTRIES: %w", err)
	}
	table := LegacyTable{Family: l.family, Name: name, Entries: int(head.entries), EntriesByHook: map[string]int{}}
	if err := l.parse(entries[header:], head, &table, s); err != nil {
		return LegacyTable{}, err
	}
	return table, nil
}

func getsockopt(fd, level, option int, b []byte) error {
	size := uint32(len(b))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// tableInfo is struct ipt_getinfo without the name; hooks are offsets into the table of their first entry and policy.
type tableInfo struct {
	valid         uint32
	first, policy [5]uint32
	entries, size uint32
}

func parseInfo(b []byte) (tableInfo, error) {
	if len(b) != infoSize {
		return tableInfo{}, fmt.Errorf("%w: table info of %d bytes", errShort, len(b))
	}
	at := func(i int) uint32 { return binary.NativeEndian.Uint32(b[tableName+4*i:]) }
	info := tableInfo{valid: at(0), entries: at(11), size: at(12)}
	for i := range info.first {
		info.first[i], info.policy[i] = at(1+i), at(6+i)
	}
	if info.size > maxTableSize {
		return tableInfo{}, fmt.Errorf("table of %d bytes is above the limit of %d", info.size, maxTableSize)
	}
	return info, nil
}

// parse walks the entries of a table. It counts them by hook, counts their NAT targets, and subtracts the entries
// that iptables itself adds: a policy for each hook, an ERROR and a RETURN for each user chain, and a last ERROR.
func (l legacy) parse(b []byte, info tableInfo, table *LegacyTable, s *Summary) error {
	errorTargets := 0
	for at := 0; at < len(b); {
		entry := b[at:]
		if len(entry) < l.header {
			return fmt.Errorf("%w: entry at %d", errShort, at)
		}
		target := int(binary.NativeEndian.Uint16(entry[l.addresses+4:]))
		next := int(binary.NativeEndian.Uint16(entry[l.addresses+6:]))
		// struct xt_entry_target: size u16, name[29], revision u8.
		if target < l.header || next < target+32 || next > len(entry) {
			return fmt.Errorf("%w: entry at %d has its target at %d and ends at %d", errShort, at, target, next)
		}
		name := string(text(entry[target+2 : target+31]))
		if name == "ERROR" {
			errorTargets++
		}
		s.addNAT(name)
		table.countHooks(info, uint32(at))
		at += next
	}
	own := 0
	for hook := range info.first {
		own += int(info.valid >> hook & 1)
	}
	if errorTargets > 0 {
		own += 1 + 2*(errorTargets-1)
	}
	table.Rules = max(0, table.Entries-own)
	return nil
}

// countHooks counts an entry for each hook whose chain, from the first entry to the policy, contains it.
func (t *LegacyTable) countHooks(info tableInfo, offset uint32) {
	for hook := range info.first {
		if info.valid>>hook&1 == 1 && offset >= info.first[hook] && offset <= info.policy[hook] {
			t.EntriesByHook[hookName(unix.NFPROTO_IPV4, uint32(hook))]++
		}
	}
}
