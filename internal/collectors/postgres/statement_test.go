package postgres

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFingerprint(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{
			"pgbench", "UPDATE pgbench_accounts SET abalance = abalance + -3541 WHERE aid = 17;",
			"UPDATE pgbench_accounts SET abalance = abalance + -? WHERE aid = ?",
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

// FuzzFingerprint: whatever stands in a literal behind other text, or not before a statement's end, is not in what
// comes out, and that is short text of one line.
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
