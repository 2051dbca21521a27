package checks

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// evil is the end of a hostile name. A shell that reads it outside quotes runs x.
const evil = "$(x)';\n"

var (
	labelText  = regexp.MustCompile(`"([^"\\]+)"([],])`)
	quotedText = regexp.MustCompile(`\$?'[^']*'|\\'`)
)

// TestHostileNamesInCommands is attack 11. Each name of each firing recording in turn gets an end that a shell would
// run.
func TestHostileNamesInCommands(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, f := range checktest.Find(t, "*/firing*") {
		tried += hostileCase(t, named(filepath.Base(filepath.Dir(f))), f)
	}
	if tried == 0 {
		t.Error("no hostile name reached a command")
	}
}

// hostileCase returns how many commands a hostile name reached.
func hostileCase(t *testing.T, c *check.Check, path string) int {
	t.Helper()
	// values tried of a case: the first lines hold all kinds of labels, and large recordings take long to read
	const most = 20
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	samples := &archive.Files[slices.IndexFunc(archive.Files,
		func(f txtar.File) bool { return f.Name == "samples.jsonl" })]
	sound, tried, reached := string(samples.Data), map[string]bool{}, 0
	for _, m := range labelText.FindAllStringSubmatch(sound, -1) {
		if tried[m[1]] || len(tried) == most {
			continue
		}
		tried[m[1]] = true
		name, err := json.Marshal(m[1] + evil)
		if err != nil {
			t.Fatal(err)
		}
		hostile := strings.ReplaceAll(sound, `"`+m[1]+`",`, string(name)+",")
		samples.Data = []byte(strings.ReplaceAll(hostile, `"`+m[1]+`"]`, string(name)+"]"))
		reached += hostileCommands(t, c, path, archive)
	}
	return reached
}

func hostileCommands(t *testing.T, c *check.Check, path string, archive *txtar.Archive) int {
	t.Helper()
	fsys, err := txtar.FS(archive)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := recording.Read(fsys)
	if err != nil {
		return 0 // a reader refuses a name of this kind
	}
	reached := 0
	for _, f := range check.Run(rec, []*check.Check{c}, check.Options{}).Findings {
		for _, r := range f.Remedies {
			if strings.Contains(string(r.Command), "$(x)") {
				reached++
			}
			bare := quotedText.ReplaceAllString(string(r.Command), "")
			if strings.Contains(bare, "$(x)") || strings.Contains(bare, "\n") {
				t.Errorf("%s: the name stands bare in %q", path, r.Command)
			}
		}
	}
	return reached
}
