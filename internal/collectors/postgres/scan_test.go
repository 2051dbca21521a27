package postgres

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/collect/collecttest"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// TestScans: sessions of a real server read tables from end to end, in statements of each kind.
func TestScans(t *testing.T) { eachServer(t, testScans) }

// A scanSeen is what was recorded of one statement: the sessions in it (workers included) and the percentage that
// passes its filter.
type scanSeen struct {
	Table          string
	Sessions, Kept float64
	Pages          bool
}

func testScans(t *testing.T, server db) {
	first := server.connect(t)
	first.ask(t, `CREATE TABLE seats (id int PRIMARY KEY, guest int); INSERT INTO seats SELECT i, i % 1000 FROM
			generate_series(1, 100000) i;
		CREATE TABLE parts (id int, guest int) PARTITION BY RANGE (id);
		CREATE TABLE part_a PARTITION OF parts FOR VALUES FROM (0) TO (1000);
		CREATE TABLE part_b PARTITION OF parts FOR VALUES FROM (1000) TO (9000);
		INSERT INTO parts SELECT i, i FROM generate_series(1000, 5000) i;
		ANALYZE seats; ANALYZE parts;
		CREATE FUNCTION look() RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
			PERFORM id FROM seats WHERE guest = 5 AND pg_sleep(0.01) IS NULL; RETURN true; END $$;
		CREATE FUNCTION search() RETURNS bool LANGUAGE plpgsql AS $$ DECLARE r record; BEGIN
			FOR r IN SELECT id FROM seats WHERE guest = 6 AND pg_sleep(0.01) IS NULL LOOP END LOOP;
			RETURN look(); END $$;
		CREATE FUNCTION count_up() RETURNS bigint LANGUAGE sql VOLATILE AS
			$$ INSERT INTO parts VALUES (1001, 1); SELECT count(pg_sleep(0.01)) FROM seats $$;
		CREATE TABLE fresh AS SELECT i FROM generate_series(1, 3000) i; SELECT 1;`)
	const slow = "pg_sleep(0.01) IS NULL" // for functions the planner expects one row in 200
	want := map[string]scanSeen{}
	for _, x := range []struct {
		statement, fingerprint string
		want                   scanSeen
	}{
		{
			"SELECT id FROM seats WHERE guest = 7 AND " + slow, "SELECT id FROM seats WHERE guest = ? AND ",
			scanSeen{"seats", 1, 0, true},
		},
		{"SELECT count(" + slow + ") FROM seats", "SELECT count(", scanSeen{"seats", 1, 100, true}},
		{
			"UPDATE seats SET guest = 1 WHERE " + slow, "UPDATE seats SET guest = ? WHERE ",
			scanSeen{"seats", 1, 0, true},
		},
		{"DELETE FROM fresh WHERE " + slow, "DELETE FROM fresh WHERE ", scanSeen{"fresh", 1, -1, true}},
		{"SELECT id FROM parts WHERE " + slow, "SELECT id FROM parts WHERE ", scanSeen{"part_b", 1, 0, true}},
		{
			"PREPARE p AS SELECT id, 2 FROM seats WHERE " + slow + "; EXECUTE p", "EXECUTE p",
			scanSeen{"seats", 1, 0, true},
		},
		{"SELECT look()", "SELECT look()", scanSeen{"seats", 1, 0, true}},
		{"SELECT search()", "SELECT search()", scanSeen{"seats", 1, 0, true}},
		{"SELECT count_up()", "SELECT count_up()", scanSeen{"seats", 1, 100, true}},
		{
			"SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT * FROM seats WHERE id < 50000 AND " + slow,
			"",
			scanSeen{},
		},
		{
			"SET enable_seqscan = off; SET enable_indexscan = off; SELECT 3 FROM seats WHERE id < 50000 AND " + slow,
			"",
			scanSeen{},
		},
		{
			"SET max_parallel_workers_per_gather = 2; SET min_parallel_table_scan_size = 0; " +
				"SET parallel_setup_cost = 0; SELECT id, guest, 4 FROM seats WHERE " + slow,
			"SELECT id, guest, ? FROM seats WHERE ",
			scanSeen{"seats", 3, 0, true},
		},
	} {
		c := server.connect(t)
		c.say(t, "SET max_parallel_workers_per_gather = 0;")
		c.say(t, x.statement+";")
		if x.fingerprint != "" {
			want[x.fingerprint] = x.want
		}
	}
	time.Sleep(500 * time.Millisecond) // until all run
	const window = time.Second
	rec := collecttest.Once(t, open, server.pid, window)

	got := map[string]scanSeen{}
	for _, s := range rec.Gauge(metric.DatabaseScanTime) {
		seen := scanSeen{s.Label("table"), math.Round(s.Last() / window.Seconds()), -1, false}
		by := []string{"statement", s.Label("statement"), "table", seen.Table}
		for _, x := range rec.Gauge(metric.DatabaseScanKept, by...) {
			seen.Kept = math.Floor(100 * x.Last())
		}
		for _, x := range rec.Gauge(metric.DatabaseScanPages, by...) {
			seen.Pages = x.Last() > 5
		}
		got[before(s.Label("statement"))] = seen
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("scans (-want +got):\n%s", diff)
	}
	ran := map[string]float64{}
	for _, s := range rec.Gauge(metric.DatabaseStatementTime) {
		ran[before(s.Label("statement"))] += s.Last()
	}
	for statement := range want {
		if ran[statement] < 0.5*window.Seconds() {
			t.Errorf("%s runs for %v s of %v", statement, ran[statement], window)
		}
	}
}

