package cli

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/input/spelling"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func (a *app) checksCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "checks",
		Short: "List and explain the rules",
		Args:  command.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.checksListCommand(), a.checksExplainCommand(), a.checksCaseCommand(), a.checksCausesCommand())
	return cmd
}

func (a *app) checksListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the rules in fix order",
		Args:  command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			for _, c := range checks.Suite() {
				if _, err := fmt.Fprintf(a.Streams.Out, "%-12s %-26s %s\n", c.Stage, c.Name, c.Title()); err != nil {
					return command.OutputError(err)
				}
			}
			return nil
		},
	}
}

func (a *app) checksExplainCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "explain NAME",
		Short:             "Print a rule's manual: symptoms, fix, commands, thresholds, source",
		Args:              command.OneArg("the name of a check"),
		ValidArgsFunction: completeChecks,
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := FindCheck(checks.Suite(), args[0])
			if err != nil {
				return err
			}
			return command.OutputError(explainCheck(a.Streams.Out, c))
		},
	}
}

func explainCheck(w io.Writer, c *check.Check) error {
	var b strings.Builder
	symptoms, fix, rest := docParts(c.Doc)
	fmt.Fprintf(&b, "%s (stage %d: %s)\n\n%s\n", c.Name, c.Stage, c.Stage, symptoms)
	if fix != "" {
		b.WriteString("\n" + fix + "\n")
	}
	for _, e := range []struct{ title, lines string }{{"Before", c.Before}, {"After", c.After}} {
		if e.lines != "" {
			fmt.Fprintf(&b, "\n%s:\n  %s\n", e.title, strings.ReplaceAll(strings.TrimSpace(e.lines), "\n", "\n  "))
		}
	}
	fmt.Fprintf(&b, "\nLook for it alone, with all numbers:\n  sudo perfdoctor diagnose --check %s -v\n", c.Name)
	if rest != "" {
		b.WriteString("\n" + rest + "\n")
	}
	if len(c.Params) > 0 {
		b.WriteString("\nThresholds (change one with --set " + c.Name + ".NAME=VALUE):\n")
		for _, p := range c.Params {
			fmt.Fprintf(&b, "  %s = %s\n      %s\n", p.Name, p.Value().Text(), p.Why)
		}
	}
	explainEdges(&b, "May explain", checks.Causes().Of(c.Name), func(e check.Edge) string { return e.Effect })
	explainEdges(&b, "May be explained by", checks.Causes().Behind(c.Name).Drawn(), func(e check.Edge) string {
		return e.Cause
	})
	b.WriteString("\nNeeds:\n")
	for _, m := range c.Needs {
		d := m.Describe()
		fmt.Fprintf(&b, "  %s (%s)\n", d.Name, d.Source)
	}
	fmt.Fprintf(&b, "\nSource: %s\n", c.URL)
	_, err := io.WriteString(w, b.String())
	return err
}

// docParts splits a check's text in the order in which a reader at night needs it: the title with the first
// paragraph, the part from "Fix:" to the end of that paragraph, and the rest.
func docParts(doc string) (symptoms, fix, rest string) {
	doc = strings.TrimSpace(doc)
	if before, after, ok := strings.Cut(doc, "\nFix:"); ok {
		var tail string
		fix, tail, _ = strings.Cut(after, "\n\n")
		fix = "Fix:" + fix
		doc = strings.TrimSpace(strings.TrimSpace(before) + "\n\n" + tail)
	}
	title, text, _ := strings.Cut(doc, "\n")
	first, rest, _ := strings.Cut(strings.TrimSpace(text), "\n\n")
	return strings.TrimSpace(title + "\n\n" + first), fix, rest
}

