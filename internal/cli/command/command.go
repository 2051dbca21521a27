// Package command holds what all commands of the program share: streams, exit codes, errors in the call, output
// formats, and how arguments and flags are checked.
package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/input/spelling"
)

// The exit codes, in every output format.
const (
	ExitFine     = 0 // nothing at warning or above
	ExitFailed   = 1 // perfdoctor failed
	ExitUsage    = 2 // the call was wrong, or names something that is not there
	ExitFindings = 3 // a finding at warning or above
	// 4, incomplete: most of what was asked for could not be assessed, or something is full and what fills it has no
	// name. Only a report returns it.
)

// An App is the state of one run, which the commands share.
type App struct {
	Version string
	Streams Streams
	Exit    int // the exit code of a run without an error
}

// Streams are where a run writes: only the report goes to Out, all other words go to Err.
type Streams struct {
	Out, Err io.Writer
}

// Say writes to the standard error. If even that fails, there is nobody left to tell.
func (s Streams) Say(format string, args ...any) { _, _ = fmt.Fprintf(s.Err, format, args...) }

// A UsageError is a mistake in the call. Its exit code is 2.
type UsageError struct{ msg string }

// Error returns the message.
func (e *UsageError) Error() string { return e.msg }

// UsageErrorf makes a [UsageError].
func UsageErrorf(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// OutputError says what a failed write to the standard output means for the reader. A reader that went away, such as
// head, has read enough: that is no error.
func OutputError(err error) error {
	var path *fs.PathError
	switch {
	case err == nil, errors.Is(err, unix.EPIPE):
		return nil
	case errors.As(err, &path):
		err = path.Err
	}
	return fmt.Errorf("write to the standard output: %w", err)
}

// Format is an output format of -o.
type Format string

// The output formats. A command names the ones it writes.
const (
	Text     Format = "text"
	JSON     Format = "json"
	Markdown Format = "markdown"
	JUnit    Format = "junit"
	HTML     Format = "html"
)

// ParseFormat reads the value of -o, which must be one of the known formats.
func ParseFormat(s string, known []Format) (Format, error) {
	if f := Format(s); slices.Contains(known, f) {
		return f, nil
	}
	return "", UsageErrorf("unknown output format %q: use %s", s, Alternatives(known))
}

// Alternatives returns "text, json or markdown".
func Alternatives(known []Format) string {
	s := string(known[0])
	for _, f := range known[1 : len(known)-1] {
		s += ", " + string(f)
	}
	return s + " or " + string(known[len(known)-1])
}

// AddOutputFlag adds -o with the known formats.
func AddOutputFlag(cmd *cobra.Command, output *string, known []Format) {
	cmd.Flags().StringVarP(output, "output", "o", string(Text), "output `format`: "+Alternatives(known))
	var names []string
	for _, f := range known {
		names = append(names, string(f))
	}
	CompleteFlag(cmd, "output", names...)
}

// NoArgs accepts no arguments. An argument may be a misspelt command.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasSubCommands() {
		return UsageErrorf("unexpected argument %q: see `%s --help`", args[0], cmd.CommandPath())
	}
	return UnknownCommand(cmd, args[0])
}

// UnknownCommand is the error for a command that does not exist, with the nearest name.
func UnknownCommand(cmd *cobra.Command, name string) error {
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	if near := spelling.Nearest(name, names); near != "" {
		return UsageErrorf("unknown command %q: did you mean `%s %s`?", name, cmd.CommandPath(), near)
	}
	return UsageErrorf("unknown command %q: see `%s --help`", name, cmd.CommandPath())
}

// OneArg requires one argument, which the error names.
func OneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return UsageErrorf("give %s: see `%s --help`", what, cmd.CommandPath())
		}
		return nil
	}
}

// SomeArgs requires at least one argument.
func SomeArgs(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return UsageErrorf("give %s: see `%s --help`", what, cmd.CommandPath())
		}
		return nil
	}
}

// CompleteFlag completes a flag with these values.
func CompleteFlag(cmd *cobra.Command, flag string, values ...string) {
	CompleteFlagBy(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// CompleteFlagBy completes a flag with the result of a function.
func CompleteFlagBy(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(fmt.Sprintf("command: complete --%s: %v", flag, err)) // a flag misspelt here, found by every test
	}
}