// before removes the call that makes a test's statement slow.
func before(statement string) string {
	out, _, _ := strings.Cut(statement, "pg_sleep")
	return out
}

// Places in the arena of a session that is in a scan: the portal's address is at its beginning.
const (
	atPortal, atBlock, atNode, atPlan    = 0x40, 0x100, 0x500, 0x600
	atScan, atRelation, atClass, scanEnd = 0x640, 0x6c0, 0x740, 0x800
	atContext                            = 0x10 // only its parent is read, at 0x28
	theState, theText                    = arenaBase + 0x7f0, arenaBase + 0x7f8
)

// scanArena has a session that scans a table of 40 pages for ten rows. The table had 100 rows when it had 4 pages.
func scanArena() arena {
	m := make(arena, scanEnd)
	m.word(0, arenaBase+atPortal)
	m.word(atPortal+portalContext, arenaBase+atBlock)
	m.word(atPortal+portalText+8, theText)
	const query = atBlock + 0x100
	m.word(query+queryText, theText)
	m.word(query+queryState, theState)
	m.word(query+queryPlan, arenaBase+atNode)
	m.word(atNode+nodePlan, arenaBase+atPlan)
	m.word(atNode+nodeState, theState)
	m.word(atNode+nodeFilter, arenaBase)
	m.word(atNode+nodeRelation, arenaBase+atRelation)
	m.word(atNode+nodeScan, arenaBase+atScan)
	m.word(atPlan+planRows, math.Float64bits(10))
	m.word(atScan+scanRelation, arenaBase+atRelation)
	m.half(atScan+scanFlags, sequential)
	m.half(atScan+scanPages, 40)
	m[atScan+scanStarted] = 1
	m.word(atRelation+56, arenaBase+atClass)
	m.half(atRelation+56+relationOID, 16400)
	m.half(atClass+classOID, 16400)
	copy(m[atClass+className:], "seats")
	m.half(atClass+classMethod, heap)
	m.half(atClass+classPages, 4)
	m.half(atClass+classRows, math.Float32bits(100))
	return m
}

// inFunction has the same scan in a statement without a portal. The node lies in the executor's context, with the
// state, and the current context is below that.
func inFunction() arena {
	m := append(scanArena(), make(arena, 2*executorBlock)...)
	m.word(atPortal+portalText+8, arenaBase)
	m.word(8, arenaBase+atContext)
	m.word(atContext+contextParent, arenaBase+scanEnd)
	const node = scanEnd + 0x400
	copy(m[node:], m[atNode:atNode+nodeSize])
	m.word(node+nodeState, arenaBase+scanEnd+0xe0)
	return m
}

func TestScanOf(t *testing.T) {
	seats := scan{table: "seats", pages: 40, kept: 0.01}
	with := func(change func(m arena)) arena {
		m := scanArena()
		change(m)
		return m
	}
	unknown, all := seats, seats
	unknown.kept, all.kept = -1, 1
	for _, tc := range []struct {
		name string
		in   arena
		want scan
	}{
		{"a scan", scanArena(), seats},
		{"without a filter", with(func(m arena) { m.word(atNode+nodeFilter, 0) }), all},
		{"never analysed", with(func(m arena) { m.half(atClass+classPages, 0) }), unknown},
		{"rows that are no number", with(func(m arena) { m.word(atPlan+planRows, 0x7ff8<<48) }), unknown},
		{"over", with(func(m arena) { m[atScan+scanStarted] = 0 }), scan{}},
		{"by a bitmap", with(func(m arena) { m.half(atScan+scanFlags, 2) }), scan{}},
		{"of another relation", with(func(m arena) { m.word(atScan+scanRelation, arenaBase) }), scan{}},
		{"another method than heap", with(func(m arena) { m.half(atClass+classMethod, 3) }), scan{}},
		{"a row of another relation", with(func(m arena) { m.half(atClass+classOID, 1) }), scan{}},
		{"a name of other bytes", with(func(m arena) { m[atClass+className] = 7 }), scan{}},
		{"another statement's plan", with(func(m arena) { m.word(atNode+nodeState, arenaBase) }), scan{}},
		{"no statement", with(func(m arena) { m.word(0, 0) }), scan{}},
		{"in a function", inFunction(), seats},
		{"contexts that go round", with(func(m arena) {
			m.word(8, arenaBase+atContext)
			m.word(atContext+contextParent, arenaBase+atContext)
			m.word(atPortal+portalText+8, arenaBase)
		}), scan{}},
		{"a plan that goes round", with(func(m arena) {
			m.word(atNode+nodeLeft, arenaBase+atNode)
			m.word(atNode+nodeRight, arenaBase+atNode)
		}), seats},
	} {
		of := server{portal: arenaBase, memory: arenaBase + 8}
		got, _, _ := of.scanOf(tc.in.read)
		if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(scan{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}
