package sockets

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/kernel/sockdiag"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

// Bounds of the table. A service talks to tens of destinations; a crawler or proxy talks to many, and only the large
// ones matter.
const (
	maxFlows   = 20_000 // distinct (source, destination) pairs and (listener, peer) pairs counted in one dump
	keptFlows  = 64     // pairs recorded, the largest
	keptPeers  = 32     // peers recorded, over all listeners
	rttSamples = 64     // round-trip times that a destination's median is taken from
	// sockets of a pair whose owners are looked for: a random sample, because the kernel's table is in hash order
	flowInodes     = 32
	maxCloseWaits  = 4096   // sockets in CLOSE_WAIT whose owner is looked for
	youngMillis    = 1000   // age up to which a TIME_WAIT socket is young: the unit of a rate per second
	timeWaitMillis = 60_000 // TCP_TIMEWAIT_LEN (include/net/tcp.h), not tunable
)

// table sums up one dump.
type table struct {
	states     [sockdiag.Closing + 1]int
	listeners  map[netip.AddrPort]*listener
	ports      map[uint16]bool // local ports of listeners
	flows      map[flowKey]*flow
	peers      map[peerKey]*peer
	closeWaits []uint64 // inodes
	overflow   int      // sockets whose pair did not fit
	unowned    int      // sockets in CLOSE_WAIT past maxCloseWaits

	kept map[flowKey]bool // pairs recorded before; they stay, so that their series have no gaps
	list []*flow          // pairs to record
	left int              // sockets of the others
}

type flowKey struct {
	source      netip.Addr
	destination netip.AddrPort
}

// flow is the client-side sockets of one local address to one destination.
type flow struct {
	key        flowKey
	states     [sockdiag.Closing + 1]int
	total      int
	young      int
	synRetrans int
	inodes     []uint64
	info       infoSum
}

// infoSum adds up tcp_info of established sockets.
type infoSum struct {
	sockets         int
	rtts            []uint32 // µs
	minRTT          uint32   // µs, 0: none known
	bytes           uint64
	retrans, segOut uint64
	hasBytes        bool
	hasSegs         bool
	held            int // by Nagle's algorithm
	asked           int // sockets that wait for an answer
	hasNotsent      bool
	data            uint64 // segments with data sent
	hasData         bool
}

type listener struct {
	addr       netip.AddrPort
	inode      uint64
	queue      uint32
	backlog    uint32
	hasBacklog bool
	v6Only     bool
	sockets    int // listening sockets on this address (SO_REUSEPORT)
	states     [sockdiag.Closing + 1]int
	held       int // its connections held by Nagle's algorithm
	owes       int // its connections that wait for this side's answer
	hasNotsent bool
	segments   uint64 // with data, received or sent so far, whichever is less for a connection
}

type peerKey struct {
	listener netip.AddrPort
	peer     netip.Addr
}

type peer struct {
	key      peerKey
	sockets  int
	bytes    uint64
	hasBytes bool
}

func newTable() *table {
	return &table{
		listeners: map[netip.AddrPort]*listener{}, ports: map[uint16]bool{},
		flows: map[flowKey]*flow{}, peers: map[peerKey]*peer{}, kept: map[flowKey]bool{},
	}
}

func (t *table) reset() {
	clear(t.listeners)
	clear(t.ports)
	clear(t.flows)
	clear(t.peers)
	t.states, t.closeWaits, t.list = [sockdiag.Closing + 1]int{}, t.closeWaits[:0], t.list[:0]
	t.overflow, t.unowned, t.left = 0, 0, 0
}

// add counts one socket.
func (t *table) add(s *sockdiag.Socket) error {
	if s.State > sockdiag.Closing {
		return nil // a state newer than this program; none is known (include/net/tcp_states.h)
	}
	t.states[s.State]++
	switch {
	case s.State == sockdiag.Listen:
		t.addListener(s)
		return nil
	case s.State == sockdiag.CloseWait && s.Inode != 0 && len(t.closeWaits) >= maxCloseWaits:
		t.unowned++
	case s.State == sockdiag.CloseWait && s.Inode != 0:
		t.closeWaits = append(t.closeWaits, s.Inode)
	}
	if l := t.listenerOf(s.Local); l != nil {
		t.addServer(l, s)
		return nil
	}
	t.addClient(s)
	return nil
}

func (t *table) addListener(s *sockdiag.Socket) {
	t.ports[s.Local.Port()] = true
	l := t.listeners[s.Local]
	if l == nil {
		l = &listener{addr: s.Local, v6Only: s.V6Only}
		t.listeners[s.Local] = l
	}
	l.sockets++
	// if a port has several sockets, the fullest queue is the one that overflows
	if l.sockets == 1 || s.RQueue > l.queue {
		l.inode, l.queue, l.backlog, l.hasBacklog = s.Inode, s.RQueue, s.WQueue, s.HasBacklog
	}
}

