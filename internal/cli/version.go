package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/report"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and the schemas it reads and writes",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(a.streams.Out, "perfdoctor %s (%s, %s/%s)\nrecording schema %d, report schema %d\n",
				a.version, runtime.Version(), runtime.GOOS, runtime.GOARCH, recording.SchemaVersion, report.Schema)
			return outputError(err)
		},
	}
}
