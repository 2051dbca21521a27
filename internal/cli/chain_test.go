package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestChainOverTwoRecordings follows the waits of a service into the recording of its database. It refuses a recording
// of another time, of other connections, or without a database.
func TestChainOverTwoRecordings(t *testing.T) {
	t.Parallel()
	const client, server = "testdata/chain/client.txtar", "testdata/chain/server.txtar"
	if code, stdout, stderr := run(t, "diagnose", "--from", client); strings.Contains(stdout, "database-lock: ") {
		t.Errorf("the service alone: exit code %d: %s%s", code, stdout, stderr)
	}
	code, stdout, stderr := run(t, "diagnose", "--from", client, "--and", server, "-o", "json")
	if code != 3 || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for _, want := range []string{
		"python3 pid 9495 waits for 10.92.0.2:5432 ← PostgreSQL pids 9607, 9611, 9613 and 1 more ← " +
			"row lock of pid 9527, idle in a transaction after: UPDATE stock SET pieces = pieces + ? WHERE id = ?",
		`"explained_by": "database-lock lock row lock at 10.92.0.2:5432"`,
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("want %q in\n%s", want, stdout)
		}
	}
	const otherDay = "../checks/waits/testdata/database-lock/firing.txtar"
	text, err := os.ReadFile(server)
	if err != nil {
		t.Fatal(err)
	}
	others := filepath.Join(t.TempDir(), "others.txtar")
	text = bytes.ReplaceAll(text, []byte("10.92.0.1:"), []byte("10.92.0.9:"))
	if err := os.WriteFile(others, text, 0o600); err != nil {
		t.Fatal(err)
	}
	wantUsage(t, "no session that waited", "diagnose", "--from", client, "--and", others)
	wantUsage(t, "are of different times", "diagnose", "--from", client, "--and", otherDay)
	wantUsage(t, "not that of a database server", "diagnose", "--from", client, "--and", client)
	wantUsage(t, "it goes with --from", "diagnose", "--and", server)
}
