package postgres

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/perfdoctor/perfdoctor/internal/host/memory"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// A session's running statement is a portal (src/include/utils/portal.h), to which ActivePortal leads. Its QueryDesc
// (src/include/executor/execdesc.h) is allocated in the first block of the portal's memory, even if the portal does
// not lead to it, as for UPDATE. It is found by what must agree: it has the portal's text, and the root of its plan
// has its state.
const (
	portalContext = 16
	portalText    = 48 // until 14.4 and 15.0; the next word since then
	portalSize    = portalText + 16
	// blockSize is how much is searched: the first block of a context of ALLOCSET_SMALL_SIZES.
	blockSize = 1 << 10
	// executorBlock is the first block of a context of ALLOCSET_DEFAULT_SIZES.
	executorBlock = 8 << 10
	// contextParent is in a MemoryContextData (src/include/nodes/memnodes.h). maxContexts is six for each of two
	// nested functions, and some that the planner keeps.
	contextParent, maxContexts = 24, 16
	queryText                  = 16
	queryEnd                   = 96 // of what is read here
	// queryState and queryPlan are the executor's state, and the root of the plan.
	queryState, queryPlan = 80, 88
)

// Nodes of a plan (src/include/nodes/execnodes.h, plannodes.h), the same from 14 to 18.
const (
	nodePlan, nodeState   = 8, 16
	nodeFilter            = 64
	nodeLeft, nodeRight   = 72, 80
	nodeRelation          = 200 // of a ScanState; the children of an AppendState
	nodeScan              = 208 // of a ScanState; the number of children of an AppendState
	nodeSize              = 216
	planRows, planEnd     = 24, 32
	maxNodes, maxChildren = 64, 32
)

// A running scan (src/include/access/relscan.h, heapam.h). In 18 the part before the flags is longer.
const (
	scanRelation  = 0
	scanFlags     = 44
	scanPages     = 56
	scanStarted   = 68
	scanSize      = 80
	longerSince18 = 8
	sequential    = 1 // SO_TYPE_SEQSCAN
)

// A relation in a session's cache leads to its row of pg_class, with its number behind (src/include/utils/rel.h,
// src/include/catalog/pg_class.h).
const (
	relationSize = 128
	relationOID  = 16 // behind the address of the row
	classOID     = 0
	className    = 4
	nameSize     = 64
	classMethod  = 84
	classPages   = 96
	classRows    = 100
	classSize    = 104
	heap         = 2 // HEAP_TABLE_AM_OID: other methods have another structure for scans
)

// A scan is a scan of a whole table by a running statement.
type scan struct {
	table string
	pages uint32 // of the table
	// kept is the part of the rows that passes its filter, by the planner's estimate: 1 without a filter, negative if
	// the table's number of rows is not known.
	kept float64
}

// scanOf finds the scan of a whole table that a session is in; running says that it runs a statement of its own, which
// workers of parallel queries do not.
func (s *server) scanOf(read memory.Reader) (found scan, ok, running bool) {
	if s.portal == 0 {
		return scan{}, false, false
	}
	at, err := read.Word(s.portal)
	if err != nil || !isAddress(at) {
		return scan{}, false, false
	}
	if plan, state, is := planOf(read, at); is {
		found, ok = s.scanIn(read, plan, state)
	}
	if x, inside := s.scanInside(read); inside && (!ok || x.pages > found.pages) {
		found, ok = x, true
	}
	return found, ok, true
}

// scanInside finds the scan of a statement inside a function, to which no portal leads. A plan computes a row in a
// context of its own. This is below the context of the executor's state, which also holds the nodes of the plan
// (CreateExecutorState, CreateExprContext in execUtils.c). So scanInside searches upwards from the current context:
// the innermost statement comes first.
func (s *server) scanInside(read memory.Reader) (found scan, ok bool) {
	if s.memory == 0 {
		return scan{}, false
	}
	at, err := read.Word(s.memory)
	for range maxContexts {
		if err != nil || !isAddress(at) {
			return scan{}, false
		}
		if found, ok = s.scanBelow(read, at); ok {
			return found, true
		}
		at, err = read.Word(at + contextParent)
	}
	return scan{}, false
}

