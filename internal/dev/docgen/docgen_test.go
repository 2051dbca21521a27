package main

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/cli"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/lab/commands"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
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

// TestComplete expects a page for everything a user can name.
func TestComplete(t *testing.T) {
	all := pages(t)
	want := []string{
		"docs/man/perfdoctor.1", "docs/man/perfdoctor-diagnose.1", "docs/man/perfdoctor-checks-explain.1",
		"docs/checks/README.md", completionDir + "/perfdoctor", completionDir + "/_perfdoctor",
		completionDir + "/perfdoctor.fish",
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
	data, err := os.ReadFile("../../checks/kernel/testdata/cpu-steal/firing.txtar")
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

// TestStalePagesGo writes into a tree with the page of a removed check, and a page that somebody edited.
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
	if err := write(root, map[string][]byte{"docs/checks/a.md": []byte("new"), "docs/metrics.md": []byte(
		"m")}); err != nil {
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

// TestManPages lets groff read every page. It warns of requests and escapes that it does not know, and of text that
// became one by a slip.
func TestManPages(t *testing.T) {
	testenv.Need(t, testenv.Tool("groff"))
	read := 0
	for name, page := range pages(t) {
		if path.Dir(name) != "docs/man" {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "groff", "-k", "-man", "-Tutf8", "-ww", "-z")
		cmd.Stdin = bytes.NewReader(page)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("groff %s: %v\n%s", name, err, out)
		}
		read++
	}
	if read < 10 {
		t.Errorf("only %d pages: this test looks at the wrong files", read)
	}
}

func TestManPage(t *testing.T) {
	cmd := &cobra.Command{
		Use: "look", Short: "Looks", Run: func(*cobra.Command, []string) {},
		Long: "Looks at *all* of\n.hidden in C:\\dir.\n\nThen it stops.", Example: "  look -n 1\n.look",
	}
	cmd.Flags().IntP("count", "n", 3, "look `N` times")
	cmd.Flags().Bool("deep", false, "look deeper")
	want := `.nh
.TH "LOOK" "1" "Nov 2026" "perfdoctor" "perfdoctor manual"
.SH NAME
look \- Looks
.SH SYNOPSIS
\fBlook [flags]\fP
.SH DESCRIPTION
Looks at *all* of
\&.hidden in C:\edir.
.PP
Then it stops.
.SH OPTIONS
.TP
\fB\-n\fP, \fB\-\-count\fP=\fIN\fP
look N times (default 3)
.TP
\fB\-\-deep\fP
look deeper
.TP
\fB\-h\fP, \fB\-\-help\fP
help for look
.SH EXAMPLE
.EX
  look \-n 1
\&.look
.EE
`
	got := map[string][]byte{}
	manPages(got, cmd)
	if d := cmp.Diff(want, string(got["docs/man/look.1"])); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestFlagsNameOneValue: pflag takes the first word in back quotes of a flag's help as the name of its value. It leaves
// the quotes of others in the text.
func TestFlagsNameOneValue(t *testing.T) {
	flags := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			flags++
			if n := strings.Count(f.Usage, "`"); n > 2 {
				t.Errorf("%s --%s: %d back quotes, of which a reader sees some: %s", cmd.CommandPath(), f.Name, n,
					f.Usage)
			}
		})
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(cli.Command("", commands.Scenario))
	if flags < 50 {
		t.Errorf("only %d flags were looked at", flags)
	}
}
