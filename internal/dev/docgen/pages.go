package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/checks/signature"
	"github.com/perfdoctor/perfdoctor/internal/cli"
	"github.com/perfdoctor/perfdoctor/internal/lab/commands"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// caseDirs matches the rooms' test cases. Their golden output is the example on a check's page.
const caseDirs = "internal/checks/*/testdata"

// generated tells editors where a page comes from.
const generated = "<!-- Written by internal/dev/docgen from the program: change it there, then `make generate`. -->\n"

// generate makes all pages, by their path from the root of the repository.
func generate(repo fs.FS) (map[string][]byte, error) {
	pages := map[string][]byte{}
	manPages(pages, cli.Command("", commands.Scenario))
	if err := completionScripts(pages, cli.Command("", commands.Scenario)); err != nil {
		return nil, err
	}
	suite := checks.Suite()
	for _, c := range suite {
		page, err := checkPage(repo, c)
		if err != nil {
			return nil, err
		}
		pages["docs/checks/"+c.Name+".md"] = page
	}
	pages["docs/checks/README.md"] = checkIndex(suite)
	pages["docs/checks/causes.md"] = causesPage(suite, checks.Causes())
	pages["docs/metrics.md"] = metricPage()
	return pages, nil
}

func checkPage(repo fs.FS, c *check.Check) ([]byte, error) {
	var b bytes.Buffer
	_, body, _ := strings.Cut(strings.TrimSpace(c.Doc), "\n")
	fmt.Fprintf(&b, "# %s\n\n%s\n**%s**\n\n", c.Name, generated, markdown(c.Title()))
	fmt.Fprintf(&b, "Stage %d in the [fix order](README.md): %s\n\n%s\n", c.Stage, c.Stage,
		markdown(strings.TrimSpace(body)))
	if c.Event {
		b.WriteString("\nAn event: to have happened once is enough. Its [alert](../deploy.md#prometheus) does not " +
			"wait.\n")
	}
	code(&b, "Before", c.Before)
	code(&b, "After", c.After)
	thresholds(&b, c)
	reads(&b, c)
	related(&b, c, checks.Causes())
	fmt.Fprintf(&b, "\n## Source\n\n<%s>\n", c.URL)
	if err := example(&b, repo, c); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// code shows the fault and its fix as lines of a program.
func code(b *bytes.Buffer, title, lines string) {
	if lines != "" {
		fmt.Fprintf(b, "\n## %s\n\n```\n%s\n```\n", title, strings.TrimSpace(lines))
	}
}

func thresholds(b *bytes.Buffer, c *check.Check) {
	if len(c.Params) == 0 {
		return
	}
	b.WriteString("\n## Thresholds\n\n| threshold | default | why this number |\n|---|---|---|\n")
	for _, p := range c.Params {
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", p.Name, cell(p.Value().Text()), cell(p.Why))
	}
	fmt.Fprintf(b, "\nAnother value: `perfdoctor diagnose --set %s.%s=VALUE` (a share as 0.25).\n", c.Name,
		c.Params[0].Name)
}

func reads(b *bytes.Buffer, c *check.Check) {
	b.WriteString("\n## What it reads\n\n| metric | from | without it |\n|---|---|---|\n")
	row := func(m metric.Metric, without string) {
		d := m.Describe()
		fmt.Fprintf(b, "| [`%s`](../metrics.md#%s) | %s | %s |\n", d.Name, d.Name, cell(d.Source), without)
	}
	for _, m := range c.Needs {
		row(m, "not assessed")
	}
	for _, m := range c.Uses {
		row(m, "says less")
	}
}

func related(b *bytes.Buffer, c *check.Check, causes check.Causes) {
	of, behind := causes.Of(c.Name), causes.Behind(c.Name).Drawn()
	if len(of)+len(behind) == 0 {
		return
	}
	b.WriteString("\n## Causes and consequences\n\nOf what is found beside it ([all of them](causes.md)):\n\n")
	for _, e := range of {
		fmt.Fprintf(b, "- explains %s\n", edge(e, e.Effect))
	}
	for _, e := range behind {
		fmt.Fprintf(b, "- is explained by %s\n", edge(e, e.Cause))
	}
}

// edge returns a line of a list: the check at one end, what the edge depends on, and why it exists.
func edge(e check.Edge, end string) string {
	text := causeLink(end)
	if c := e.Condition(); c != "" {
		text += ", " + c
	}
	return text + ": " + markdown(e.Why)
}

// causesPage draws the table of causes.
func causesPage(suite []*check.Check, causes check.Causes) []byte {
	var b bytes.Buffer
	b.WriteString("# Causes and consequences\n\n" + generated + `
A finding stands under another in a report where it is a consequence of that. An arrow below says that it may be. It holds where
both were found, the cause at warning or above, and where both are about what can be related: a full accept queue explains connects
to that listener only. Arrows carry through what was found: a check that was measured fine is no link between two others. A dashed
arrow depends on the numbers.

` + "`perfdoctor checks causes`" + ` prints this table, ` + "`-o dot`" + ` for Graphviz and ` + "`-o json`" + ` for programs. It is in
[causes.go](../../internal/checks/causes.go), and each arrow has a recording among the cases of the checks in which a consequence
would stand alone without it.

`)
	drawn := causes.Drawn()
	b.WriteString("```mermaid\nflowchart LR\n")
	for stage := check.Path; stage <= check.Code; stage++ {
		fmt.Fprintf(&b, "  subgraph %s\n", stage)
		for _, c := range suite {
			if c.Stage == stage && len(drawn.Of(c.Name))+len(drawn.Behind(c.Name)) > 0 {
				fmt.Fprintf(&b, "    %s\n", c.Name)
			}
		}
		if stage == check.Code {
			for _, family := range []string{signature.JavaCode, signature.KnownCode} {
				fmt.Fprintf(&b, "    %s[%s]\n", node(family), family)
			}
		}
		b.WriteString("  end\n")
	}
	for _, e := range drawn {
		arrow := "-->"
		if c := e.Condition(); c != "" {
			arrow = "-. " + c + " .->"
		}
		fmt.Fprintf(&b, "  %s %s %s\n", node(e.Cause), arrow, e.Effect)
	}
	b.WriteString("```\n\n| cause | consequence | why |\n|---|---|---|\n")
	for _, e := range drawn {
		why := cell(e.Why)
		if c := e.Condition(); c != "" {
			why = c + ": " + why
		}
		fmt.Fprintf(&b, "| %s | [%s](%s.md) | %s |\n", causeLink(e.Cause), e.Effect, e.Effect, why)
	}
	fmt.Fprintf(&b, "\n%s: any check that finds code in the profile of a JVM, such as [exception-storm](%s).\n",
		signature.JavaCode, "exception-storm.md")
	fmt.Fprintf(&b, "\n%s: any check of the table of signatures that finds code by CPU time, such as [%s](%s.md).\n",
		signature.KnownCode, "memory-copying", "memory-copying")
	return b.Bytes()
}

func causeLink(name string) string {
	if name == signature.JavaCode || name == signature.KnownCode {
		return name
	}
	return fmt.Sprintf("[%s](%s.md)", name, name)
}

// node returns a name that mermaid treats as one word.
func node(name string) string { return strings.ReplaceAll(name, " ", "-") }

// example shows the golden output of the check's plain firing case, or else of the first one, so that it cannot
// differ from what the check says. A check that cannot fire yet, because its collector is missing, shows why it is
// not assessed.
func example(b *bytes.Buffer, repo fs.FS, c *check.Check) error {
	var files []string
	for _, pattern := range []string{"firing.txtar", "firing*.txtar", "not-assessed*.txtar"} {
		found, err := fs.Glob(repo, path.Join(caseDirs, c.Name, pattern))
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		return fmt.Errorf("check %s: there is no %s/%s/firing*.txtar to take its example from", c.Name, caseDirs,
			c.Name)
	}
	data, err := fs.ReadFile(repo, files[0])
	if err != nil {
		return err
	}
	ar := txtar.Parse(data)
	i := slices.IndexFunc(ar.Files, func(f txtar.File) bool { return f.Name == "want" })
	if i < 0 {
		return fmt.Errorf("%s has no want section: go test ./internal/checks/... -update writes it", files[0])
	}
	fmt.Fprintf(b, "\n## Example\n\n%s\n\n```\n%s```\n\nFrom [%s](../../%s).\n",
		markdown(strings.TrimSpace(string(ar.Comment))), ar.Files[i].Data, path.Base(files[0]), files[0])
	return nil
}

// stageWords says what each stage is about, in fix order.
var stageWords = map[check.Stage]string{
	check.Path:        "between machines: links, queues, NAT",
	check.Connections: "sockets, ports and the kernel settings about them",
	check.Kernel:      "the kernel's share of the CPU, memory and disk waits",
	check.Limits:      "limits around the process: quota, threads, memory, descriptors",
	check.Runtime:     "the language's runtime: collector, compiler, locks",
	check.Code:        "the program itself",
}

func checkIndex(suite []*check.Check) []byte {
	var b bytes.Buffer
	b.WriteString("# The checks\n\n" + generated + `
In fix order: what stands first is cheaper to fix and distorts what is seen below it.
` + "`perfdoctor checks explain NAME` prints a page's content on the host itself.\n" +
		"Which finding may be a consequence of which: [causes](causes.md).\n")
	last := check.Stage(0)
	for _, c := range suite {
		if c.Stage != last {
			last = c.Stage
			fmt.Fprintf(&b, "\n## Stage %d: %s\n\n%s\n\n| check | it finds |\n|---|---|\n", c.Stage, c.Stage,
				stageWords[c.Stage])
		}
		fmt.Fprintf(&b, "| [%s](%s.md) | %s |\n", c.Name, c.Name, cell(c.Title()))
	}
	return b.Bytes()
}

func metricPage() []byte {
	var b bytes.Buffer
	b.WriteString("# The metrics\n\n" + generated + `
Everything that can be measured, under the names it has in a recording ([recording-format.md](recording-format.md)).
A counter only rises: its raw value means nothing, its increase does. A gauge goes up and down. An info is a fact
in its labels; its number is always 1.
`)
	for _, m := range metric.All() {
		d := m.Describe()
		fmt.Fprintf(&b, "\n### %s\n\n%s: %s", d.Name, d.Kind, markdown(d.Help))
		var facts []string
		if d.Unit != "" {
			facts = append(facts, "unit: "+markdown(string(d.Unit)))
		}
		if len(d.Labels) > 0 {
			facts = append(facts, "labels: `"+strings.Join(d.Labels, "`, `")+"`")
		}
		facts = append(facts, "from: "+markdown(d.Source))
		fmt.Fprintf(&b, "\n\n- %s\n", strings.Join(facts, "\n- "))
	}
	return b.Bytes()
}

// quoted matches text between backquotes, which markdown leaves alone.
var quoted = regexp.MustCompile("`[^`\n]*`")

// openers matches characters that start something in markdown: emphasis, a link, a tag. An underscore does so only
// before a word.
var openers = regexp.MustCompile(`[\\*<\[~]|(^|[^\pL\pN_])_`)

// markdown escapes plain text.
func markdown(text string) string {
	var b strings.Builder
	at := 0
	for _, span := range quoted.FindAllStringIndex(text, -1) {
		b.WriteString(escape(text[at:span[0]]) + text[span[0]:span[1]])
		at = span[1]
	}
	b.WriteString(escape(text[at:]))
	return b.String()
}

func escape(text string) string {
	return openers.ReplaceAllStringFunc(text, func(s string) string { return s[:len(s)-1] + `\` + s[len(s)-1:] })
}

// cell escapes plain text for a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(markdown(text)), " "), "|", `\|`)
}
