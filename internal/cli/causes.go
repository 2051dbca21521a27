package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/checks/signature"
	"github.com/perfdoctor/perfdoctor/internal/cli/command"
)

// causesFormats are the formats that checks causes writes: dot is for Graphviz.
var causesFormats = []command.Format{command.Text, command.JSON, dot}

const dot command.Format = "dot"

func (a *app) checksCausesCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "causes",
		Short: "Print which rules find causes and which their consequences",
		Long: `Prints the table of causes: for each rule, the rules whose findings are
consequences of its own, and why. A report puts a consequence under its cause if
both were found and their subjects can be related. A chain of causes passes only
through rules that found something.

"Java code" in the list stands for the rules that find code in the profile of a
JVM.`,
		Example: `  perfdoctor checks causes
  perfdoctor checks causes -o dot | dot -Tsvg > causes.svg`,
		Args: command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			f, err := command.ParseFormat(output, causesFormats)
			if err != nil {
				return err
			}
			return command.OutputError(writeCauses(a.Streams.Out, f))
		},
	}
	command.AddOutputFlag(cmd, &output, causesFormats)
	return cmd
}

func writeCauses(w io.Writer, f command.Format) error {
	switch f {
	case command.JSON:
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(checks.Causes())
	case dot:
		_, err := io.WriteString(w, dotOf(checks.Suite(), checks.Causes().Drawn()))
		return err
	}
	var b strings.Builder
	for _, c := range append(CheckNames(checks.Suite()), signature.JavaCode, signature.KnownCode) {
		explainEdges(&b, c, checks.Causes().Drawn().Of(c), func(e check.Edge) string { return e.Effect })
	}
	_, err := io.WriteString(w, strings.TrimPrefix(b.String(), "\n"))
	return err
}

// explainEdges lists edges under a title, each with its condition and reason. Without edges it writes nothing.
func explainEdges(b *strings.Builder, title string, edges check.Causes, end func(check.Edge) string) {
	if len(edges) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	for _, e := range edges {
		why := e.Why
		if c := e.Condition(); c != "" {
			why = c + ": " + why
		}
		fmt.Fprintf(b, "  %-26s %s\n", end(e), why)
	}
}

// dotOf draws the graph for Graphviz: a box for each stage, a dashed line for an edge that depends on numbers.
func dotOf(suite []*check.Check, causes check.Causes) string {
	var b strings.Builder
	b.WriteString("digraph causes {\n  rankdir=LR;\n  node [shape=box];\n")
	for stage := check.Path; stage <= check.Code; stage++ {
		fmt.Fprintf(&b, "  subgraph cluster_%s {\n    label=%q;\n", stage, stage)
		for _, c := range suite {
			if c.Stage == stage && len(causes.Of(c.Name))+len(causes.Behind(c.Name)) > 0 {
				fmt.Fprintf(&b, "    %q;\n", c.Name)
			}
		}
		b.WriteString("  }\n")
	}
	for _, e := range causes {
		style := ""
		if c := e.Condition(); c != "" {
			style = fmt.Sprintf(", style=dashed, label=%q", c)
		}
		fmt.Fprintf(&b, "  %q -> %q [tooltip=%q%s];\n", e.Cause, e.Effect, e.Why, style)
	}
	b.WriteString("}\n")
	return b.String()
}
