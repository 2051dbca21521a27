package conventions

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// A wording is a row of the table of words in CONTRIBUTING.md.
type wording struct {
	words   []string // in lower case
	instead string
	reports bool // only in what users read; else everywhere
}

// proseFiles have prose for people, in text or in comments.
var proseFiles = []string{".go", ".md", ".html", ".ts", ".c", ".h", ".yaml", ".yml", ".json", ".1", ".sh"}

// read are the files whose words users see: reports, pages of checks, help, dashboards and alerts.
var read = regexp.MustCompile(`^(internal/(report|cli|lab/commands|dev/fleetgen|dev/docgen)/.*\.(go|html)|deploy/.*|` +
	`docs/checks/.*|docs/[a-z-]+\.md|README\.md|scenarios/.*/README\.md|docs/man/.*\.1)$`)

// quoted is what Markdown quotes of a file or a command: keys have their own names there.
var quoted = regexp.MustCompile("(?s)```yaml\n.*?\n```|`[^`\n]+`")

// unread need not follow the table: what was said by a version of its day, and the table with its test.
var unread = []linePattern{
	{regexp.MustCompile(`^docs/stories/`), "transcripts: scenario run --page writes them from a run"},
	{regexp.MustCompile(`^docs/exam\.md$|^exam/`), "results as they were recorded, and the words of the exam"},
	{regexp.MustCompile(`^CONTRIBUTING\.md$|/conventions/prose_test\.go$`), "the table of words, and its test"},
	{regexp.MustCompile(`^CHANGELOG\.md$`), "tells what was replaced"},
	{regexp.MustCompile(`_test\.go$`), "texts that tests make up"},
}

// wordings reads the table: its rows between the heading "Words" and the next.
func wordings(contributing string) (rows []wording, err error) {
	_, part, _ := strings.Cut(contributing, "\n## Words\n")
	part, _, _ = strings.Cut(part, "\n## ")
	for line := range strings.Lines(part) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || strings.HasPrefix(cells[0], "-") || strings.TrimSpace(cells[0]) == "not" {
			continue
		}
		where := strings.TrimSpace(cells[2])
		if where != "all" && where != "reports" {
			return nil, fmt.Errorf("%q: want all or reports in the third column", strings.TrimSpace(line))
		}
		var words []string
		for w := range strings.SplitSeq(cells[0], ";") {
			words = append(words, strings.ToLower(strings.TrimSpace(w)))
		}
		rows = append(rows, wording{words, strings.TrimSpace(cells[1]), where == "reports"})
	}
	return rows, nil
}

// sentences joins the lines of a text, in lower case, without what stands between two lines of one sentence: the marks
// of comments and lists, and of strings that are joined.
func sentences(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(strings.TrimSuffix(strings.TrimSpace(line), `" +`), " ")
		for _, w := range strings.Fields(strings.TrimLeft(line, `/#*">`)) {
			b.WriteString(strings.ToLower(w) + " ")
		}
	}
	return b.String()
}

// said gives the first of the words in a text with what is around it, or "". Parts of longer words and names are none.
func (w *wording) said(text string) string {
	for _, word := range w.words {
		for at := 0; ; at += len(word) {
			i := strings.Index(text[at:], word)
			if i < 0 {
				break
			}
			at += i
			end := at + len(word)
			before, _ := utf8.DecodeLastRuneInString(text[:at])
			after, _ := utf8.DecodeRuneInString(text[end:])
			if !inWord(before) && (!inWord(after) || strings.HasSuffix(word, ":")) {
				const around = 30
				return strings.ToValidUTF8(text[max(at-around, 0):min(end+around, len(text))], "")
			}
		}
	}
	return ""
}

func inWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '-' }

// prose gives the violations of a file. Phrases may be broken over lines.
func prose(name, text string, rows []wording) (bad []string) {
	if !slices.Contains(proseFiles, path.Ext(name)) {
		return nil
	}
	if slices.ContainsFunc(unread, func(p linePattern) bool { return p.pattern.MatchString(name) }) {
		return nil
	}
	if path.Ext(name) == ".md" {
		text = quoted.ReplaceAllString(text, "``")
	}
	text = sentences(text)
	for _, r := range rows {
		if r.reports && !read.MatchString(name) {
			continue
		}
		if said := r.said(text); said != "" {
			bad = append(bad, fmt.Sprintf("%s: …%s…: say: %s (CONTRIBUTING.md, Words)", name, said, r.instead))
		}
	}
	return bad
}

func TestProse(t *testing.T) {
	contributing, err := os.ReadFile("../../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := wordings(string(contributing))
	if err != nil {
		t.Fatal(err)
	}
	const least = 20 // fewer mean that the table was not found
	if len(rows) < least {
		t.Fatalf("CONTRIBUTING.md has %d rows of words, want %d or more", len(rows), least)
	}
	for name, text := range texts(t) {
		for _, violation := range prose(name, text, rows) {
			t.Error(violation)
		}
	}
}

// TestProseFires shows what is found, and what is let pass.
func TestProseFires(t *testing.T) {
	rows, err := wordings("# C\n\n## Words\n\n| not | but | where |\n|---|---|---|\n| cure; cures | fix | reports |\n" +
		"| worth knowing | FYI | all |\n| sure? | confidence | reports |\n\n## House rules\n\n| a | b | all |\n")
	if err != nil || len(rows) != 3 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, tt := range []struct {
		name, text string
		bad        int
	}{
		{"internal/report/a.go", "	t.line(\"Cure  \")", 1},
		{"internal/report/a.go", "	t.line(\"secure cured cure_first\")", 0},
		{"internal/check/a.go", "// the cure\n", 0},
		{"internal/check/a.go", "// It is worth\n// knowing.", 1},
		{"internal/check/a.go", "	s := \"worth \" +\n\t\t\"knowing\"", 1},
		{"internal/check/a_test.go", "// worth knowing", 0},
		{"docs/a.md", "Worth knowing, no", 1},
		{"docs/stories/a.md", "worth knowing", 0},
		{"docs/checks/a.md", "Sure? high; cures", 2},
		{"docs/man/perfdoctor-scenario-run.1", "the cure", 1},
		{"scenarios/a/README.md", "## Cure", 1},
		{"scenarios/a/README.md", "the key `cures: {NAME: …}`", 0},
		{"scenarios/a/scenario.yaml", "cures:", 0},
		{"docs/man/perfdoctor.1", "the cure", 1},
		{"a.png", "cure", 0},
	} {
		if got := prose(tt.name, tt.text, rows); len(got) != tt.bad {
			t.Errorf("%s: %q: %d found, want %d: %v", tt.name, tt.text, len(got), tt.bad, got)
		}
	}
	if _, err := wordings("\n## Words\n| a | b | sometimes |\n"); err == nil {
		t.Error("a row with another place is taken")
	}
}
