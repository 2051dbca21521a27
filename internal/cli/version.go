package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/report"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and the schemas it reads and writes",
		Args:  command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(a.Streams.Out, "perfdoctor %s (%s, %s/%s)\nrecording schema %d, report schema %d\n",
				a.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, recording.SchemaVersion, report.Schema)
			return command.OutputError(err)
		},
	}
}
