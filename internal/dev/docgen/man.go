package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manDate is fixed, so that the same source makes the same pages. It is the month in which the commands got this
// form.
const manDate = "Nov 2026"

// manPages writes the page of a command and of all commands below it. cobra's own generator goes through Markdown,
// which treats an asterisk or an underscore in the plain help text as emphasis, and it does not know the names of
// flags' values.
func manPages(pages map[string][]byte, cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	pages["docs/man/"+pageName(cmd)+".1"] = []byte(manPage(cmd))
	for _, c := range children(cmd) {
		manPages(pages, c)
	}
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// children returns the commands below cmd that have a page.
func children(cmd *cobra.Command) []*cobra.Command {
	var out []*cobra.Command
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && !c.IsAdditionalHelpTopicCommand() {
			out = append(out, c)
		}
	}
	return out
}

func manPage(cmd *cobra.Command) string {
	var b strings.Builder
	name := roff(pageName(cmd))
	// nh: a hyphenated word would not be what the program calls it.
	fmt.Fprintf(&b, ".nh\n.TH \"%s\" \"1\" \"%s\" \"perfdoctor\" \"perfdoctor manual\"\n", strings.ToUpper(name),
		manDate)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", name, roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n\\fB%s\\fP\n", roff(cmd.UseLine()))
	b.WriteString(".SH DESCRIPTION\n")
	text := cmd.Long
	if text == "" {
		text = cmd.Short
	}
	b.WriteString(strings.ReplaceAll(roff(strings.TrimSpace(text)), "\n\n", "\n.PP\n") + "\n")
	options(&b, "OPTIONS", cmd.NonInheritedFlags())
	options(&b, "OPTIONS OF ALL COMMANDS", cmd.InheritedFlags())
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLE\n.EX\n%s\n.EE\n", roff(strings.Trim(cmd.Example, "\n")))
	}
	seeAlso(&b, cmd)
	return b.String()
}

// options writes the flags with the names of their values, as --help does.
func options(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		b.WriteString(".TP\n")
		if f.Shorthand != "" {
			fmt.Fprintf(b, "\\fB%s\\fP, ", roff("-"+f.Shorthand))
		}
		fmt.Fprintf(b, "\\fB%s\\fP", roff("--"+f.Name))
		value, usage := pflag.UnquoteUsage(f)
		if value != "" {
			fmt.Fprintf(b, "=\\fI%s\\fP", roff(value))
		}
		fmt.Fprintf(b, "\n%s%s\n", roff(usage), roff(byDefault(f)))
	})
}

// byDefault returns the default of a flag, if it has one.
func byDefault(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "[]", "0", "0s", "false":
		return ""
	}
	return " (default " + f.DefValue + ")"
}

func seeAlso(b *strings.Builder, cmd *cobra.Command) {
	var pages []string
	if cmd.HasParent() {
		pages = append(pages, pageName(cmd.Parent()))
	}
	for _, c := range children(cmd) {
		pages = append(pages, pageName(c))
	}
	if len(pages) == 0 {
		return
	}
	b.WriteString(".SH SEE ALSO\n")
	for i, page := range pages {
		end := ","
		if i == len(pages)-1 {
			end = ""
		}
		fmt.Fprintf(b, ".BR %s (1)%s\n", roff(page), end)
	}
}

// roff escapes what troff would interpret in plain text: a backslash, a dash that must stay a dash when it is copied,
// and a dot or apostrophe that begins a line and would make it a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