// scanBelow looks for a running scan in the first block of an executor's context, among the nodes whose state is in
// that block, too: the state is the first thing in it. Of several scans it returns the one of the largest table.
func (s *server) scanBelow(read memory.Reader, context uint64) (found scan, ok bool) {
	var block [executorBlock]byte
	if read(context, block[:]) != nil {
		return scan{}, false
	}
	seen := 0
	for i := 0; i+nodeSize <= len(block) && seen < maxNodes; i += 8 {
		state := word(block[:], i+nodeState)
		if state <= context || state-context >= executorBlock || !isAddress(word(block[:], i+nodePlan)) {
			continue
		}
		seen++
		if x, runs := s.scanAt(read, block[i:i+nodeSize]); runs && (!ok || x.pages > found.pages) {
			found, ok = x, true
		}
	}
	return found, ok
}

// planOf returns the root of the plan that a portal runs, and the executor's state.
func planOf(read memory.Reader, at uint64) (plan, state uint64, ok bool) {
	var portal [portalSize]byte
	if read(at, portal[:]) != nil {
		return 0, 0, false
	}
	context := word(portal[:], portalContext)
	var block [blockSize]byte
	if !isAddress(context) || read(context, block[:]) != nil {
		return 0, 0, false
	}
	for i := 0; i+queryEnd <= len(block); i += 8 {
		text := word(block[:], i+queryText)
		if text == 0 || text != word(portal[:], portalText) && text != word(portal[:], portalText+8) {
			continue
		}
		plan, state = word(block[:], i+queryPlan), word(block[:], i+queryState)
		if !isAddress(plan) || !isAddress(state) {
			continue
		}
		if of, err := read.Word(plan + nodeState); err == nil && of == state {
			return plan, state, true
		}
	}
	return 0, 0, false
}

// scanIn looks for a running sequential scan in a plan; of several it returns the one of the largest table.
func (s *server) scanIn(read memory.Reader, root, state uint64) (found scan, ok bool) {
	list, seen := []uint64{root}, 0
	for ; len(list) > 0 && seen < maxNodes; seen++ {
		at := list[0]
		list = list[1:]
		var node [nodeSize]byte
		if !isAddress(at) || read(at, node[:]) != nil || word(node[:], nodeState) != state {
			continue
		}
		list = append(list, word(node[:], nodeLeft), word(node[:], nodeRight))
		list = append(list, children(read, node[:], state)...)
		if x, runs := s.scanAt(read, node[:]); runs && (!ok || x.pages > found.pages) {
			found, ok = x, true
		}
	}
	return found, ok
}

// children returns the children of a node that has many, such as the partitions of a table; none for another node.
func children(read memory.Reader, node []byte, state uint64) (out []uint64) {
	list, n := word(node, nodeRelation), int(half(node, nodeScan))
	if !isAddress(list) || n < 1 || n > maxChildren {
		return nil
	}
	b := make([]byte, 8*n)
	if read(list, b) != nil {
		return nil
	}
	if of, err := read.Word(word(b, 0) + nodeState); err != nil || of != state {
		return nil
	}
	for i := range n {
		out = append(out, word(b, 8*i))
	}
	return out
}

// scanAt reads the scan of a node; ok is false if it has none, one by an index, or one that is over.
func (s *server) scanAt(read memory.Reader, node []byte) (out scan, ok bool) {
	relation, at := word(node, nodeRelation), word(node, nodeScan)
	var b [scanSize]byte
	if !isAddress(relation) || !isAddress(at) || read(at, b[:]) != nil || word(b[:], scanRelation) != relation {
		return scan{}, false
	}
	shift := 0
	if s.is18 {
		shift = longerSince18
	}
	flags := half(b[:], scanFlags)
	if s.is18 {
		flags = half(b[:], scanFlags+4)
	}
	if flags&sequential == 0 || b[scanStarted+shift] != 1 {
		return scan{}, false
	}
	out.pages = half(b[:], scanPages+shift)
	class, ok := classOf(read, relation)
	if !ok {
		return scan{}, false
	}
	out.table, out.kept = nameIn(class[className:className+nameSize]), kept(read, node, rowsOf(class[:], out.pages))
	return out, out.table != "" && half(class[:], classMethod) == heap
}