func (t *table) listenerOf(local netip.AddrPort) *listener {
	if !t.ports[local.Port()] {
		return nil
	}
	if l := t.listeners[local]; l != nil {
		return l
	}
	if local.Addr().Is4() {
		if l := t.listeners[netip.AddrPortFrom(netip.IPv4Unspecified(), local.Port())]; l != nil {
			return l
		}
	}
	l := t.listeners[netip.AddrPortFrom(netip.IPv6Unspecified(), local.Port())]
	if l != nil && l.v6Only && local.Addr().Is4() {
		return nil
	}
	return l
}

func (t *table) addServer(l *listener, s *sockdiag.Socket) {
	l.states[s.State]++
	if s.State != sockdiag.Established {
		return
	}
	if s.HasInfo && s.Info.HasNotsent() {
		l.hasNotsent = true
		if s.Info.HeldBack() {
			l.held++
		}
		if s.Info.Owes() {
			l.owes++
		}
	}
	if s.HasInfo && s.Info.HasDataSegs() {
		l.segments += uint64(min(s.Info.DataSegsIn, s.Info.DataSegsOut))
	}
	key := peerKey{l.addr, s.Remote.Addr()}
	p := t.peers[key]
	if p == nil {
		if len(t.peers) >= maxFlows {
			t.overflow++
			return
		}
		p = &peer{key: key}
		t.peers[key] = p
	}
	p.sockets++
	if s.HasInfo && s.Info.HasBytes() {
		p.bytes, p.hasBytes = p.bytes+s.Info.BytesAcked+s.Info.BytesReceived, true
	}
}

func (t *table) addClient(s *sockdiag.Socket) {
	key := flowKey{s.Local.Addr(), s.Remote}
	f := t.flows[key]
	if f == nil {
		if len(t.flows) >= maxFlows {
			t.overflow++
			return
		}
		f = &flow{key: key}
		t.flows[key] = f
	}
	f.states[s.State]++
	f.total++
	switch {
	case s.State == sockdiag.TimeWait:
		if s.Expires > timeWaitMillis-youngMillis {
			f.young++
		}
		return
	case s.State == sockdiag.SynSent && s.Retransmits > 0:
		f.synRetrans++
	case s.State == sockdiag.Established && s.HasInfo:
		f.info.add(&s.Info)
	}
	if s.Inode != 0 && len(f.inodes) < flowInodes {
		f.inodes = append(f.inodes, s.Inode)
	}
}

func (i *infoSum) add(info *sockdiag.Info) {
	i.sockets++
	if info.RTT > 0 && len(i.rtts) < rttSamples {
		i.rtts = append(i.rtts, info.RTT)
	}
	if info.HasMinRTT() && (i.minRTT == 0 || info.MinRTT < i.minRTT) {
		i.minRTT = info.MinRTT
	}
	i.hasNotsent = i.hasNotsent || info.HasNotsent()
	if info.HeldBack() {
		i.held++
	}
	if info.Asked() {
		i.asked++
	}
	i.retrans += uint64(info.TotalRetrans)
	if info.HasSegs() {
		i.segOut, i.hasSegs = i.segOut+uint64(info.SegsOut), true
	}
	if info.HasDataSegs() {
		i.data, i.hasData = i.data+uint64(info.DataSegsOut), true
	}
	if info.HasBytes() {
		i.bytes, i.hasBytes = i.bytes+info.BytesAcked+info.BytesReceived, true
	}
}

// keepLargest chooses the pairs to record: those recorded before, and the largest of the others while there is room.
func (t *table) keepLargest() {
	for _, f := range t.flows {
		t.list = append(t.list, f)
	}
	slices.SortFunc(t.list, func(a, b *flow) int {
		return cmp.Or(cmp.Compare(b.total, a.total), a.key.destination.Compare(b.key.destination),
			a.key.source.Compare(b.key.source))
	})
	n := 0
	for i, f := range t.list {
		if i < keptFlows || t.kept[f.key] {
			if i < keptFlows && len(t.kept) < 4*keptFlows {
				t.kept[f.key] = true
			}
			t.list[n] = f
			n++
			continue
		}
		t.left += f.total
	}
	t.list = t.list[:n]
}

// append records the table. It does not record that there was nothing for metrics that only a netlink dump has: the
// source knows that.
func (t *table) append(a *recording.Appender, o *owners) {
	a.None(metric.DestinationSockets, metric.DestinationYoungTW, metric.SynSentRetrans, metric.ListenerSockets,
		metric.ListenerQueue,
		metric.ListenerPeers)
	for st := sockdiag.Established; st <= sockdiag.Closing; st++ {
		a.Gauge(metric.Sockets, float64(t.states[st]), st.String())
	}
	a.Gauge(metric.DestinationSmaller, float64(t.left))
	byDestination := map[netip.AddrPort]*infoSum{}
	retrying := map[netip.AddrPort]int{} // from all local addresses together, as the metric has no source
	for _, f := range t.list {
		f.append(a)
		merge(byDestination, f)
		if f.synRetrans > 0 {
			retrying[f.key.destination] += f.synRetrans
		}
	}
	for d, n := range retrying {
		a.Gauge(metric.SynSentRetrans, float64(n), d.String())
	}
	for d, i := range byDestination {
		i.append(a, d.String())
	}
	for _, l := range t.listeners {
		l.append(a, o)
	}
	t.appendPeers(a)
	a.Lost(t.overflow, "sockets of destinations or peers past the bound of "+strconv.Itoa(maxFlows))
	a.Lost(t.unowned, "sockets in CLOSE_WAIT past the "+strconv.Itoa(maxCloseWaits)+" whose owner is looked for")
}

