package netfilter

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// inNamespace runs f on a thread in a network namespace of its own. Both end with f, because the thread is never
// unlocked. f may skip the test: then it ends by runtime.Goexit, and sends nothing.
func inNamespace(t testing.TB, f func() error) {
	t.Helper()
	testenv.Need(t, testenv.Root)
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer close(result)
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			result <- err
			return
		}
		result <- f()
	}()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// batch keeps the echoes of one message within the receive buffer of the library's socket.
const batch = 100

// addLinear adds rules that a packet walks one by one: "counter" only, so none of them takes it.
func addLinear(c *nftables.Conn, chain *nftables.Chain, n int) error {
	for i := range n {
		c.AddRule(&nftables.Rule{Table: chain.Table, Chain: chain, Exprs: []expr.Any{&expr.Counter{}}})
		if i%batch == batch-1 {
			if err := c.Flush(); err != nil {
				return err
			}
		}
	}
	return c.Flush()
}

// build makes a router: 501 linear rules in forward, 2 of them jumps, a chain of 7, a masquerade, a DNAT, sets.
func build() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	ip := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "router"})
	inet := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "guard"})
	base := func(
		t *nftables.Table, name string, typ nftables.ChainType, hook *nftables.ChainHook, p *nftables.ChainPriority,
	) *nftables.Chain {
		return c.AddChain(&nftables.Chain{Table: t, Name: name, Type: typ, Hooknum: hook, Priority: p})
	}
	forward := base(ip, "fwd", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter)
	out := base(ip, "out", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	in := base(ip, "in", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest)
	both := base(inet, "both", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityMangle)
	side := c.AddChain(&nftables.Chain{Table: ip, Name: "side"})
	set := &nftables.Set{Table: ip, Name: "addresses", KeyType: nftables.TypeIPAddr}
	if err := c.AddSet(set, []nftables.SetElement{{Key: []byte{10, 0, 0, 1}}, {Key: []byte{10, 0, 0, 2}}}); err != nil {
		return err
	}
	verdicts := &nftables.Set{
		Table: ip, Name: "dispatch", IsMap: true, KeyType: nftables.TypeIPAddr, DataType: nftables.TypeVerdict,
	}
	if err := c.AddSet(verdicts, nil); err != nil {
		return err
	}
	rule := func(chain *nftables.Chain, exprs ...expr.Any) {
		c.AddRule(&nftables.Rule{Table: chain.Table, Chain: chain, Exprs: exprs})
	}
	source := &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4}
	jump := &expr.Verdict{Kind: expr.VerdictJump, Chain: "side"}
	rule(forward, source, &expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID}, jump)
	rule(forward, jump) // the same chain again: counted once
	rule(forward, source, &expr.Lookup{
		SourceRegister: 1, SetName: verdicts.Name, SetID: verdicts.ID,
		IsDestRegSet: true,
	})
	rule(forward, &expr.Verdict{Kind: expr.VerdictAccept})
	rule(out, &expr.Masq{})
	rule(out, &expr.Immediate{Register: 1, Data: []byte{192, 0, 2, 1}},
		&expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1})
	rule(in, &expr.Immediate{Register: 1, Data: []byte{192, 0, 2, 1}},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1})
	rule(in, &expr.Redir{})
	if err := c.Flush(); err != nil {
		return err
	}
	return errors.Join(addLinear(c, forward, 497), addLinear(c, side, 7), addLinear(c, both, 11))
}

func TestReadCountsExactly(t *testing.T) {
	inNamespace(t, func() error {
		if err := build(); err != nil {
			return err
		}
		got, err := Read(t.Context())
		if err != nil {
			return err
		}
		forward := Chain{Family: "ip", Table: "router", Name: "fwd", Hook: "forward", Type: "filter", Rules: 501}
		want := Summary{
			Present: true, Tables: 2, Chains: 5, Sets: 2, Rules: 523,
			NATRules: 4, Masquerade: 1, SNAT: 1, DNAT: 1, Redirect: 1, Lookups: 2, VerdictMaps: 1,
			IPv4: map[string]Hook{
				"prerouting": {Connection: 2}, "forward": {Packet: 512, PacketJumped: 7},
				"postrouting": {Connection: 2},
			},
			IPv6: map[string]Hook{"forward": {Packet: 11}},
			Base: []Chain{
				forward,
				{
					Family: "inet", Table: "guard", Name: "both", Hook: "forward", Type: "filter", Priority: -150,
					Rules: 11,
				},
				{Family: "ip", Table: "router", Name: "in", Hook: "prerouting", Type: "nat", Priority: -100, Rules: 2},
				{Family: "ip", Table: "router", Name: "out", Hook: "postrouting", Type: "nat", Priority: 100, Rules: 2},
			},
			Longest: forward,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("summary (-want +got):\n%s", diff)
		}
		return nil
	})
}