func (a *app) checksCaseCommand() *cobra.Command {
	var from, comment string
	var edits []string
	cmd := &cobra.Command{
		Use:   "case NAME... --from RECORDING",
		Short: "Cut a recording down to what one rule reads, as a test case for it",
		Long: `Prints a txtar file with the metrics that the rule reads. Put it under
internal/checks/STAGE/testdata/NAME/ as firing-….txtar, quiet-….txtar or
not-assessed-….txtar, and let the test write what it must say:
go test ./internal/checks/STAGE -update

If you name a cause and its consequence, it is a case for the edge between them:
put it under internal/checks/testdata/causes.

To make a case just below a threshold, change the numbers of one that fires:
--edit sets each value of a gauge, or the increase of a counter in the window,
to a number or to a multiple of what it was. The comment of the case says so.`,
		Example: `  perfdoctor checks case cpu-throttled --from incident.zip \
    --comment 'a Go server under a quota of 0.2 CPUs, Linux 6.18' > firing.txtar
  perfdoctor checks case nic-errors --from firing.txtar \
    --comment 'just below one packet in a thousand' \
    --edit 'net_device_errors_total{device=eth1}=190' > quiet.txtar`,
		Args:              command.SomeArgs("the name of a check"),
		ValidArgsFunction: completeChecks,
		RunE: func(_ *cobra.Command, args []string) error {
			list, err := chosen(checks.Suite(), args)
			if err != nil {
				return err
			}
			if from == "" || comment == "" {
				return command.UsageErrorf("give --from RECORDING and --comment with where the recording came from")
			}
			rec, err := recording.Open(from)
			if err != nil {
				return fromError(err)
			}
			if rec, comment, err = edited(readBy(list, rec), comment, edits); err != nil {
				return err
			}
			return command.OutputError(rec.WriteTxtar(a.Streams.Out, comment))
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "the recording, made with diagnose --save")
	cmd.Flags().StringVar(&comment, "comment", "", "where the recording came from, for the reader of the case")
	cmd.Flags().StringArrayVar(&edits, "edit", nil, "other numbers: `EDIT` is METRIC{LABEL=VALUE,…}=NUMBER, or "+
		"=xFACTOR")
	return cmd
}

// edited changes numbers of a case, and notes that in its comment.
func edited(rec *recording.Recording, comment string, edits []string) (*recording.Recording, string, error) {
	for _, e := range edits {
		var err error
		if rec, err = rec.Edit(e); err != nil {
			return nil, "", command.UsageErrorf("--edit %v", err)
		}
		comment += "\nEdited: " + e
	}
	return rec, comment, nil
}

// WriteCase cuts a recording down to what the checks read.
func WriteCase(w io.Writer, list []*check.Check, rec *recording.Recording, comment string) error {
	return readBy(list, rec).WriteTxtar(w, comment)
}

func readBy(list []*check.Check, rec *recording.Recording) *recording.Recording {
	var reads []metric.Metric
	for _, c := range list {
		reads = slices.Concat(reads, c.Needs, c.Uses)
	}
	return rec.Cut(reads)
}

// CheckNames returns the names of the checks, in their order.
func CheckNames(suite []*check.Check) []string {
	var names []string
	for _, c := range suite {
		names = append(names, c.Name)
	}
	return names
}

// FindCheck returns the check of that name, or a usage error with the nearest name.
func FindCheck(suite []*check.Check, name string) (*check.Check, error) {
	for _, c := range suite {
		if c.Name == name {
			return c, nil
		}
	}
	if near := spelling.Nearest(name, CheckNames(suite)); near != "" {
		return nil, command.UsageErrorf("unknown check %q: did you mean %s? `perfdoctor checks list` names all", name,
			near)
	}
	return nil, command.UsageErrorf("unknown check %q: `perfdoctor checks list` names all", name)
}

// parseParams reads CHECK.PARAMETER=VALUE settings for the checks in list, a part of the suite.
func parseParams(settings []string, suite, list []*check.Check) (map[*check.Param]float64, error) {
	out := map[*check.Param]float64{}
	for _, s := range settings {
		name, text, ok := strings.Cut(s, "=")
		checkName, paramName, ok2 := strings.Cut(name, ".")
		if !ok || !ok2 {
			return nil, command.UsageErrorf("--set %q is not CHECK.PARAMETER=VALUE", s)
		}
		c, err := FindCheck(suite, checkName)
		if err != nil {
			return nil, err
		}
		p, err := findParam(c, paramName)
		if err != nil {
			return nil, err
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v >= 0) || math.IsInf(v, 0) { // a NaN is not >= 0
			return nil, command.UsageErrorf("--set %s: %q is not a number of zero or more (in %s; a share is given "+
				"as 0.25)",
				name, text, unitName(p))
		}
		if !slices.Contains(list, c) {
			return nil, command.UsageErrorf("--set %s: %s is not among the checks of --check", name, c.Name)
		}
		out[p] = v
	}
	return out, nil
}

func unitName(p *check.Param) string {
	if p.Unit == "" {
		return "no unit"
	}
	return string(p.Unit)
}

func findParam(c *check.Check, name string) (*check.Param, error) {
	var names []string
	for _, p := range c.Params {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	if len(names) == 0 {
		return nil, command.UsageErrorf("check %s has no parameters", c.Name)
	}
	return nil, command.UsageErrorf("check %s has no parameter %q: it has %s", c.Name, name, strings.Join(names, ", "))
}

// chosen returns the named checks, each once and in the order of the suite. Without names it returns all.
func chosen(suite []*check.Check, names []string) ([]*check.Check, error) {
	if len(names) == 0 {
		return suite, nil
	}
	named := map[string]bool{}
	for _, n := range names {
		if _, err := FindCheck(suite, n); err != nil {
			return nil, err
		}
		named[n] = true
	}
	return slices.DeleteFunc(slices.Clone(suite), func(c *check.Check) bool { return !named[c.Name] }), nil
}

// maxSignatures bounds a file of signatures: the built-in table of forty has 40 KiB.
const maxSignatures = 1 << 20

// suiteWith returns all checks, followed by the checks of a file of signatures if one is named, and the causes among
// them.
func suiteWith(signatures string) ([]*check.Check, check.Causes, error) {
	if signatures == "" {
		return checks.Suite(), checks.Causes(), nil
	}
	f, err := os.Open(signatures)
	if err != nil {
		return nil, nil, command.UsageErrorf("--signatures: %v", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSignatures+1))
	if err != nil {
		return nil, nil, command.UsageErrorf("--signatures: %v", err)
	}
	if len(data) > maxSignatures {
		return nil, nil, command.UsageErrorf("--signatures %s: it is larger than %d bytes", signatures, maxSignatures)
	}
	own, causes, err := checks.ParseSignatures(signatures, data)
	if err != nil {
		return nil, nil, command.UsageErrorf("--signatures: %v", err)
	}
	return slices.Concat(checks.Suite(), own), causes, nil
}
