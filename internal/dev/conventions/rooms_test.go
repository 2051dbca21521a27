package conventions

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mostRooms is the maximum number of directories of internal/: a newcomer reads so many names in a minute. New code
// belongs below one of them, as a rule.
const mostRooms = 18

// TestRooms: each directory of internal/ has one line in docs/architecture.md that says what may be changed there.
func TestRooms(t *testing.T) {
	page, err := os.ReadFile("../../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	var described, there []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z]+)` \\| .+ \\|$").FindAllSubmatch(page, -1) {
		described = append(described, string(m[1]))
	}
	entries, err := os.ReadDir("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		there = append(there, e.Name())
	}
	slices.Sort(described)
	if diff := cmp.Diff(there, described); diff != "" {
		t.Errorf("docs/architecture.md and internal/ differ (-internal +page):\n%s", diff)
	}
	if len(there) > mostRooms {
		t.Errorf("internal/ has %d entries, want %d at most: put what is new below one of them", len(there), mostRooms)
	}
}

// domains must not know each other, so that each can be read, and replaced, alone.
var domains = []string{"internal/jvm", "internal/kernel", "internal/daemon"}

// TestDomains: the packages of one domain import none of another, directly or through others.
func TestDomains(t *testing.T) {
	for _, r := range table {
		home := domainOf(r.pkg)
		if home == "" {
			continue
		}
		for _, pkg := range reachable(r) {
			if other := domainOf(pkg); other != "" && other != home {
				t.Errorf("%s can reach %s, which is of another domain", r.pkg, pkg)
			}
		}
	}
}

func domainOf(pkg string) string {
	for _, d := range domains {
		if pkg == d || len(pkg) > len(d) && pkg[:len(d)+1] == d+"/" {
			return d
		}
	}
	return ""
}
