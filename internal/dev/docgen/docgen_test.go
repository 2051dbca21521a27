package main

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/metric"
)

func pages(t *testing.T) map[string][]byte {
	t.Helper()
	p, err := generate(os.DirFS("../../.."))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDeterministic(t *testing.T) {
	first, second := pages(t), pages(t)
	for name := range first {
		if d := cmp.Diff(string(first[name]), string(second[name])); d != "" {
			t.Errorf("%s differs from one run to the next:\n%s", name, d)
		}
	}
}

// TestComplete wants a page for everything a user can name.
func TestComplete(t *testing.T) {
	all := pages(t)
	want := []string{
		"docs/man/perfdoctor.1", "docs/man/perfdoctor-diagnose.1", "docs/man/perfdoctor-checks-explain.1",
		"docs/checks/README.md",
	}
	for _, c := range checks.Suite() {
		want = append(want, "docs/checks/"+c.Name+".md")
		if !strings.Contains(string(all["docs/checks/README.md"]), "("+c.Name+".md)") {
			t.Errorf("the index does not list %s", c.Name)
		}
	}
	for _, name := range want {
		if len(all[name]) == 0 {
			t.Errorf("no page %s", name)
		}
	}
	for _, m := range metric.All() {
		if !strings.Contains(string(all["docs/metrics.md"]), "\n### "+m.Describe().Name+"\n") {
			t.Errorf("docs/metrics.md lacks %s", m.Describe().Name)
		}
	}
}

// TestExample compares one page's example with the test case it must come from.
func TestExample(t *testing.T) {
	data, err := os.ReadFile("../../checks/testdata/cpu-steal/firing.txtar")
	if err != nil {
		t.Fatal(err)
	}
	_, want, ok := strings.Cut(string(data), "-- want --\n")
	if !ok {
		t.Fatal("the case has no want section")
	}
	if page := string(pages(t)["docs/checks/cpu-steal.md"]); !strings.Contains(page, "```\n"+want+"```") {
		t.Errorf("the example is not the case's golden output %q:\n%s", want, page)
	}
}

// TestLinks follows every relative link of a generated page, to a generated page or to a file of the repository.
func TestLinks(t *testing.T) {
	all := pages(t)
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	followed := 0
	for name, text := range all {
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target := path.Join(path.Dir(name), m[1])
			_, err := os.Stat(filepath.Join("../../..", target))
			if all[target] == nil && err != nil {
				t.Errorf("%s links to %s, which does not exist", name, target)
			}
			followed++
		}
	}
	if followed < len(checks.Suite()) {
		t.Errorf("only %d links followed: this test looks at the wrong text", followed)
	}
}

// TestStalePagesGo writes into a tree that holds a page of a check that is no more, and a page that somebody edited.
func TestStalePagesGo(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"docs/checks/gone.md", "docs/checks/a.md", "docs/man/gone.1", "docs/guide.md"} {
		if err := os.MkdirAll(filepath.Join(root, path.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := write(root, map[string][]byte{"docs/checks/a.md": []byte("new"), "docs/metrics.md": []byte("m")}); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, dir := range []string{"docs", "docs/checks", "docs/man"} {
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range slices.DeleteFunc(entries, os.DirEntry.IsDir) {
			text, err := os.ReadFile(filepath.Join(root, dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			got[dir+"/"+e.Name()] = string(text)
		}
	}
	want := map[string]string{"docs/checks/a.md": "new", "docs/metrics.md": "m", "docs/guide.md": "old"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestMarkdown(t *testing.T) {
	for in, want := range map[string]string{
		"tcp_rmem and tcp_wmem": "tcp_rmem and tcp_wmem",
		"__inet_hash_connect":   `\__inet_hash_connect`,
		"a < b, *p, [x], ~1":    `a \< b, \*p, \[x], \~1`,
		"say `a*b <c>` *now*":   "say `a*b <c>` \\*now\\*",
		`a\b`:                   `a\\b`,
	} {
		if got := markdown(in); got != want {
			t.Errorf("markdown(%q) = %q, want %q", in, got, want)
		}
	}
	if got, want := cell("a | b\n c"), `a \| b c`; got != want {
		t.Errorf("cell: %q, want %q", got, want)
	}
}
