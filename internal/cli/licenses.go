package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/cli/licenses"
)

func (a *app) licensesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "licenses",
		Short: "Print the licences of this program and of all that is in it",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			list, err := licenses.All()
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(a.streams.Out, licensesText(list))
			return outputError(err)
		},
	}
}

func licensesText(list []licenses.License) string {
	var b strings.Builder
	for _, l := range list {
		title := strings.TrimSpace(l.Name + " " + l.Version)
		fmt.Fprintf(&b, "%s\n%s\n\n", title, strings.Repeat("=", len(title)))
		if l.Text == "" {
			fmt.Fprintf(&b, "Its text is not in this build, which was made without `make build`:\n"+
				"https://pkg.go.dev/%s@%s?tab=licenses\n\n", l.Name, l.Version)
			continue
		}
		b.WriteString(strings.Trim(l.Text, "\n") + "\n\n")
	}
	return b.String()
}
