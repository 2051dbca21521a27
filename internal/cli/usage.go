package cli

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/input/spelling"
)

// flagError turns pflag's words about a flag into ours: what is wrong, and what would be right.
func flagError(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &invalid):
		f := invalid.GetFlag()
		return command.UsageErrorf("--%s %q is not %s", f.Name, invalid.GetValue(), valueOf(f))
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		return unknownFlag(cmd, unknown.GetSpecifiedName())
	}
	return command.UsageErrorf("%v: see `%s --help`", err, cmd.CommandPath())
}

// valueOf says which value a flag wants.
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
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := spelling.Nearest(name, names); near != "" {
		return command.UsageErrorf("unknown flag --%s: did you mean --%s?", name, near)
	}
	return command.UsageErrorf("unknown flag --%s: see `%s --help`", name, cmd.CommandPath())
}

// helpCommand is cobra's with an error for a command that does not exist; cobra's own prints the usage and succeeds.
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
				return command.UnknownCommand(of, rest[len(rest)-1])
			}
			of.InitDefaultHelpFlag()
			return command.OutputError(of.Help())
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
		Args:      command.OneArg("a shell: bash, zsh or fish"),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return command.OutputError(cmd.Root().GenBashCompletionV2(a.Streams.Out, true))
			case "zsh":
				return command.OutputError(cmd.Root().GenZshCompletion(a.Streams.Out))
			case "fish":
				return command.OutputError(cmd.Root().GenFishCompletion(a.Streams.Out, true))
			}
			return command.UsageErrorf("unknown shell %q: use bash, zsh or fish", args[0])
		},
	}
}
