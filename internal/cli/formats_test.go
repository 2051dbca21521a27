package cli_test

import (
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
)

// shown is what one format says of a recording: the findings at warning or above as "severity check subject", in any
// order, and the exit code.
type shown struct {
	Findings []string
	Exit     int
}

// TestFormatsOfOneRecording writes text, JSON, Markdown and JUnit of one recording, each with the page beside it.
// Readers of any of them learn of the same findings with the same exit code.
func TestFormatsOfOneRecording(t *testing.T) {
	readers := map[string]func(t *testing.T, out string) []string{
		"json": inJSON, "text": inText,
		"markdown": inMarkdown, "junit": inJUnit,
	}
	for _, path := range []string{
		"fd-limit/firing-critical", "fd-limit/firing-level", "close-wait-leak/firing", "cpu-throttled/firing-real",
		"java-deadlock/firing",
		"monitor-contention/firing", "short-connection-ceiling/firing", "gc-overhead/firing",
		"gc-overhead/quiet-healthy",
	} {
		t.Run(path, func(t *testing.T) {
			from := checktest.Find(t, path)[0]
			var want shown
			for _, format := range []string{"json", "text", "markdown", "junit"} {
				page := filepath.Join(t.TempDir(), "report.html")
				code, out, stderr := run(t, "diagnose", "--from", from, "-o", format, "--html", page)
				got := shown{readers[format](t, out), code}
				switch format {
				case "json":
					want = got
				case "text":
					want := shown{withoutSubjects(want.Findings), want.Exit}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("text (-json +text): %s\n%s", diff, stderr)
					}
				default:
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s (-json +%s): %s\n%s", format, format, diff, stderr)
					}
				}
				if diff := cmp.Diff(want, shown{inPage(t, open(t, page)), code}); diff != "" {
					t.Errorf("the page beside %s (-json +html): %s", format, diff)
				}
			}
			code, out, stderr := run(t, "report", from, "-o", "html")
			if diff := cmp.Diff(want, shown{inPage(t, strings.NewReader(out)), code}); diff != "" {
				t.Errorf("html (-json +html): %s\n%s", diff, stderr)
			}
			if (want.Exit == 3) != (len(want.Findings) > 0) {
				t.Errorf("exit code %d with %q", want.Exit, want.Findings)
			}
		})
	}
}

func inJSON(t *testing.T, out string) []string {
	t.Helper()
	var report struct {
		Findings []struct {
			ID       string `json:"id"`
			Severity string `json:"severity"`
		} `json:"findings"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, f := range report.Findings {
		if f.Severity != "info" {
			list = append(list, f.Severity+" "+f.ID)
		}
	}
	return sorted(list)
}

// inText has no subjects, because the text shows only the summary of a consequence. The verdict's name is below its
// sentence.
func inText(_ *testing.T, out string) []string {
	return sorted(append(matched(`(?m)^(WARNING|CRITICAL)  (?:.+\n)+?  ([a-z0-9-]+): `, out),
		matched(`(?m)^ *(warning|critical)  ([a-z0-9-]+): `, out)...))
}

func withoutSubjects(list []string) []string {
	var out []string
	for _, f := range list {
		out = append(out, strings.Join(strings.Fields(f)[:2], " "))
	}
	return sorted(out)
}

func inMarkdown(_ *testing.T, out string) []string {
	out = html.UnescapeString(regexp.MustCompile(`\\([^a-z0-9 ])|<!-- -->`).ReplaceAllString(out, "$1"))
	return matched(
		`(?m)^(?:## perfdoctor: |<details><summary>|- )(warning|critical)(?:: | \*\*| <b>)(.*?)(?:\*\*: .*|</b>: .*)?$`,
		out)
}

func inJUnit(t *testing.T, out string) []string {
	t.Helper()
	var doc struct {
		Cases []struct {
			Name    string `xml:"name,attr"`
			Failure *struct {
				Type string `xml:"type,attr"`
			} `xml:"failure"`
		} `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, c := range doc.Cases {
		if c.Failure != nil {
			list = append(list, c.Failure.Type+" "+c.Name)
		}
	}
	return sorted(list)
}

// inPage reads what the page shows without its script: the badge, the check and the subject at the head of each
// finding.
func inPage(t *testing.T, r io.Reader) []string {
	t.Helper()
	page, err := html.Parse(r)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for n := range page.Descendants() {
		if severity := firstOf(n, "badge"); classOf(n, "finding") && (severity == "warning" || severity == "critical") {
			list = append(list, severity+" "+firstOf(n, "check")+" "+firstOf(n, "subject"))
		}
	}
	return sorted(list)
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func classOf(n *html.Node, class string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool {
		return a.Key == "class" && slices.Contains(strings.Fields(a.Val), class)
	})
}

// firstOf returns the text of the first element of a class below n.
func firstOf(n *html.Node, class string) string {
	for d := range n.Descendants() {
		if classOf(d, class) && d.FirstChild != nil {
			return d.FirstChild.Data
		}
	}
	return ""
}

// matched returns the severity and the name of each match of the pattern.
func matched(pattern, out string) []string {
	var list []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(out, -1) {
		list = append(list, strings.ToLower(m[1])+" "+m[2])
	}
	return sorted(list)
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}
