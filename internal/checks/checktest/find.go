package checktest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// Find gives the recordings that match a pattern: cases by check and name, "nic-errors/firing*", whichever room the
// check is in; those of the table of causes, "causes/*"; and those of testdata/recordings, "healthy/*". There is at
// least one.
func Find(t testing.TB, pattern string) []string {
	t.Helper()
	var list []string
	for _, dir := range []string{"internal/checks/*/testdata", "internal/checks/testdata", "testdata/recordings"} {
		found, err := filepath.Glob(filepath.Join(root(t), dir, pattern+".txtar"))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, found...)
	}
	if len(list) == 0 {
		t.Fatalf("no recording %s below internal/checks and in testdata/recordings", pattern)
	}
	return list
}

// Open reads a recording, "nic-errors/firing".
func Open(t testing.TB, name string) *recording.Recording {
	t.Helper()
	return OpenFile(t, Find(t, name)[0])
}

// OpenFile reads the recording in a file, as [Find] gives them.
func OpenFile(t testing.TB, path string) *recording.Recording {
	t.Helper()
	rec, err := recording.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// root is the directory of the repository, above that of the test.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above this test")
		}
		dir = filepath.Dir(dir)
	}
}
