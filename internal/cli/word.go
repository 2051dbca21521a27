package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/host"
)

// addRootDiagnosis makes `perfdoctor 4021`, `perfdoctor nginx` and `perfdoctor -- ./server` do the same as with
// `perfdoctor diagnose`, with its flags. A command takes precedence over a process of the same name.
func (a *app) addRootDiagnosis(root *cobra.Command) {
	d := &diagnosis{app: a}
	d.addFlags(root)
	root.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = true }) // diagnose --help has them
	root.Args = cobra.ArbitraryArgs
	root.ValidArgsFunction = completeTarget
	root.RunE = func(cmd *cobra.Command, args []string) error {
		dash := cmd.ArgsLenAtDash()
		if len(args) == 0 && dash < 0 && cmd.Flags().NFlag() == 0 {
			return cmd.Help()
		}
		if len(args) > 1 && dash < 0 { // a target is one word: this is a misspelt command with its arguments
			if s, err := selectorOf(args[0]); err == nil && s.Comm != "" {
				return command.UnknownCommand(cmd, args[0])
			}
		}
		return notEvenCommand(cmd, d.run(cmd, args), d.word)
	}
}

// notEvenCommand extends the error about a word that names no process: it adds the command that may have been meant.
func notEvenCommand(cmd *cobra.Command, err error, word string) error {
	if word == "" || !errors.Is(err, host.ErrNoSuchProcess) {
		return err
	}
	return fmt.Errorf("%w; %w", command.UnknownCommand(cmd, word), err)
}

// addressed takes the target and the command from the words of the call.
func (d *diagnosis) addressed(cmd *cobra.Command, args []string) error {
	words, dash := args, cmd.ArgsLenAtDash()
	if dash >= 0 {
		words, d.command = args[:dash], args[dash:]
		if len(d.command) == 0 {
			return command.UsageErrorf("give the command to diagnose after --")
		}
	}
	if len(words) == 0 {
		return nil
	}
	s, err := selectorOf(words[0])
	switch {
	case err != nil:
		return err
	case len(words) > 1:
		return command.UsageErrorf("unexpected argument %q: name one target, or a command after --", words[1])
	case d.selector != (host.Selector{}):
		return command.UsageErrorf("unexpected argument %q: a flag names the target already", words[0])
	}
	d.selector, d.word = s, s.Comm
	return nil
}

// selectorOf says what a word names: a number is a process id, anything else the name of a process.
func selectorOf(word string) (host.Selector, error) {
	switch {
	case strings.TrimSpace(word) == "":
		return host.Selector{}, command.UsageErrorf("the target is empty: give a process id or a name")
	case strings.Trim(word, "0123456789") == "":
		pid, err := strconv.ParseInt(word, 10, 32)
		if err != nil || pid == 0 {
			return host.Selector{}, command.UsageErrorf("%s is not a process id", word)
		}
		return host.Selector{PID: int(pid)}, nil
	case strings.Contains(word, "/"):
		return host.Selector{}, command.UsageErrorf("%q is no process id or name: to start it and diagnose it put -- "+
			"before it; a process whose name has a slash is named with --comm", word)
	}
	return host.Selector{Comm: word}, nil
}