// append records the states that every rule reads even if they are zero, so that their series have no gaps, and other
// states if there are any.
func (f *flow) append(a *recording.Appender) {
	source, destination := f.key.source.String(), f.key.destination.String()
	for st, n := range f.states {
		state := sockdiag.State(st)
		if n > 0 || state == sockdiag.Established || state == sockdiag.SynSent || state == sockdiag.TimeWait {
			a.Gauge(metric.DestinationSockets, float64(n), source, destination, state.String())
		}
	}
	a.Gauge(metric.DestinationYoungTW, float64(f.young), source, destination)
}

// merge adds a pair's tcp_info to that of its destination.
func merge(m map[netip.AddrPort]*infoSum, f *flow) {
	if f.info.sockets == 0 {
		return
	}
	d := m[f.key.destination]
	if d == nil {
		m[f.key.destination] = &f.info
		return
	}
	d.sockets += f.info.sockets
	d.rtts = append(d.rtts, f.info.rtts...)
	if d.minRTT == 0 || f.info.minRTT != 0 && f.info.minRTT < d.minRTT {
		d.minRTT = f.info.minRTT
	}
	d.held, d.hasNotsent = d.held+f.info.held, d.hasNotsent || f.info.hasNotsent
	d.asked += f.info.asked
	d.data, d.hasData = d.data+f.info.data, d.hasData || f.info.hasData
	d.hasBytes, d.hasSegs = d.hasBytes || f.info.hasBytes, d.hasSegs || f.info.hasSegs
	d.bytes, d.retrans, d.segOut = d.bytes+f.info.bytes, d.retrans+f.info.retrans, d.segOut+f.info.segOut
}

func (i *infoSum) append(a *recording.Appender, destination string) {
	if len(i.rtts) > 0 {
		a.Gauge(metric.DestinationRTT, series.Median(i.rtts)/1e6, destination)
	}
	if i.minRTT > 0 {
		a.Gauge(metric.DestinationMin, float64(i.minRTT)/1e6, destination)
	}
	if i.hasBytes {
		a.Gauge(metric.DestinationBytes, float64(i.bytes), destination)
	}
	if i.hasNotsent {
		a.Gauge(metric.DestinationHeld, float64(i.held), destination)
		a.Gauge(metric.DestinationAsked, float64(i.asked), destination)
	}
	if i.hasData {
		a.Gauge(metric.DestinationData, float64(i.data), destination)
	}
	if i.hasSegs {
		a.Gauge(metric.DestinationSegs, float64(i.segOut), destination)
		a.Gauge(metric.DestinationLost, float64(i.retrans), destination)
	}
}

// stalled returns the target's listeners that owe answers and have the same number of data segments as before. now has
// the numbers of this sample, to be given to the next call.
func (t *table) stalled(
	o *owners, before map[netip.AddrPort]uint64,
) (out map[*listener]int, now map[netip.AddrPort]uint64) {
	out, now = map[*listener]int{}, map[netip.AddrPort]uint64{}
	for addr, l := range t.listeners {
		if !o.of(l.inode).target {
			continue
		}
		if n, seen := before[addr]; seen && n == l.segments && l.owes > 0 {
			out[l] = 0
		}
		now[addr] = l.segments
	}
	return out, now
}

func (l *listener) append(a *recording.Appender, o *owners) {
	addr := l.addr.String()
	p := o.of(l.inode)
	a.Gauge(metric.ListenerQueue, float64(l.queue), addr, p.pid, p.comm)
	if l.hasBacklog {
		a.Gauge(metric.ListenerBacklog, float64(l.backlog), addr, p.pid, p.comm)
	}
	if p.target {
		a.Info(metric.TargetListenPorts, addr, p.pid, p.comm)
	}
	if l.hasNotsent {
		a.Gauge(metric.ListenerHeld, float64(l.held), addr)
		a.Gauge(metric.ListenerOwes, float64(l.owes), addr)
		a.Gauge(metric.ListenerSegments, float64(l.segments), addr)
	}
	for st, n := range l.states {
		if n > 0 {
			a.Gauge(metric.ListenerSockets, float64(n), addr, sockdiag.State(st).String())
		}
	}
}

func (t *table) appendPeers(a *recording.Appender) {
	list := make([]*peer, 0, len(t.peers))
	for _, p := range t.peers {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *peer) int {
		return cmp.Or(cmp.Compare(b.sockets, a.sockets), a.key.listener.Compare(b.key.listener),
			a.key.peer.Compare(b.key.peer))
	})
	for _, p := range list[:min(len(list), keptPeers)] {
		a.Gauge(metric.ListenerPeers, float64(p.sockets), p.key.listener.String(), p.key.peer.String())
		if p.hasBytes {
			a.Gauge(metric.ListenerBytes, float64(p.bytes), p.key.listener.String(), p.key.peer.String())
		}
	}
}
