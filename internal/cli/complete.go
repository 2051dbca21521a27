package cli

import (
	"context"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/host"
)

// completionTime is how long a shell waits for a completion: a host of 10,000 processes takes 0.4 s (40 µs each, by
// [host.Host.Members] and [host.Host.Owner]).
const completionTime = time.Second

// shortID is how much of a container's id is completed: as much as docker ps shows.
const shortID = 12

// tame matches what may go to a shell as a completion. The shell puts it into the command line, or expands it on the
// way (compgen -W of bash). Anyone can choose the name of a process, so any other name has to be typed.
var tame = regexp.MustCompile(`^[A-Za-z0-9/_][A-Za-z0-9/_.:@+-]*$`)

// named is a choice with a word about it.
type named struct{ choice, about string }

// completions are the choices that begin with what was typed and may go to a shell.
func completions(list []named, typed string) []string {
	var out []string
	for _, c := range list {
		switch {
		case !strings.HasPrefix(c.choice, typed) || !tame.MatchString(c.choice):
		case tame.MatchString(c.about):
			out = append(out, cobra.CompletionWithDesc(c.choice, c.about))
		default:
			out = append(out, c.choice)
		}
	}
	return out
}

// running lists the processes of this host, without kernel threads and this program.
func running() []host.Process {
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	list, err := host.Local().Members(ctx, host.Target{Kind: host.KindHost})
	if err != nil {
		return nil // nobody can be told: the shell then completes nothing
	}
	return slices.DeleteFunc(list, func(p host.Process) bool {
		return p.Flags&host.FlagKernelThread != 0 || p.State == 'Z' || p.PID == os.Getpid()
	})
}

func processIDs() (out []named) {
	for _, p := range running() {
		out = append(out, named{strconv.Itoa(p.PID), p.Comm})
	}
	return out
}

func processNames() (out []named) {
	names := map[string]bool{}
	for _, p := range running() {
		names[p.Comm] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, named{choice: name})
	}
	return out
}

// owners returns what a function says about the owner of each process, each choice once, with the name of one
// process.
func owners(of func(host.Owner) []string) (out []named) {
	began := time.Now()
	seen := map[string]bool{}
	for _, p := range running() {
		if time.Since(began) > completionTime {
			break
		}
		owner, err := host.Local().Owner(p.PID)
		if err != nil {
			continue // it ended, or is hidden from this user
		}
		for _, choice := range of(owner) {
			if !seen[choice] {
				seen[choice] = true
				out = append(out, named{choice, p.Comm})
			}
		}
	}
	slices.SortFunc(out, func(a, b named) int { return strings.Compare(a.choice, b.choice) })
	return out
}

func containers() []named {
	return owners(func(o host.Owner) []string {
		if len(o.Container) < shortID {
			return nil
		}
		return []string{o.Container[:shortID]}
	})
}

// cgroups are the groups that hold processes, and the groups above them.
func cgroups() []named {
	return owners(func(o host.Owner) (out []string) {
		for at := o.Cgroup; at != "" && at != "/" && at != "."; at = path.Dir(at) {
			out = append(out, at)
		}
		return out
	})
}

// completeTarget completes the one word that names a target: the id or the name of a process. If commands are
// completed too, it returns nothing before the first letter.
func completeTarget(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) > 0:
		return nil, cobra.ShellCompDirectiveNoFileComp
	case typed == "" && cmd.HasSubCommands():
		return nil, cobra.ShellCompDirectiveNoFileComp
	case typed != "" && strings.Trim(typed, "0123456789") == "":
		return completions(processIDs(), typed), cobra.ShellCompDirectiveNoFileComp
	}
	return completions(processNames(), typed), cobra.ShellCompDirectiveNoFileComp
}

// completeRunning completes a flag with what runs on this host now.
func completeRunning(cmd *cobra.Command, flag string, list func() []named) {
	command.CompleteFlagBy(cmd, flag, func(_ *cobra.Command, _ []string, typed string) ([]string,
		cobra.ShellCompDirective,
	) {
		return completions(list(), typed), cobra.ShellCompDirectiveNoFileComp
	})
}

// completeChecks completes the name of a check, with its title.
func completeChecks(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return titled(checks.Suite(), ""), cobra.ShellCompDirectiveNoFileComp
}

// completeCheckList completes the last check in a list of names with commas between.
func completeCheckList(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return titled(checks.Suite(), typed[:strings.LastIndex(typed, ",")+1]), cobra.ShellCompDirectiveNoFileComp
}

func titled(suite []*check.Check, before string) (out []string) {
	for _, c := range suite {
		out = append(out, cobra.CompletionWithDesc(before+c.Name, c.Title()))
	}
	return out
}

// completeSettings completes CHECK.PARAMETER= with the parameter's present value.
func completeSettings(*cobra.Command, []string, string) (out []string, _ cobra.ShellCompDirective) {
	for _, c := range checks.Suite() {
		for _, p := range c.Params {
			out = append(out, cobra.CompletionWithDesc(c.Name+"."+p.Name+"=", p.Value().Text()))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