func TestReadOfEmptyNamespace(t *testing.T) {
	inNamespace(t, func() error {
		got, err := Read(t.Context())
		want := Summary{Present: true, IPv4: map[string]Hook{}, IPv6: map[string]Hook{}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("empty namespace (-want +got):\n%s", diff)
		}
		return err
	})
}

// TestReadCreatesNoLegacyTable checks the promise to change nothing: naming a table would create it.
func TestReadCreatesNoLegacyTable(t *testing.T) {
	inNamespace(t, func() error {
		if _, err := Read(t.Context()); err != nil {
			return err
		}
		b, err := os.ReadFile(families()[0].names)
		if errors.Is(err, os.ErrNotExist) {
			return nil // no x_tables at all
		}
		if len(b) != 0 {
			t.Errorf("tables after Read: %q, want none", b)
		}
		return err
	})
}

// makeLegacy makes the kernel create an empty table, as iptables-legacy does when it first looks.
func makeLegacy(l legacy, name string) error {
	return withLegacy(l, name, func(int, []byte) error { return nil })
}

// withLegacy asks for a table's head, and calls f with the socket and the answer.
func withLegacy(l legacy, name string, f func(fd int, info []byte) error) error {
	fd, err := unix.Socket(l.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	info := make([]byte, infoSize)
	copy(info, name)
	if err := getsockopt(fd, l.level, getInfo, info); err != nil {
		return err
	}
	return f(fd, info)
}

func TestLegacyTables(t *testing.T) {
	if _, err := os.Stat(families()[0].names); err != nil {
		t.Skip("this kernel has no ip_tables")
	}
	inNamespace(t, func() error {
		for _, l := range families() {
			if err := errors.Join(makeLegacy(l, "nat"), makeLegacy(l, "filter")); err != nil {
				t.Skipf("this kernel has no legacy tables of %s: %v", l.family, err)
			}
		}
		if err := addMasquerade(families()[0], "nat", 3); err != nil {
			return err
		}
		got, err := Read(t.Context())
		if err != nil {
			return err
		}
		slices.SortFunc(got.Legacy, func(a, b LegacyTable) int {
			return strings.Compare(a.Family+" "+a.Name, b.Family+" "+b.Name)
		})
		filter := map[string]int{"input": 1, "forward": 1, "output": 1}
		want := []LegacyTable{
			{Family: "ip", Name: "filter", Entries: 4, EntriesByHook: filter},
			{Family: "ip", Name: "nat", Entries: 8, Rules: 3, EntriesByHook: map[string]int{
				"prerouting": 1, "input": 1, "output": 1, "postrouting": 4,
			}},
			{Family: "ip6", Name: "filter", Entries: 4, EntriesByHook: filter},
			{Family: "ip6", Name: "nat", Entries: 5, EntriesByHook: map[string]int{
				"prerouting": 1, "input": 1, "output": 1, "postrouting": 1,
			}},
		}
		if diff := cmp.Diff(want, got.Legacy); diff != "" {
			t.Errorf("legacy tables (-want +got):\n%s", diff)
		}
		if got.NATRules != 3 || got.Masquerade != 3 || len(got.Notes) != 0 {
			t.Errorf("NAT rules %d, masquerade %d, notes %v; want 3, 3, none", got.NATRules, got.Masquerade, got.Notes)
		}
		return nil
	})
}

// withoutRights runs f in a fresh network namespace as uid 65534, which has no capability there.
func withoutRights(t *testing.T, f func() error) {
	t.Helper()
	inNamespace(t, func() error {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			return errno
		}
		return f()
	})
}

func TestReadWithoutRights(t *testing.T) {
	withoutRights(t, func() error {
		s, err := Read(t.Context())
		if !errors.Is(err, ErrPermission) || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
			t.Errorf("error %v, want ErrPermission with the remedy", err)
		}
		if len(s.Notes) == 0 || s.Rules != 0 {
			t.Errorf("summary %+v, want a note and no rules", s)
		}
		return nil
	})
}

func TestReadStopsWithContext(t *testing.T) {
	inNamespace(t, func() error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Read(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", err)
		}
		return nil
	})
}

func TestReadingStopsAtTheLimit(t *testing.T) {
	inNamespace(t, func() error {
		if err := build(); err != nil {
			return err
		}
		r := newRuleset()
		if err := r.dumpAll(t.Context(), 100); err != nil {
			return err
		}
		if s := r.finish(); !s.Truncated || s.Rules < 100 || s.Rules >= 523 || s.Chains != 5 {
			t.Errorf("truncated %v, %d rules, %d chains; want true, 100 to 522, 5", s.Truncated, s.Rules, s.Chains)
		}
		return nil
	})
}

