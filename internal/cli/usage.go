package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/perfdoctor/perfdoctor/internal/input/spelling"
)

// flagError puts pflag's words about a flag into ours: what is wrong, and what would be right.
func flagError(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &invalid):
		f := invalid.GetFlag()
		return usageErrorf("--%s %q is not %s", f.Name, invalid.GetValue(), valueOf(f))
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		return unknownFlag(cmd, unknown.GetSpecifiedName())
	}
	return usageErrorf("%v: see `%s --help`", err, cmd.CommandPath())
}

// valueOf says what a flag wants.
func valueOf(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "int", "uint64":
		return "a whole number"
	case "duration":
		return "a time with its unit, such as 10s, 500ms or 2m"
	case "bool":
		return "true or false"
	}
	return "a " + f.Value.Type()
}

func unknownFlag(cmd *cobra.Command, name string) error {
	if d, _, err := cmd.Root().Find([]string{"diagnose"}); err == nil && cmd == cmd.Root() && d.Flags().Lookup(name) != nil {
		return usageErrorf("--%s goes with a command: `perfdoctor diagnose --%s …`", name, name)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := spelling.Nearest(name, names); near != "" {
		return usageErrorf("unknown flag --%s: did you mean --%s?", name, near)
	}
	return usageErrorf("unknown flag --%s: see `%s --help`", name, cmd.CommandPath())
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasSubCommands() {
		return usageErrorf("unexpected argument %q: see `%s --help`", args[0], cmd.CommandPath())
	}
	return unknownCommand(cmd, args[0])
}

func unknownCommand(cmd *cobra.Command, name string) error {
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	if near := spelling.Nearest(name, names); near != "" {
		return usageErrorf("unknown command %q: did you mean `%s %s`?", name, cmd.CommandPath(), near)
	}
	return usageErrorf("unknown command %q: see `%s --help`", name, cmd.CommandPath())
}

// oneArg wants one argument, named in the error.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usageErrorf("give %s: see `%s --help`", what, cmd.CommandPath())
		}
		return nil
	}
}

// helpCommand is cobra's with an error for what does not exist; cobra's own prints the usage and succeeds.
func (a *app) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Explain a command and its flags",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if of, _, err := cmd.Root().Find(args); err == nil {
				for _, c := range of.Commands() {
					names = append(names, c.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(of, rest[len(rest)-1])
			}
			of.InitDefaultHelpFlag()
			return outputError(of.Help())
		},
	}
}

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print the script that completes perfdoctor's commands in a shell",
		Long: `Prints a script for the shell. To use it in every new session:

  bash  perfdoctor completion bash > /etc/bash_completion.d/perfdoctor
        (needs the package bash-completion)
  zsh   perfdoctor completion zsh > "${fpath[1]}/_perfdoctor"
  fish  perfdoctor completion fish > ~/.config/fish/completions/perfdoctor.fish`,
		Args:      oneArg("a shell: bash, zsh or fish"),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return outputError(cmd.Root().GenBashCompletionV2(a.streams.Out, true))
			case "zsh":
				return outputError(cmd.Root().GenZshCompletion(a.streams.Out))
			case "fish":
				return outputError(cmd.Root().GenFishCompletion(a.streams.Out, true))
			}
			return usageErrorf("unknown shell %q: use bash, zsh or fish", args[0])
		},
	}
}

// completeFlag completes a flag with these values.
func completeFlag(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(fmt.Sprintf("cli: complete --%s: %v", flag, err)) // a flag misspelt here, found by every test
	}
}