// classOf reads the row of pg_class that a relation leads to.
func classOf(read memory.Reader, relation uint64) (class [classSize]byte, ok bool) {
	var b [relationSize]byte
	if read(relation, b[:]) != nil {
		return class, false
	}
	for i := 0; i+relationOID+4 <= len(b); i += 8 {
		row, oid := word(b[:], i), half(b[:], i+relationOID)
		if oid != 0 && isAddress(row) && read(row, class[:]) == nil && half(class[:], classOID) == oid {
			return class, true
		}
	}
	return class, false
}

// rowsOf returns how many rows a table has by the planner's estimate: the density that ANALYZE or VACUUM found, over
// all of its present pages. It is 0 if neither has run yet.
func rowsOf(class []byte, pages uint32) float64 {
	then, rows := half(class, classPages), float64(math.Float32frombits(half(class, classRows)))
	if then == 0 || !(rows > 0) {
		return 0
	}
	return rows / float64(then) * float64(pages)
}

// nameIn returns a name that ends at a zero byte; "" if it is not text.
func nameIn(b []byte) string {
	b, _, ends := bytes.Cut(b, []byte{0})
	if text := string(b); ends && utf8.ValidString(text) && !strings.ContainsFunc(text, isNotGraphic) {
		return text
	}
	return ""
}

func isNotGraphic(r rune) bool { return !unicode.IsGraphic(r) }

// kept returns the part of a table's rows that the planner expects a node to return.
func kept(read memory.Reader, node []byte, rows float64) float64 {
	if word(node, nodeFilter) == 0 {
		return 1
	}
	var plan [planEnd]byte
	at := word(node, nodePlan)
	if !(rows > 0) || !isAddress(at) || read(at, plan[:]) != nil {
		return -1
	}
	part := math.Float64frombits(word(plan[:], planRows)) / rows
	if !(part >= 0) {
		return -1
	}
	return min(part, 1)
}

// scanKey holds the labels of a series of scans.
type scanKey struct{ pid, table, statement string }

// scanned is what was seen of the scans of one series.
type scanned struct {
	time  time.Duration
	pages uint32
	kept  float64
}

// addScans adds the time since each session was last looked at to the scan that it is in. The workers of a parallel
// query have no portal; they have the text of its statement.
func (s *source) addScans(of *server, glances []glance, stuck map[uint64]behind, now time.Time) {
	leaders := map[string]*scanned{}
	var workers []*glance
	for i := range glances {
		g := &glances[i]
		if _, waits := stuck[g.proc]; waits || !g.client || g.state != active {
			continue
		}
		x, ok, running := of.scanOf(g.read)
		if !running {
			workers = append(workers, g)
		}
		if !ok {
			continue
		}
		if d := s.scansOf(scanKey{strconv.Itoa(of.pid), x.table, g.fingerprint}); d != nil {
			d.time += now.Sub(g.last)
			d.pages, d.kept = max(d.pages, x.pages), max(d.kept, x.kept)
			leaders[g.fingerprint] = d
		}
	}
	for _, g := range workers {
		if d := leaders[g.fingerprint]; d != nil {
			d.time += now.Sub(g.last)
		}
	}
}

// scansOf returns the series of a key; nil if there are too many.
func (s *source) scansOf(key scanKey) *scanned {
	d := s.scans[key]
	if d == nil && len(s.scans) < maxSeries {
		d = &scanned{kept: -1}
		s.scans[key] = d
	}
	return d
}

func (s *source) sampleScans(a *recording.Appender) {
	for key, d := range s.scans {
		labels := []string{key.pid, key.table, key.statement}
		a.Gauge(metric.DatabaseScanTime, d.time.Seconds(), labels...)
		a.Gauge(metric.DatabaseScanPages, float64(d.pages), labels...)
		if d.kept >= 0 {
			a.Gauge(metric.DatabaseScanKept, d.kept, labels...)
		}
	}
}