// passing is a context whose deadline passes after it was asked for so many times.
type passing struct {
	context.Context
	left int
}

func (p *passing) Err() error {
	if p.left--; p.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// TestReadingStopsAtTheDeadline: what was read in time is kept, as a bound. Before the first rule there is nothing to
// keep.
func TestReadingStopsAtTheDeadline(t *testing.T) {
	inNamespace(t, func() error {
		if err := build(); err != nil {
			return err
		}
		found := false
		for left := range 40 { // dumps of tables, chains and sets take some of them
			s, err := Read(&passing{t.Context(), left})
			switch {
			case err != nil && (!errors.Is(err, context.DeadlineExceeded) || s.Rules > 0):
				t.Errorf("after %d datagrams: error %v with %d rules", left, err, s.Rules)
			case err == nil && !s.Truncated && s.Rules < 523:
				t.Errorf("after %d datagrams: truncated %v with %d rules", left, s.Truncated, s.Rules)
			}
			found = found || s.Truncated && s.Rules > 0
		}
		if !found {
			t.Error("no reading stopped among the rules")
		}
		return nil
	})
}

func TestHasSymbol(t *testing.T) {
	const symbols = "0 T nf_tables_abort\t[nf_tables]\n0 t nf_tables_getrule_single\t[nf_tables]\n"
	for prefix, want := range map[string]bool{"nf_tables_getrule": true, "nft_do_chain": false} {
		if got, err := hasSymbol(strings.NewReader(symbols), prefix); got != want || err != nil {
			t.Errorf("hasSymbol(%s) = %v, %v; want %v", prefix, got, err, want)
		}
	}
}

func TestJumpsThatLoopEnd(t *testing.T) {
	r := newRuleset()
	for name, target := range map[string]string{"a": "b", "b": "a", "c": "gone"} {
		r.chains[chainID{unix.NFPROTO_IPV4, "t", name}] = &chain{
			Chain: Chain{Name: name, Rules: 3},
			jumps: []string{target},
		}
	}
	if got := r.jumped(chainID{unix.NFPROTO_IPV4, "t", "a"}, map[string]bool{"a": true}); got != 3 {
		t.Errorf("jumped = %d, want the 3 rules of b", got)
	}
}

// recordMessages collects what the kernel sends, for the fuzzer's corpus.
func recordMessages(t testing.TB) [][]byte {
	var all [][]byte
	inNamespace(t, func() error {
		if err := build(); err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		d := dumper{fd: fd, buf: make([]byte, receiveBuffer), r: newRuleset()}
		for _, request := range []byte{unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETRULE} {
			err := unix.Sendto(fd, d.request(request), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
			if err != nil {
				return err
			}
			n, err := unix.Read(fd, d.buf)
			if err != nil {
				return err
			}
			all = append(all, slices.Clone(d.buf[:min(n, 2000)])) // cut in the middle too
			for n > 0 {
				message, rest, err := nextMessage(d.buf[:n])
				if err != nil || message.typ == unix.NLMSG_DONE {
					break
				}
				n = copy(d.buf, rest)
				if len(rest) == 0 {
					if n, err = unix.Read(fd, d.buf); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
	return all
}

func FuzzMessages(f *testing.F) {
	if os.Geteuid() == 0 {
		for _, b := range recordMessages(f) {
			f.Add(b)
		}
	}
	f.Add([]byte{})
	f.Add(binary.NativeEndian.AppendUint32(nil, 16))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newRuleset()
		d := dumper{r: r}
		_, errChains := d.takeAll(b, r.addChain)
		_, errRules := d.takeAll(b, r.addRule)
		s := r.finish()
		if s.Rules < s.Longest.Rules || len(s.Base) > s.Chains {
			t.Errorf("%+v from %x (%v, %v)", s, b, errChains, errRules)
		}
	})
}

func FuzzLegacyTable(f *testing.F) {
	f.Add([]byte{}, uint32(31), uint32(0), uint32(200))
	f.Add(slices.Concat(legacyEntry("MASQUERADE"), legacyEntry("ERROR")), uint32(16), uint32(0), uint32(152))
	f.Fuzz(func(t *testing.T, b []byte, valid, first, policy uint32) {
		info := tableInfo{valid: valid, entries: uint32(len(b) / 100)}
		info.first[4], info.policy[4] = first, policy
		table, s := LegacyTable{Entries: int(info.entries), EntriesByHook: map[string]int{}}, newRuleset().summary
		err := families()[0].parse(b, info, &table, &s)
		if err == nil && (table.Rules < 0 || s.NATRules > len(b)/144) {
			t.Errorf("%+v with %d NAT rules from %d bytes", table, s.NATRules, len(b))
		}
	})
}
