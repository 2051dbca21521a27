package conventions

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// TestVulnerabilities gives the check a database with a vulnerability in a function that a package calls, and a file
// that is no database. "Nothing could be checked" is another answer than "nothing was found".
func TestVulnerabilities(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/vulndb.txtar")
	if err != nil {
		t.Fatal(err)
	}
	database := t.TempDir()
	for _, f := range archive.Files {
		name := filepath.Join(database, f.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		database string
		status   int
		want     string
	}{
		{database, 3, "GO-2026-99999"},
		{t.TempDir(), 77, "not checked, because"},
		{"/nowhere", 77, "not checked, because"},
		{"http://127.0.0.1:1", 77, "not checked, because"}, // nothing listens there
	} {
		cmd := exec.CommandContext(t.Context(), "../../../.ci/vulnerabilities", tc.database,
			"./internal/input/strictyaml")
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != tc.status || !strings.Contains(string(out), tc.want) {
			t.Errorf("%s: %v, want exit status %d and %q:\n%s", tc.database, err, tc.status, tc.want, out)
		}
	}
}
