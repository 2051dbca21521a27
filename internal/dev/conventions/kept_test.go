package conventions

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

var (
	// waitPackage matches a pattern of the waits' table for files of a package of Python or Ruby.
	waitPackage = regexp.MustCompile(`"(?:py::[^":]*:\*?/?|RUBY:[^"]* \*/)([a-z_0-9]+)/`)
	plainWord   = regexp.MustCompile(`"([a-z_0-9]+)"`)
)

// ofPython are packages of its standard library, whose files keep their names.
var ofPython = []string{"asyncio", "concurrent", "http", "multiprocessing"}

// unkept returns the packages in the text of the waits' table that the redaction's text does not mention.
func unkept(waits, redaction string) (out []string) {
	var kept []string
	for _, m := range plainWord.FindAllStringSubmatch(redaction, -1) {
		kept = append(kept, m[1])
	}
	for _, m := range waitPackage.FindAllStringSubmatch(waits, -1) {
		if !slices.Contains(kept, m[1]) && !slices.Contains(ofPython, m[1]) {
			out = append(out, m[1])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestKeptPackages: the rules about waits know packages by their files. So a redacted recording keeps their names.
func TestKeptPackages(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	waits, redaction := read("evidence/hotcode/wait_scripts.go"), read("recording/redact/path.go")
	if list := unkept(waits, redaction); len(list) > 0 {
		t.Errorf("the waits' table knows %q, which the redaction does not keep", list)
	}
	const table = `"py::*:*gevent/hub.py", "RUBY:* */puma/reactor.rb", "py::x:*asyncio/y.py"`
	if list := unkept(table, `"gevent"`); !slices.Equal(list, []string{"puma"}) {
		t.Errorf("%q, want puma alone", list)
	}
}
