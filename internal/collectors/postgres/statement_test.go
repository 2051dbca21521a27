package postgres

import (
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestFingerprint(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{
			"pgbench", "UPDATE pgbench_accounts SET abalance = abalance + -3541 WHERE aid = 17;",
			"UPDATE pgbench_accounts SET abalance = abalance + ? WHERE aid = ?",
		},
		{
			"signs", "SELECT a -1, b - 2, -3 FROM t WHERE c = -4 AND d IN (-5, -6)",
			"SELECT a -?, b - ? FROM t WHERE c = ? AND d IN (?)",
		},
		{"parameters", "SELECT * FROM t2 WHERE a=$1 AND b >= $22", "SELECT * FROM t2 WHERE a=? AND b >= ?"},
		{"list", "SELECT 1 FROM t WHERE id IN (1, 2,3 ,4)", "SELECT ? FROM t WHERE id IN (?)"},
		{"quotes", "SELECT 'it''s', E'a\\'b', n'x', U&'\\0061', X'1f' FROM t", "SELECT ? FROM t"},
		{"dollars", "DO $body$ secret 'x' $$ $body$ LANGUAGE plpgsql", "DO ? LANGUAGE plpgsql"},
		{"numbers", "SELECT a1+1.5e-3*.5, 0xFF, 1_000", "SELECT a1+?*?"},
		{
			"comments and lines", "/* trace /* 4711 */ id */ SELECT a -- user 12\n\tFROM  \"Order Items\"",
			`SELECT a FROM "Order Items"`,
		},
		{"password", "ALTER ROLE bob PASSWORD 'secret'", "ALTER ROLE bob PASSWORD ?"},
		{"cut off in a literal", "SELECT * FROM t WHERE a = 'sec", "SELECT * FROM t WHERE a = ?"},
		{"a backslash that may escape", `INSERT INTO t VALUES ('a\', 'secret', 'b\')`, "INSERT INTO t VALUES (?"},
		{"cut off in a name", `SELECT * FROM "sec`, "SELECT * FROM"},
		{"letters", "SELECT größe FROM maße", "SELECT größe FROM maße"},
		{"other bytes", "SELECT\x00\xff\x1b[2J a", "SELECT [? a"},
		{"no SQL", "SELECT $x secret", "SELECT"},
		{"empty", "", ""},
	} {
		if got := fingerprint(tc.text); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	if got := fingerprint(strings.Repeat("ä, ", 200)); len(got) > maxFingerprint+len("…") || !utf8.ValidString(got) {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

// FuzzFingerprint: the result is short text of one line. It contains nothing of a literal, whether that stands behind
// other text or is not closed before the statement's end.
func FuzzFingerprint(f *testing.F) {
	f.Add("SELECT * FROM t WHERE a = ")
	f.Add("/* ' */ SELECT E'\\\\' || $q$ x $q$, 1e-5 ")
	f.Fuzz(func(t *testing.T, text string) {
		got := fingerprint(text)
		if len(got) > maxFingerprint+len("…") || !utf8.ValidString(got) || strings.ContainsAny(got, "'\n\r\x1b\x00") {
			t.Errorf("%q: %q", text, got)
		}
		if strings.ContainsAny(text, `'"$\/-`) || strings.Contains(text, "S3CRET") {
			return // it may begin a literal, so that ours ends it
		}
		if got := fingerprint(text + " 'S3CRET'"); strings.Contains(got, "S3CRET") {
			t.Errorf("%q: %q", text, got)
		}
	})
}

// TestBounded: sixty sessions wait for each other in turn. The statements stay, and no time is lost.
func TestBounded(t *testing.T) {
	s := &source{waits: map[waitKey]time.Duration{}}
	for i := range 60 {
		for j := range 60 {
			key := waitKey{
				pid: strconv.Itoa(i), holder: strconv.Itoa(j), kind: "row", state: "active",
				statement: "UPDATE a", byStatement: "UPDATE b",
			}
			s.waits[key] = time.Millisecond * time.Duration(1+j)
		}
	}
	total, rest := time.Duration(0), time.Duration(0)
	got := s.bounded()
	for key, d := range got {
		total += d
		if key.statement == "" || key.byStatement == "" {
			rest += d
		}
	}
	if want := 60 * 1830 * time.Millisecond; total != want || rest != 0 || len(got) != 60 {
		t.Errorf("%d series of %s, %s without a statement; want 60 of %s", len(got), total, rest, want)
	}
	for i := range 300 {
		s.waits[waitKey{kind: "row", statement: strconv.Itoa(i)}] = time.Nanosecond
	}
	if got := s.bounded(); len(got) > maxSeries || got[waitKey{kind: "row"}] == 0 {
		t.Errorf("%d series, %s summed up", len(got), got[waitKey{kind: "row"}])
	}
}
